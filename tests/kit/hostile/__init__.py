"""Hostile clients against real controllers, and the service that well-behaved clients get meanwhile.

`attacks.py` has the attacks; each runs in a process of its own (`attacker.py`). `probe.py` measures, `siege.py`
brings both together on a quorum of real processes, `report.py` makes the tables of docs/limits.md.
"""
