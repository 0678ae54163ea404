"""A read is given up by its own token: others may wait in its place by then."""

from collections.abc import Generator
from typing import Any

from quorate_controller.node.events import Requester
from quorate_controller.node.request_processor import LongRead, LongReads


def endless() -> Generator[None, None, Any]:
    while True:
        yield


def read(token: int) -> LongRead:
    return LongRead(
        token=token, request="r", steps=endless(), requester=Requester(None, 1 << 62), client=None
    )


def test_only_the_read_itself_is_given_up() -> None:
    reads = LongReads(lambda: 0)
    former, later = read(1), read(2)
    reads.begin(former)
    assert reads.pop_all() == [1]
    assert not reads.give_up(former)
    reads.begin(later)
    assert not reads.give_up(former)
    assert reads.pop_all() == [2]
    reads.begin(later)
    reads.begin(former)
    assert reads.give_up(later)
    assert reads.pop_all() == [1]
