"""Servers and routers on a Ray cluster; Ray starts and watches them, and no request passes through it."""
