"""What differs between two controllers: in a response, and in their logs."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from kit.differential.nodes import Node
from kit.differential.question import At, Question
from kit.differential.requests import PLACED
from kit.metadata import content
from kit.older_releases import is_later, reworded
from kit.releases import RELEASE
from kit.waiting import eventually
from quorate_protocol.image.state import ImageState
from quorate_protocol.kafka.generated.create_topics_response import CreatableTopicConfigs
from quorate_protocol.kafka.releases import NEWEST_RELEASE
from quorate_protocol.wire.schema import schema_of

_OF_THIS_RUN: Final = frozenset({"topic_id", "throttle_time", "broker_epoch", "token_id", "hmac"})
"""Fields whose values differ between the two controllers."""

_OF_THE_RELEASE: Final = frozenset({"documentation"} if RELEASE != NEWEST_RELEASE else ())
"""Fields whose texts an older release words otherwise."""

_REFUSED: Final = re.compile(r"Request (Request\(.*\)|\w+) needs", re.DOTALL)
"""Java's controllers print the whole request with its addresses, ours name its API."""

PUBLISHED: Final = frozenset(
    {"DescribeAcls", "DescribeConfigs", "ExpireDelegationToken", "RenewDelegationToken"}
)
"""What stock Kafka answers from copies of its metadata, which follow a little later: a token that it has just created
is not found.
"""
PUBLISHED_WITHIN_S: Final = 3

Data = dict[str, Any]


class Moment:
    """A time in a response. It equals a time of the other controller that may be a little later."""

    def __init__(self, time: datetime) -> None:
        self._time = time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and abs(self._time - other._time) < timedelta(minutes=5)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self._time.isoformat()


def comparable(entity: Any) -> Any:
    """An answer as data: without ids of topics and what an older release lacks, and with lists in an order that does
    not depend on hashes.
    """
    if isinstance(entity, datetime):
        return Moment(entity)
    if isinstance(entity, str):
        return _REFUSED.sub("Request <request> needs", reworded(entity, RELEASE))
    if isinstance(entity, (list, tuple)):
        return sorted((comparable(element) for element in entity if not _is_later_config(element)), key=repr)
    if entity is None or isinstance(entity, (str, int, float, bytes, bool, UUID, timedelta)):
        return int(entity) if isinstance(entity, int) else entity
    return {
        field.name: comparable(getattr(entity, field.name))
        for field in schema_of(type(entity))
        if field.name not in _OF_THIS_RUN | _OF_THE_RELEASE
    }


def _is_later_config(entity: Any) -> bool:
    return isinstance(entity, CreatableTopicConfigs) and is_later(entity.name, RELEASE)


class Compared:
    """Puts the same questions to two controllers, and keeps what differs."""

    def __init__(self, stock: Node, ours: Node) -> None:
        self._nodes = (stock, ours)
        self.asked = 0
        self.differences: list[str] = []

    def ask(self, question: Question) -> None:
        """Ask both."""
        self.asked += 1
        stock, ours = (comparable(node.put(question)) for node in self._nodes)
        if stock != ours and question.what in PUBLISHED:
            stock = self._later_response(question, ours)
        if stock != ours:
            request = question.make(At())
            self.differences.append(f"{self.asked}: {request}\n  stock: {stock}\n  ours:  {ours}")

    def _later_response(self, question: Question, wanted: Any) -> Any:
        """The response of stock Kafka after its published metadata has caught up with its commits."""
        responses = [wanted]

        def is_equal() -> bool:
            responses[0] = comparable(self._nodes[0].put(question))
            return bool(responses[0] == wanted)

        with suppress(AssertionError):
            eventually(is_equal, PUBLISHED_WITHIN_S, "published")
        return responses[0]

    def compare_images(self) -> None:
        """Compare what both logs hold."""
        stock, ours = (image_content(node.image()) for node in self._nodes)
        for part in sorted(stock.keys() | ours.keys()):
            if stock.get(part) != ours.get(part):
                self.differences.append(
                    f"image: {part}\n  stock: {stock.get(part)}\n  ours:  {ours.get(part)}"
                )


def image_content(image: ImageState) -> Mapping[str, Any]:
    """An image as data, without what belongs to one run: ids of topics and ACLs, addresses, epochs of brokers."""
    records = content(image)
    data: Data = {"features": dict(image.features), "configs": _plain(image.configs)}
    data["quotas"] = _plain(image.client_quotas)
    data["users"] = sorted(records.get("UserScramCredentialRecord", ()))
    data["acls"] = sorted(repr(acl) for acl in image.acls.values())
    data["tokens"] = sorted(
        repr((delegation_token.owner, delegation_token.requester, delegation_token.renewers))
        for delegation_token in image.delegation_tokens.values()
    )
    data["brokers"], data["controllers"] = sorted(image.cluster.brokers), sorted(image.cluster.controllers)
    data["fenced brokers"] = sorted(
        broker_id for broker_id, broker in image.cluster.brokers.items() if broker.fenced
    )
    for name, topic in sorted(image.topics.by_name.items()):
        partitions = sorted(topic.partitions.items())
        data[f"topic {name}"] = [
            len(partition.replicas) if name in PLACED else repr(partition) for _, partition in partitions
        ]
    return data


def _plain(table: Mapping[Any, Any]) -> dict[str, Any]:
    return {repr(key): dict(value) for key, value in sorted(table.items(), key=repr)}
