"""How long `quorate play --wait` waits."""

from quorate.play.patience import Patience
from quorate_operator.runtime.local.supervisor import Event


def event(milestone: str | None) -> Event:
    """An event with a milestone."""
    return Event(sequence=1, text="something", milestone=milestone)


def test_the_wait_counts_from_the_last_progress() -> None:
    now_s = 0.0
    patience = Patience(10, lambda: now_s)
    for node_id in range(5):
        now_s += 9
        assert not patience.is_over
        patience.note([event(None), event(f"ready {node_id}")])
    now_s += 9
    assert not patience.is_over
    now_s += 1
    assert patience.is_over


def test_what_happens_again_and_again_is_no_progress() -> None:
    """A node that crashes is started again, and there may be elections, for ever."""
    now_s = 0.0
    patience = Patience(10, lambda: now_s)
    for _ in range(3):
        patience.note([event(None), event("StartNode 0")])
        now_s += 4
    assert patience.is_over
