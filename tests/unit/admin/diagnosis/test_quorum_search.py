"""What is said of a quorum without a leader: who is missing, and what to do about it."""

import pytest
from quorate_admin.diagnosis import AskedController, Code, Examination, QuorumSearch, diagnose
from quorate_admin.types.cluster import FeatureDescription

VOTERS = {1: ("h:1",), 2: ("h:2",), 3: ("h:3",)}


def ours(node_id: int, /, **facts: object) -> AskedController:
    """A controller of Quorate that does not lead, and knows the voters."""
    fields: dict[str, object] = {
        "address": f"h:{node_id}",
        "node_id": node_id,
        "leads": False,
        "voters": VOTERS,
    }
    return AskedController(**(fields | facts))  # type: ignore[arg-type]


def stock(node_id: int, /, **facts: object) -> AskedController:
    """A controller of stock Kafka that does not lead."""
    return ours(node_id, **({"voters": {}} | facts))


def silent(node_id: int, *, is_refused: bool = True) -> AskedController:
    """An address at which no server answers."""
    return AskedController(
        address=f"h:{node_id}", problem=f"no connection to h:{node_id}", is_refused=is_refused
    )


def search(*asked: AskedController) -> QuorumSearch:
    return QuorumSearch(asked=asked)


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ([ours(1), silent(2), silent(3)], "voters 2, 3 do not answer"),
        ([ours(1), ours(2), silent(3)], "voter 3 does not answer"),
        ([ours(1), stock(2), silent(3)], "voter 3 does not answer"),
        (
            [ours(1), ours(2, node_id=None), ours(3)],
            "all voters answer, so an election is under way or fails",
        ),
        ([ours(1), ours(2, node_id=7), ours(3)], "voter 2 does not answer"),
        ([stock(1), silent(2), silent(3)], "no server answers at h:2, h:3"),
        ([stock(1), stock(2)], "2 controllers answer"),
        ([stock(1)], "one controller answers"),
        (
            [ours(1), ours(2, voters={}, is_empty=True), silent(3)],
            "voter 3 does not answer, voter 2 has an empty log",
        ),
        (
            [ours(1), *(ours(node_id, voters={}, is_empty=True) for node_id in (2, 3))],
            "voters 2, 3 have empty logs",
        ),
    ],
)
def test_the_missing_voters_are_named(asked: list[AskedController], missing: str) -> None:
    """The ids if a controller knows them, otherwise addresses."""
    found = search(*asked)
    assert found.missing == missing
    assert found.is_led is False
    assert str(found).startswith(f"no leader; {missing}")


def test_the_voters_of_the_highest_epoch_count() -> None:
    found = search(ours(1, epoch=5), ours(4, epoch=7, voters={1: ("h:1",), 4: ("h:4",)}), silent(2))
    assert found.silent_voters == ()
    assert found.silent_addresses == ("h:2",)


@pytest.mark.parametrize(
    ("asked", "is_led"),
    [
        ([ours(1), ours(2, leads=True)], True),
        ([ours(1), ours(2, follows=True)], True),
        ([ours(1), ours(2, leads=None)], None),
        ([silent(1), silent(2)], None),
    ],
)
def test_no_leader_is_claimed_only_where_all_say_so(
    asked: list[AskedController], is_led: bool | None
) -> None:
    assert search(*asked).is_led is is_led


def test_refused_means_that_nobody_listens_anywhere() -> None:
    assert search(silent(1), silent(2)).is_refused
    assert not search(silent(1), silent(2, is_refused=False)).is_refused


@pytest.mark.parametrize(
    ("asked", "advice"),
    [
        ([ours(1), silent(2), silent(3)], "Start controllers 2 or 3: a majority of the voters has to run."),
        ([silent(1), ours(4), silent(2), silent(3)], "Start controllers 1, 2 or 3 (2 of them): a majority"),
        ([ours(1), ours(2), silent(3)], "A majority of the voters answers: wait some seconds."),
        ([ours(1, voters={1: ("h:1",), 2: ("h:2",)}), silent(2)], "Start controller 2: a majority"),
        ([stock(1), silent(2)], "Start the controllers that are down: a majority"),
        ([ours(1), ours(2, voters={}, is_empty=True), silent(3)], "Start controller 3: a majority"),
        (
            [ours(1), *(ours(node_id, voters={}, is_empty=True) for node_id in (2, 3))],
            "A majority of the voters needs its logs: give controllers 2, 3 the former disks, or recover the quorum",
        ),
    ],
)
def test_the_advice_is_what_a_majority_lacks(asked: list[AskedController], advice: str) -> None:
    assert search(*asked).advice.startswith(advice)


def test_levels_of_no_epoch_are_none() -> None:
    unread = FeatureDescription(finalized={"metadata.version": 7}, finalized_epoch=-1, supported={})
    read = FeatureDescription(finalized={"metadata.version": 29}, finalized_epoch=5, supported={})
    assert search(stock(1, features=unread)).features is None
    assert search(stock(1, features=unread), stock(2, features=read)).features is read


def test_the_doctor_names_the_missing_voters() -> None:
    found = search(ours(1), silent(2), silent(3))
    (finding,) = diagnose(Examination(search=found)).findings
    assert finding.code is Code.NO_LEADER
    assert finding.message == "The quorum has no leader; voters 2, 3 do not answer"
    assert finding.evidence == (
        "Controller 1 answers, and does not lead; no connection to h:2; no connection to h:3. "
        "Without a leader, nothing in the cluster's metadata can change."
    )
