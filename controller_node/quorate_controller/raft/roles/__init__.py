"""The roles: what a replica in each role knows, which votes it grants, and what it does when time passes.

The docstring of `quorate_controller.raft` lists the legal transitions.
"""
