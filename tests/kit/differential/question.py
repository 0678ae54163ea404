"""A request of a test to a controller, and strategies that all requests are made with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st
from quorate_protocol.image.topics import PartitionRegistration


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request: a client, or a broker that forwards the request of `user`."""

    user: str | None = None
    client_id: str = "test"
    version: int | None = None


DIRECT: Final = Caller()
EVE: Final = Caller(user="eve")
"""A user without rights."""
FORWARDED: Final = frozenset(
    {
        *("CreateTopics", "CreatePartitions", "DeleteTopics", "ElectLeaders", "UpdateFeatures"),
        *("AlterPartitionReassignments", "ListPartitionReassignments"),
        *("IncrementalAlterConfigs", "AlterConfigs", "AlterClientQuotas", "AlterUserScramCredentials"),
        *("CreateAcls", "DeleteAcls", "UnregisterBroker", "UnregisterController"),
        *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken"),
    }
)
"""The requests that brokers forward for their clients."""


@dataclass(frozen=True, slots=True)
class At:
    """The values in requests that differ between the controllers under comparison."""

    cluster_id: str = ""
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """By name."""
    epochs: Mapping[int, int] = field(default_factory=dict)
    """Broker id -> broker epoch."""
    hmacs: Sequence[bytes] = ()
    """The HMACs of all delegation tokens that were created, in order."""
    partition: Callable[[str, int], PartitionRegistration | None] = lambda _topic, _index: None
    """Returns the current state of a partition in the log."""


Make = Callable[[At], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A request and its sender; `make` knows the controller that is asked."""

    what: str
    make: Make
    caller: Caller = DIRECT


def sometimes_by_eve(questions: st.SearchStrategy[Question]) -> st.SearchStrategy[Question]:
    """Sometimes a user without rights sends the request through a broker; ACLs of earlier requests may allow it."""
    return st.builds(
        lambda question, by_eve: (
            replace(question, caller=EVE) if by_eve and question.what in FORWARDED else question
        ),
        questions,
        st.sampled_from([False] * 5 + [True]),
    )


def always(request: Any) -> Make:
    """The same request to each controller."""
    return lambda _at: request


def lists(element: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """Up to `most` elements, or none."""
    return st.lists(element, max_size=most).map(tuple)


def some(element: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """At least one element, at `most` as many."""
    return st.lists(element, min_size=1, max_size=most).map(tuple)
