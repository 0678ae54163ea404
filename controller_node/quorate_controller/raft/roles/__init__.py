"""The roles: what a replica in that role knows, which votes it grants, and what time brings.

The legal ways from role to role stand in the docstring of `quorate_controller.raft`.
"""
