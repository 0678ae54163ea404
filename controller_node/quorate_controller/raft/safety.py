"""The error of a replica that must not go on.

This package has no `assert`, which `python -O` removes: whatever elections, replication or voter changes rely on is
checked in every process. Invalid input from another node is refused with a protocol error, and never raises this one.
"""


class RaftSafetyError(Exception):
    """A step would break a promise of Raft: a mistake of ours, or of the driver.

    The state in memory may have changed halfway, and nothing of the step may reach the disk or another node. The
    process has to end. Its successor starts from what the disk has, which is consistent.
    """
