"""HTTP/1.1 connections: bytes in, requests out, responses back in order."""
