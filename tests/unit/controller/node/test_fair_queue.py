"""Round robin over clients."""

from quorate_controller.node.request_queue import FairQueue


def queue(*items: str) -> FairQueue[str]:
    """A queue of items whose clients are their first letters."""
    found: FairQueue[str] = FairQueue()
    for item in items:
        found.append(item[0], item)
    return found


def order(items: FairQueue[str]) -> list[str]:
    return [items.pop()[1] for _ in range(len(items))]


def test_each_client_is_next_once_in_a_round() -> None:
    assert order(queue("a1", "a2", "a3", "b1", "c1", "b2")) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_what_is_put_back_is_next_of_its_client_behind_the_others() -> None:
    """Unfinished work of a client stays in front of its later work."""
    items = queue("a1", "a2", "b1")
    client, item = items.pop()
    items.put_back(client, item)
    assert order(items) == ["b1", "a1", "a2"]
    client, item = (only := queue("a1")).pop()
    assert not only
    only.put_back(client, item)
    assert order(only) == ["a1"]


def test_a_preferred_client_is_always_next() -> None:
    items = queue("a1", "b1", "p1", "p2")
    assert [items.pop("p")[1] for _ in range(4)] == ["p1", "p2", "a1", "b1"]


def test_only_what_is_meant_is_removed() -> None:
    items = queue("a1", "a2", "b1")
    assert items.remove("a", lambda item: item == "a1")
    assert not items.remove("a", lambda item: item == "a1")
    assert not items.remove("c", lambda _: True)
    assert items.remove("b", lambda _: True)
    assert (items.client_count, "b" in items, items.pop_all()) == (1, False, ["a2"])
    assert not items
