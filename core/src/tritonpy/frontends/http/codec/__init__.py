"""JSON bodies: read and written here or, when they are large, in a process of their own."""
