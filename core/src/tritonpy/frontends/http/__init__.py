"""HTTP/1.1 over httptools, on the inference port."""
