"""What is true of a quorum whose processes a test starts and kills, and whether a text says something else. Pure.

The truth comes from the processes and from the `quorum-state` files of those that run, not from what is under test.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

CONFIG, VALUE = "log.retention.ms", "123456789"
"""A dynamic config that was committed before the cut."""
_ABSENT = re.compile(r"voters? (?P<ids>\d+(?:, \d+)*) do(?:es)? not answer")
_SILENT = re.compile(r"Voter (\d+) does not follow the log")
_NOT_RUNNING = re.compile(r"not running: (?P<ids>\d+(?:, \d+)*)")
_BEHIND = re.compile(r"not caught up: (?P<ids>\d+(?:, \d+)*)")
_NOBODY = re.compile(r"no server answers at (?P<addresses>[0-9.]+:\d+(?:, [0-9.]+:\d+)*)")
_LEADER = re.compile(r"(?:LeaderId:\s+|: leader |led by )(\d+)|voters, (\d+) leads")
_NO_LEADER = re.compile(r"no leader|without a leader")
_TOPICS_OF_BROKERS = re.compile(r"no controller .* serves DescribeTopicPartitions.*--bootstrap-server")
_NO_CONFIGS = re.compile(r"Default configs for brokers in the cluster are:\s*")
FALSE = re.compile(r"Traceback|MetadataVersion|UNSUPPORTED_VERSION|not supported")
"""What no text may say: the level of these clusters supports everything that is asked."""


def _ids(pattern: re.Pattern[str], text: str) -> frozenset[int]:
    return frozenset(int(part) for found in pattern.finditer(text) for part in found["ids"].split(", "))


@dataclass(frozen=True, slots=True)
class Truth:
    """A quorum while something is asked: the addresses of all voters by id, and those that run.

    `leader_id` is the leader that a majority of those that run had on disk before anything was asked, and still has
    afterwards; or None.
    """

    voters: Mapping[int, str]
    running: frozenset[int]
    leader_id: int | None
    is_java: bool = False

    @property
    def dead(self) -> frozenset[int]:
        """The voters that do not run."""
        return frozenset(self.voters) - self.running

    @property
    def can_lead(self) -> bool:
        """Whether a majority of the voters runs."""
        return len(self.running) > len(self.voters) // 2


@dataclass(frozen=True, slots=True)
class Said:
    """What one tool said: its exit code, text, and seconds; `is_unsupported` if it does not ask controllers."""

    tool: str
    exit_code: int
    text: str
    seconds: float
    is_unsupported: bool = False

    @property
    def denies_leader(self) -> bool:
        """Whether it says that there is no leader."""
        return _NO_LEADER.search(self.text) is not None

    @property
    def leader_id(self) -> int | None:
        """The leader that it names."""
        found = _LEADER.search(self.text)
        return None if found is None else int(found[1] or found[2])

    @property
    def is_before_load(self) -> bool:
        """Whether it lists no dynamic config at all, and says nothing else."""
        return self.tool == "configs" and self.exit_code == 0 and _NO_CONFIGS.fullmatch(self.text) is not None

    def named_dead(self, voters: Mapping[int, str]) -> frozenset[int]:
        """The voters that it says are missing, by id or by address."""
        ids = {int(number) for number in _SILENT.findall(self.text)}
        ids |= _ids(_ABSENT, self.text) | _ids(_NOT_RUNNING, self.text)
        addresses = {part for found in _NOBODY.finditer(self.text) for part in found["addresses"].split(", ")}
        return frozenset(ids | {node_id for node_id, address in voters.items() if address in addresses})


def problems(said: Said, truth: Truth, limit_s: float) -> Iterator[str]:
    """What is false, missing or late."""
    if said.seconds > limit_s:
        yield f"took {said.seconds:.1f} s, more than {limit_s:.1f} s"
    if said.is_unsupported:
        return
    found = FALSE.search(said.text)
    if found is not None:
        yield f"says {found[0]!r}"
    named = said.named_dead(truth.voters)
    if named & truth.running:
        yield f"says that {sorted(named & truth.running)} are missing, which run"
    if not said.text.strip() and not (said.tool == "topics" and said.exit_code == 0):
        yield "says nothing"
    if said.denies_leader:
        yield from _without_leader(said, truth, named)
    else:
        yield from _with_leader(said, truth)


def _without_leader(said: Said, truth: Truth, named: frozenset[int]) -> Iterator[str]:
    if truth.leader_id is not None:
        yield f"says that there is no leader; {truth.leader_id} leads"
    if said.exit_code == 0 and said.tool not in ("play status", "condition"):
        yield "exit code 0 without a leader"
    if (
        truth.dead and named != truth.dead and said.tool != "play status"
    ):  # its table has the state of each node
        yield f"names {sorted(named)} as missing, not {sorted(truth.dead)}"


def _with_leader(said: Said, truth: Truth) -> Iterator[str]:
    if not truth.can_lead:
        yield "does not say that there is no leader"
        return
    if truth.leader_id is not None and said.leader_id not in (None, truth.leader_id):
        yield f"says that {said.leader_id} leads, not {truth.leader_id}"
    elif said.leader_id is not None and said.leader_id not in truth.running:
        yield f"says that {said.leader_id} leads, which does not run"
    yield from _CONTENT_OF[said.tool](said, truth)


def _doctor(said: Said, truth: Truth) -> Iterator[str]:
    named = said.named_dead(truth.voters)
    if said.leader_id is None:
        yield "names no leader"
    if named != truth.dead:
        yield f"names {sorted(named)} as missing, not {sorted(truth.dead)}"
    if (said.exit_code == 0) != (not truth.dead):
        yield f"exit code {said.exit_code} with {sorted(truth.dead)} missing"


def _condition(said: Said, truth: Truth) -> Iterator[str]:
    behind = _ids(_BEHIND, said.text)
    if said.leader_id is None and not behind:
        yield "names no leader, and nobody behind"
    if not truth.dead <= behind:
        yield f"names {sorted(behind)} as behind, not {sorted(truth.dead)}"


def _names_leader(said: Said, _: Truth) -> Iterator[str]:
    if said.leader_id is None:
        yield "names no leader"


def _shows(text: str) -> Callable[[Said, Truth], Iterator[str]]:
    def check(said: Said, _: Truth) -> Iterator[str]:
        if text not in said.text or said.exit_code != 0:
            yield f"exit code {said.exit_code}, without {text!r}"

    return check


def _configs(said: Said, truth: Truth) -> Iterator[str]:
    """Show the dynamic config. Controllers of Kafka describe what they loaded, which is nothing at first."""
    if not (truth.is_java and said.is_before_load):
        yield from _shows(f"{CONFIG}={VALUE}")(said, truth)


def _lists_topics(said: Said, truth: Truth) -> Iterator[str]:
    """An empty list. Controllers of Kafka do not list them."""
    if said.exit_code != 0 and not (truth.is_java and _TOPICS_OF_BROKERS.search(said.text)):
        yield f"exit code {said.exit_code}"


_CONTENT_OF: Mapping[str, Callable[[Said, Truth], Iterator[str]]] = {
    "doctor": _doctor,
    "metadata-quorum": _names_leader,
    "features": _shows("metadata.version"),
    "configs": _configs,
    "topics": _lists_topics,
    "play status": _names_leader,
    "condition": _condition,
}
"""What each of them has to say of a quorum with a leader."""
