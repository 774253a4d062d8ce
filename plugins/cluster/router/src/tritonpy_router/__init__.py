"""`corectl route`: one address in front of several servers of the v2 inference protocol."""
