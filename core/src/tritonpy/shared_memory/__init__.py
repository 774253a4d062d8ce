"""Memory that clients share with the server: regions they register, and tensors that lie in them."""
