"""Connections, and the decisions of whom to ask next."""
