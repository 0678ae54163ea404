"""Quotas on changes of partitions, as a stock controller and ours enforce them (KIP-599).

Both get the same requests. Quotas refill with time, so the rates are so low that the test does not last as long as
the refill of one token.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kit.differential.nodes import DIRECT, Caller, Node, started
from kit.releases import RELEASE
from kit.waiting import eventually
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import alter_client_quotas_request as quotas
from quorate_protocol.kafka.generated import create_partitions_request as create_partitions
from quorate_protocol.kafka.generated import create_topics_request as create_topics
from quorate_protocol.kafka.generated import delete_topics_request as delete_topics

pytestmark = pytest.mark.integration

TIMEOUT = timedelta(seconds=30)
RATE = 0.001
"""Tokens a second. A full bucket of 11 windows of 1 s has 0.011."""
ONE_TOKEN_MS = 1_000_000
LAST_PERMISSIVE = 5
"""The version of CreateTopics before quotas refuse."""
TIMEOUT_S = 30
TOLERANCE_MS = 60_000


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """A stock controller and ours."""
    directory = tmp_path_factory.mktemp("quotas")
    with (
        started(RELEASE, directory / "stock") as stock,
        started("Quorate", directory / "ours") as ours,
    ):
        yield [stock, ours]


def alter_quota(node: Node, rate: float | None, entity: Mapping[str, str | None]) -> None:
    """Set or remove the quota of an entity."""
    parts = tuple(quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
    op = quotas.OpData(key="controller_mutation_rate", value=rate or 0.0, remove=rate is None)
    request = quotas.AlterClientQuotasRequest(
        entries=(quotas.EntryData(entity=parts, ops=(op,)),), validate_only=False
    )
    (entry,) = node.ask(request).entries
    assert entry.error_code is ErrorCode.none, entry


@contextmanager
def quota_of(nodes: list[Node], entity: Mapping[str, str | None], caller: Caller) -> Iterator[None]:
    """A quota that both controllers apply to this caller, whose bucket lacks one token; removed in the end.

    Stock Kafka applies quotas some time after it has answered. While it applies one that is removed, it takes
    tokens, and both keep the bucket: another quota needs another pair of user and client id.
    """
    for node in nodes:
        alter_quota(node, RATE, entity)
        throttled(node, caller, wanted=True)
    try:
        yield
    finally:
        for node in nodes:
            alter_quota(node, None, entity)
            throttled(node, caller, wanted=False)


def throttled(node: Node, caller: Caller, *, wanted: bool) -> None:
    """Wait until a request that is permitted in any case is throttled, or is not."""
    old = replace(caller, version=LAST_PERMISSIVE)
    eventually(
        lambda: (results_of(node.ask(validation(), old))[1] > 0) == wanted, TIMEOUT_S, f"throttled: {wanted}"
    )


def validation() -> create_topics.CreateTopicsRequest:
    """A topic of one partition that is not created, and still takes a token."""
    return replace(create("validated", partitions=1), validate_only=True)


def create(*names: str, partitions: int = 3) -> create_topics.CreateTopicsRequest:
    """New topics."""
    topics = tuple(
        create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        for name in names
    )
    return create_topics.CreateTopicsRequest(topics=topics, timeout=TIMEOUT, validate_only=False)


def grow(*names: str, count: int) -> create_partitions.CreatePartitionsRequest:
    """More partitions."""
    topics = tuple(
        create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None) for name in names
    )
    return create_partitions.CreatePartitionsRequest(topics=topics, timeout=TIMEOUT, validate_only=False)


def delete(*names: str) -> delete_topics.DeleteTopicsRequest:
    """Topics less."""
    topics = tuple(delete_topics.DeleteTopicState(name=name, topic_id=None) for name in names)
    return delete_topics.DeleteTopicsRequest(topics=topics, timeout=TIMEOUT)


def results_of(response: Any) -> tuple[list[tuple[str, int, str | None]], int]:
    """Results by topic, and the throttle time in ms."""
    results = next(
        getattr(response, name) for name in ("topics", "results", "responses") if hasattr(response, name)
    )
    found = sorted((result.name, int(result.error_code), result.error_message) for result in results)
    return found, response.throttle_time // timedelta(milliseconds=1)


def responses_of(
    nodes: list[Node], request: Any, caller: Caller
) -> tuple[list[tuple[str, int, str | None]], int]:
    """The answer of the stock controller, which ours has to give, too. Throttle times run while requests are made."""
    (stock, stock_ms), (ours, ours_ms) = (results_of(node.ask(request, caller)) for node in nodes)
    assert ours == stock
    assert (ours_ms == 0) == (stock_ms == 0)
    assert abs(ours_ms - stock_ms) < TOLERANCE_MS
    return ours, ours_ms


EXCEEDED = int(ErrorCode.throttling_quota_exceeded)


@pytest.mark.parametrize(
    ("entity", "caller"),
    [
        ({"user": "alice"}, Caller(user="alice", client_id="app")),
        ({"user": "bob", "client-id": "app"}, Caller(user="bob", client_id="app")),
        ({"user": "bob", "client-id": None}, Caller(user="bob", client_id="app-3")),
        ({"client-id": "app-2"}, Caller(user="carol", client_id="app-2")),
        ({"user": None}, Caller(user="carol", client_id="app-2")),
        ({"user": "ANONYMOUS"}, Caller(client_id="tool")),
        ({"client-id": None}, Caller(client_id="tool")),
    ],
    ids=str,
)
def test_a_client_beyond_its_quota_is_refused(
    nodes: list[Node], entity: dict[str, str | None], caller: Caller
) -> None:
    """User and client id of the request decide, also of one that was forwarded; new versions are refused, old
    ones only throttled.
    """
    assert responses_of(nodes, create("a"), DIRECT)[1] == 0
    with quota_of(nodes, entity, caller):
        refused, throttle_ms = responses_of(nodes, create("b", "c"), caller)
        assert [code for _, code, _ in refused] == [EXCEEDED, EXCEEDED]
        assert throttle_ms > ONE_TOKEN_MS - TOLERANCE_MS
        for request in (grow("a", count=5), delete("a"), validation()):
            ((_, code, _),), throttle_ms = responses_of(nodes, request, caller)
            assert code == EXCEEDED
            assert throttle_ms > ONE_TOKEN_MS - TOLERANCE_MS
        # Errors that come first need no tokens.
        for request in (create("a"), grow("a", count=2), delete("absent")):
            ((_, code, _),), throttle_ms = responses_of(nodes, request, caller)
            assert code not in (0, EXCEEDED)
            assert throttle_ms == 0
        for request, version in ((create("e"), 5), (grow("a", count=4), 2), (delete("a", "e"), 4)):
            results, throttle_ms = responses_of(nodes, request, replace(caller, version=version))
            assert {code for _, code, _ in results} == {0}
            assert throttle_ms > 3 * ONE_TOKEN_MS


def test_quotas_of_others_do_not_count(nodes: list[Node]) -> None:
    pair = Caller(user="alice", client_id="app")
    with quota_of(nodes, {"user": "alice", "client-id": "app"}, pair):
        for request in (create("f"), grow("f", count=4), delete("f")):
            results, throttle_ms = responses_of(nodes, request, replace(pair, client_id="another"))
            assert {code for _, code, _ in results} == {0}
            assert throttle_ms == 0
