"""Connections to nodes, and the routing of requests to them."""
