"""Client libraries that start again at their bootstrap servers when no known broker can be reached, and since when.

Clients send their name and release in ApiVersions (KIP-511). What a library does by default is known of its release;
what an application has configured is not.
"""

import re
from enum import StrEnum
from typing import Final

from quorate_protocol.plain_data import dataclass


class Rebootstraps(StrEnum):
    """Whether a client starts again at its bootstrap servers when all addresses that it knows have changed."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


UNNAMED: Final = "unknown"
"""The name that a broker publishes for clients that have sent none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    """A client library.

    `names` are the names that it sends; without any, `release` identifies it. `release` finds the numbers of its
    release in what it sends as its version. It starts again by default from release `since` on; () is every release,
    None is no release. `before` is the judgement of earlier releases. `remark` completes the reason.
    """

    library: str
    names: frozenset[str] = frozenset()
    release: re.Pattern[str]
    since: tuple[int, ...] | None
    before: Rebootstraps = Rebootstraps.NO
    remark: str = ""

    def release_of(self, name: str, version: str) -> tuple[int, ...] | None:
        """Return the release that a client has, if it is one of this library with a release that can be read."""
        if self.names and name not in self.names:
            return None
        found = self.release.search(version)
        return None if found is None else tuple(int(number) for number in found.groups())


_ANY: Final = re.compile("")
_LEADING: Final = re.compile(r"^v?(\d{1,9})\.(\d{1,9})")
_JAVA: Final = frozenset({"apache-kafka-java"})
_OPT_IN: Final = "3.8 and 3.9 do so with metadata.recovery.strategy=rebootstrap, which is not their default"

# Sources, in the order of the table; documented in docs/doctor.md:
# - Confluent Platform 8.0 has Kafka 4.0: https://docs.confluent.io/platform/current/installation/versions-interoperability.html
# - Kafka 4.0, KIP-1102: https://github.com/apache/kafka/pull/17720; 3.8, KIP-899: https://github.com/apache/kafka/pull/13277
# - librdkafka: from 2.10.0 on KIP-899, https://github.com/confluentinc/librdkafka/pull/4980; earlier ones keep their
#   bootstrap brokers beside the known ones: tried with 2.0.2 and 2.8.0. Releases before 2.0 were not tried
# - franz-go 1.8.0: commit 3e025741, "occasionally use seed brokers": after each known broker it asks a seed
# - sarama: client.go, deregisterBroker and LeastLoadedBroker: brokers that fail are removed, then seeds are asked
# - kafka-python 3.0.12: docs/kips.rst, KIP-899 and KIP-1102 are "not supported"
KNOWN_CLIENTS: Final = (
    KnownClient(
        library="Kafka's Java client, in Confluent Platform",
        names=_JAVA,
        release=re.compile(r"^(\d{1,9})\.(\d{1,9})\.\d+-(?:ccs|ce)\b"),
        since=(8, 0),
    ),
    KnownClient(
        library="Kafka's Java client", names=_JAVA, release=_LEADING, since=(4, 0), remark=f"; {_OPT_IN}"
    ),
    KnownClient(
        library="librdkafka",
        release=re.compile(r"rdkafka-v?(\d{1,9})\.(\d{1,9})"),
        since=(2, 0),
        before=Rebootstraps.UNKNOWN,
    ),
    KnownClient(
        library="librdkafka",
        names=frozenset({"librdkafka"}),
        release=_LEADING,
        since=(2, 0),
        before=Rebootstraps.UNKNOWN,
    ),
    KnownClient(library="franz-go", names=frozenset({"kgo"}), release=_LEADING, since=(1, 8)),
    KnownClient(library="sarama", names=frozenset({"sarama"}), release=_ANY, since=()),
    KnownClient(library="kafka-python", names=frozenset({"kafka-python"}), release=_ANY, since=None),
    KnownClient(
        library="Quorate",
        names=frozenset({"quorate", "quorate-reader", "quorate-controller"}),
        release=_ANY,
        since=(),
    ),
)
"""The first entry that matches counts."""


def judge_client(name: str, version: str) -> tuple[Rebootstraps, str]:
    """Return whether a client of this name and version starts again by default, and the reason."""
    if name == UNNAMED:
        return Rebootstraps.UNKNOWN, "a client that sends no name (ApiVersions before version 3, or none)"
    for known in KNOWN_CLIENTS:
        release = known.release_of(name, version)
        if release is None:
            continue
        if known.since is None:
            return Rebootstraps.NO, f"{known.library} does not"
        if not known.since:
            return Rebootstraps.YES, f"{known.library} does"
        first = ".".join(map(str, known.since))
        judgement = Rebootstraps.YES if release >= known.since else known.before
        return judgement, f"{known.library} does by default from {first} on{known.remark}"
    if any(name in known.names for known in KNOWN_CLIENTS):
        return Rebootstraps.UNKNOWN, f"its version {version} has no release"
    return Rebootstraps.UNKNOWN, "not a client that the doctor knows"
