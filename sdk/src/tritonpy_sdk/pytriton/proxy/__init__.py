"""`pytriton.proxy`."""
