"""The refusal of a replica that no broker has room for. Pure."""

from quorate_operator.placement.assignment import Assignment
from quorate_operator.placement.cluster import FREE_SHARE_MIN
from quorate_operator.planning.steps import Refusal, format_bytes

TOO_LITTLE_SPACE = "TooLittleSpace"


def refuse_without_room(assignment: Assignment, index: int, subject: str, failed: str) -> Refusal | None:
    """Return the refusal for a partition, with the brokers that are too full; None if none of them is.

    `subject` names the partition, `failed` is what it can't do: `orders-0 (1.0 GiB) can't leave broker-2: ...`.
    """
    full = assignment.without_room(index)
    if not full:
        return None
    message = (
        f"{subject} ({format_bytes(assignment.size(index))}) {failed}: broker(s) {', '.join(map(str, full))} would "
        f"keep less than {FREE_SHARE_MIN:.0%} of a disk free; add brokers or space, or delete data"
    )
    return Refusal(code=TOO_LITTLE_SPACE, message=message)
