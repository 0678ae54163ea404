"""The gateway with nodes that hang or report a false state."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from kit.waiting import HANG_S
from quorate_admin.errors import AuthenticationError, RequestTimeoutError, UnreachableError
from quorate_admin.types.cluster import (
    ClusterDescription,
    FeatureDescription,
    NodeDescription,
    QuorumDescription,
)
from quorate_operator.gateway import facts, kafka
from quorate_operator.gateway.kafka import KafkaGateway
from quorate_operator.planning.cluster import Address, KafkaFacts
from quorate_operator.planning.steps import ElectPreferredLeaders, StepError

CONTROLLERS = {node_id: Address("host", node_id) for node_id in (3000, 3001, 3002)}
BROKERS = {0: Address("host", 9092), 1: Address("host", 9093)}
NOT_LEADER = UnreachableError({"host": "NOT_LEADER_OR_FOLLOWER"})


def quorum(leader_id: int, epoch: int, high_watermark: int = 10) -> QuorumDescription:
    """What a controller that believes to lead answers."""
    return QuorumDescription(
        leader_id=leader_id, leader_epoch=epoch, high_watermark=high_watermark, voters=(), observers=()
    )


def brokers(*fenced: bool) -> ClusterDescription:
    """Brokers 0, 1, ... in service or fenced."""
    nodes = tuple(
        NodeDescription(node_id=node_id, host="host", port=9092 + node_id, rack=None, fenced=is_fenced)
        for node_id, is_fenced in enumerate(fenced)
    )
    return ClusterDescription(cluster_id="c", controller_id=-1, nodes=nodes)


class Client:
    """A client of one node, whose answer is given; without one it hangs."""

    def __init__(self, response: Any) -> None:
        self._response = response

    async def _ask(self) -> Any:
        if self._response is None:
            await asyncio.Event().wait()
        if isinstance(self._response, Exception):
            raise self._response
        return self._response

    async def describe_metadata_quorum(self) -> Any:
        """The quorum, of a controller."""
        return await self._ask()

    async def describe_cluster(self) -> Any:
        """The cluster, of either kind."""
        response = await self._ask()
        return brokers() if isinstance(response, QuorumDescription) else response

    async def describe_features(self) -> FeatureDescription:
        """A dynamic quorum."""
        return FeatureDescription(finalized={"kraft.version": 1}, finalized_epoch=1, supported={})

    async def describe_configs(self, _: object) -> Any:
        """A broker that reports no configuration."""
        raise RequestTimeoutError("no answer")


class Log:
    """In place of the image that follows a live log."""

    epoch = 0

    def __init__(self, image: Any) -> None:
        self.image = image
        self.failure: Exception | None = None
        self.asked: list[Address] = []

    def __call__(self, config: Any) -> "Log":
        """Made for a leader."""
        self.asked.append(config.bootstrap_controllers[0])
        return self

    async def redirect(self, config: Any, contacts: Mapping[int, Any]) -> None:
        """Pointed at another leader."""
        assert contacts.keys() == CONTROLLERS.keys()
        self.asked.append(config.bootstrap_controllers[0])

    async def refresh(self, *, timeout_ms: int) -> None:
        """Up to date, or not."""
        assert timeout_ms
        if self.failure is not None:
            raise self.failure

    def leader_since_ms(self, epoch: int) -> int:
        """Since the beginning."""
        assert epoch > 0
        return 0

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def log(metadata, monkeypatch: pytest.MonkeyPatch) -> Log:
    """The log of the leader."""
    made = Log(metadata.image)
    monkeypatch.setattr(kafka, "LiveImage", made)
    return made


@pytest.fixture
def gateway(log: Log, monkeypatch: pytest.MonkeyPatch) -> KafkaGateway:
    """A gateway with short timeouts that follows this log."""
    assert log.epoch == 0
    monkeypatch.setattr(kafka, "ASK_TIMEOUT_MS", 20)
    monkeypatch.setattr(kafka, "LEADER_WAIT_S", 0.1)
    monkeypatch.setattr(kafka, "LEADER_POLL_S", 0.01)
    return KafkaGateway()


def respond(gateway: KafkaGateway, responses: Mapping[int, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nodes answer so, by port."""
    monkeypatch.setattr(gateway._clients, "client", lambda _, address: Client(responses.get(address.port)))


async def observe(
    gateway: KafkaGateway, responses: Mapping[int, Any], monkeypatch: pytest.MonkeyPatch
) -> KafkaFacts | None:
    """Look at nodes that answer so."""
    respond(gateway, responses, monkeypatch)
    return await gateway.observe(CONTROLLERS, BROKERS, frozenset(), {})


async def test_a_controller_that_hangs_does_not_hide_the_quorum(
    gateway: KafkaGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended node is that node's fault alone."""
    found = await observe(gateway, {3001: quorum(3001, 4), 3002: NOT_LEADER}, monkeypatch)
    assert found is not None
    assert (found.quorum.leader_id, found.quorum.leader_epoch, found.quorum.kraft_version) == (3001, 4, 1)
    assert (found.cluster_id, found.features) == ("c", {"metadata.version": 30, "kraft.version": 1})


async def test_of_two_that_believe_to_lead_the_later_epoch_counts(
    gateway: KafkaGateway, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses = {3000: quorum(3000, 4), 3001: quorum(3001, 5), 3002: NOT_LEADER}
    for _ in range(2):
        found = await observe(gateway, responses, monkeypatch)
        assert found is not None
        assert found.quorum.leader_id == 3001
    found = await observe(gateway, {**responses, 3002: quorum(3002, 6)}, monkeypatch)
    assert found is not None
    assert found.quorum.leader_id == 3002
    assert [address.port for address in log.asked] == [3001, 3002]


SILENT = "no response in 20 ms"


@pytest.mark.parametrize(
    ("responses", "said"),
    [
        ({}, (SILENT, SILENT, SILENT)),
        (
            {3000: quorum(3000, 1, high_watermark=-1), 3001: NOT_LEADER},
            ("it has committed nothing in its epoch yet", str(NOT_LEADER), SILENT),
        ),
        (
            dict.fromkeys((3000, 3001, 3002), AuthenticationError("wrong password")),
            ("wrong password",) * 3,
        ),
    ],
    ids=["nobody answers", "one is elected", "the password is wrong"],
)
async def test_without_a_commit_in_its_epoch_there_is_no_leader(
    gateway: KafkaGateway,
    monkeypatch: pytest.MonkeyPatch,
    responses: Mapping[int, Any],
    said: tuple[str, ...],
) -> None:
    """Elected is not yet in service, and a step that finds no leader says why."""
    assert await observe(gateway, responses, monkeypatch) is None
    assert gateway.problem is None
    with pytest.raises(StepError) as failed:
        await gateway.apply(ElectPreferredLeaders(reason="r"))
    reported = "; ".join(f"{CONTROLLERS[port]}: {text}" for port, text in zip(CONTROLLERS, said, strict=True))
    assert str(failed.value) == f"r: no controller answers as the leader of the quorum ({reported})"


async def test_a_step_waits_for_the_leader_that_is_being_elected(
    gateway: KafkaGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "LEADER_WAIT_S", HANG_S)
    assert await observe(gateway, {3000: quorum(3000, 1)}, monkeypatch) is not None
    asked: Counter[int] = Counter()

    def client(_: object, address: Address) -> Client:
        asked[address.port] += 1
        return Client(quorum(address.port, 2) if asked[address.port] > 1 else NOT_LEADER)

    monkeypatch.setattr(gateway._clients, "client", client)
    await gateway.apply(ElectPreferredLeaders(reason="r"))
    assert min(asked.values()) > 1


async def test_a_log_that_can_not_be_read_is_a_problem(
    gateway: KafkaGateway, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.failure = RequestTimeoutError("not caught up")
    assert await observe(gateway, {3000: quorum(3000, 1)}, monkeypatch) is None
    assert gateway.problem == "the metadata log can't be read: not caught up"
    with pytest.raises(StepError, match="not caught up"):
        await gateway.apply(ElectPreferredLeaders(reason="r"))
    log.failure = None
    assert await observe(gateway, {3000: quorum(3000, 1)}, monkeypatch) is not None
    assert gateway.problem is None


async def test_another_history_is_read_from_its_beginning(
    gateway: KafkaGateway, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await observe(gateway, {3000: quorum(3000, 9)}, monkeypatch) is not None
    log.epoch = 9
    made: list[object] = []
    monkeypatch.setattr(kafka, "LiveImage", lambda config: made.append(config) or log)
    assert await observe(gateway, {3000: quorum(3000, 2)}, monkeypatch) is not None
    assert len(made) == 1


async def test_a_broker_speaks_for_itself(gateway: KafkaGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    led = {3000: quorum(3000, 1)}
    found = await observe(gateway, {**led, 9092: brokers(False, False)}, monkeypatch)
    assert found is not None
    assert found.answering == {0}
    fenced = brokers(False, True)
    found = await observe(gateway, {**led, 9092: fenced, 9093: fenced}, monkeypatch)
    assert found is not None
    assert found.answering == {0}


async def test_partitions_are_counted_when_they_changed(
    gateway: KafkaGateway, metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    count = facts.count_partitions
    monkeypatch.setattr(facts, "count_partitions", lambda *given: counted.append(given) or count(*given))
    metadata.broker(1)
    for _ in range(2):
        found = await observe(gateway, {3000: quorum(3000, 1)}, monkeypatch)
        assert found is not None
    assert (len(counted), found.loads[1].replicas) == (1, 0)
    monkeypatch.setattr(kafka, "PARTITIONS_COUNTED_IN_PLACE_MAX", 0)
    metadata.topic("a", ((1,), (1,)))
    found = await observe(gateway, {3000: quorum(3000, 1)}, monkeypatch)
    assert found is not None
    assert (len(counted), found.loads[1].replicas) == (2, 1)
    metadata.config(2, "a", {"min.insync.replicas": "2"})
    await observe(gateway, {3000: quorum(3000, 1)}, monkeypatch)
    assert len(counted) == 3
