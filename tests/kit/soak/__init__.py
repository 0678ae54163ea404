"""A soak test on real processes: a mixed quorum and stock brokers under load, while everything breaks.

Each node has a network namespace of its own and each controller a small disk of its own. `schedule` draws the faults
from a seed and says which of them are safe now, `checker` judges the history: both are pure. `runner` carries out.
"""
