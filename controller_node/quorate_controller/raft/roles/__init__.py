"""The roles: the state of a replica in each role, the votes that it grants, and what is due when time passes.

The docstring of `quorate_controller.raft` lists the legal transitions.
"""
