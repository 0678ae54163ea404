"""Collects the facts for a diagnosis, without changing anything.

No response of Kafka 4.3.1 has the feature levels of registrations. There are two ways to find them: asking the
active controller to validate a level (UpdateFeatures with validateOnly), which refuses with the name and range of
one node at a time; and reading the metadata log as an observer, which only controllers allow. The first is always
used, the second with bootstrap controllers. Partitions are those in the log, or those that brokers describe. What
could not be examined is in `Examination.unexamined`, with the reason.
"""

import asyncio
import time
from collections.abc import Awaitable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from quorate_protocol.image import BrokerRegistration, ControllerRegistration, MetadataImage
from quorate_protocol.image.views import MIN_INSYNC_REPLICAS
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.plain_data import dataclass

from quorate_admin.client import AdminClient
from quorate_admin.config import Address, AdminConfig
from quorate_admin.diagnosis import (
    FETCH_SILENCE_MS_MAX,
    Examination,
    FeatureOutlook,
    LeaderView,
    LevelProbe,
    NodeKind,
    PartitionFacts,
    PartitionTally,
    QuorumSearch,
    RegisteredNode,
    Subject,
    judge,
    partitions_of_image,
    probe_outlook,
    registered_outlooks,
)
from quorate_admin.errors import AdminError, ErrorCode, ServerError, UnsupportedByServerError
from quorate_admin.leadership import find_leader
from quorate_admin.types.cluster import (
    ClusterDescription,
    FeatureDescription,
    FeatureUpdate,
    NodeApiVersions,
    QuorumDescription,
)
from quorate_admin.types.configs import ConfigResource
from quorate_admin.types.topics import PartitionDescription, TopicDescription

if TYPE_CHECKING:
    from quorate_admin.metadata_log import LiveImage


TIMEOUT_MS = 10_000
"""The timeout of requests to the whole cluster, which no node answers while there is no leader."""
LEADER_TIMEOUT_MS = 5_000
"""The timeout of the description of the quorum: brokers return none without a leader."""
NODE_TIMEOUT_MS = 3_000
"""The timeout of requests to a single node, which may be down."""
NODES_NAMED_MAX = 10
TOPICS_PER_REQUEST = 500
PARTITIONS_TIMEOUT_MS = 30_000
"""The time after which the remaining topics are left out."""
TOPICS_TIMEOUT_MS = 10_000
"""The timeout of requests for descriptions of topics."""
_STATIC_MIN_ISR = (
    "No dynamic config has min.insync.replicas of their topics. It may be in the brokers' files, which controllers "
    "do not have."
)


class ExaminedPartitions:
    """The partitions that were counted, and the reasons why others, or their configs, were not."""

    def __init__(self, registered: Collection[int]) -> None:
        self._tally = PartitionTally(registered)
        self.problem: str | None = None
        """Why not all partitions were counted."""
        self.min_isr_problem: str | None = None
        """Why `min.insync.replicas` of some topics is unknown."""

    @property
    def facts(self) -> PartitionFacts:
        """What was counted."""
        return self._tally.facts()

    def add(self, topic: TopicDescription, min_isr: int | None) -> None:
        """Count the partitions of a topic."""
        self._tally.add_topic()
        for partition in topic.partitions:
            self._tally.add(
                topic.name,
                partition.partition,
                replicas=partition.replicas,
                isr=partition.isr,
                has_leader=partition.leader is not None,
                min_isr=min_isr,
            )


async def examine(admin: AdminClient, config: AdminConfig) -> Examination:
    """Collect the facts of a cluster. `config` is that of the client.

    Raises:
        AdminError: no node answers.
    """
    if config.is_to_controllers:
        search = await find_leader(config)
        if search.is_led is False:
            return _leaderless(search)
        return await _examine_led(admin, config)
    # A client finds no broker to ask if none is registered and unfenced, though those that it was given answer.
    async with AdminClient(config, follow_advertised=False) as direct:
        if await _lists_no_broker(direct):
            return await _examine_led(direct, config)
    return await _examine_led(admin, config)


async def _lists_no_broker(direct: AdminClient) -> bool:
    try:
        return not (await direct.describe_cluster(timeout_ms=NODE_TIMEOUT_MS)).nodes
    except AdminError:
        return False


async def _examine_led(admin: AdminClient, config: AdminConfig) -> Examination:
    facts, described_at_s = await _examine(admin, config)
    return await _with_settled_leader(admin, facts, described_at_s)


async def _examine(admin: AdminClient, config: AdminConfig) -> tuple[Examination, float]:
    """The facts, and when the quorum was described, on the event loop's clock."""
    cluster = await admin.describe_cluster(
        include_fenced_brokers=not config.is_to_controllers, timeout_ms=TIMEOUT_MS
    )
    (quorum, quorum_error, described_at_s), responses, log, described = await asyncio.gather(
        _quorum(admin),
        _ask_nodes(admin, cluster),
        _read_log(config),
        _describe_partitions(admin, config, cluster),
    )
    features = _newest(responses.versions.values()) or await admin.describe_features(timeout_ms=TIMEOUT_MS)
    facts = Examination(
        cluster_id=cluster.cluster_id,
        quorum=quorum,
        quorum_problem=None if quorum_error is None else str(quorum_error),
        features=features,
        controllers=_listed(cluster, NodeKind.CONTROLLER) if config.is_to_controllers else None,
        brokers=None if config.is_to_controllers else _listed(cluster, NodeKind.BROKER),
        unreachable=responses.reasons,
        misrouted=responses.misrouted,
        answering=frozenset(responses.answering),
        unidentified=responses.unidentified,
    )
    facts = _with_partitions(facts, described) if log is None else _with_log(facts, log)
    facts = replace(facts, unexamined={**facts.unexamined, **_unexamined(quorum_error, responses)})
    if quorum is None:
        return facts, described_at_s  # without a leader no level can be validated
    found = await _outlooks(admin, facts, _supported(responses.versions.values(), features))
    problems = dict.fromkeys(str(error) for error in found if isinstance(error, AdminError))
    facts = replace(
        facts,
        outlooks=tuple(outlook for outlook in found if isinstance(outlook, FeatureOutlook)),
        outlook_problem="; ".join(problems) or None,
    )
    return facts, described_at_s


def _leaderless(search: QuorumSearch) -> Examination:
    """The facts without a leader: what each controller reported by itself."""
    reason = "there is no leader"
    return Examination(
        cluster_id=search.cluster_id,
        features=search.features,
        search=search,
        unexamined={Subject.REGISTRATIONS: reason, Subject.PARTITIONS: reason},
    )


def _with_log(facts: Examination, log: "LiveImage | AdminError") -> Examination:
    """Add what the metadata log has: registrations and partitions."""
    if isinstance(log, AdminError):
        reason = str(log)
        return replace(facts, unexamined={Subject.REGISTRATIONS: reason, Subject.PARTITIONS: reason})
    partitions = partitions_of_image(log.image)
    return replace(
        facts,
        is_log_read=True,
        leader_since_ms=None if facts.quorum is None else log.leader_since_ms(facts.quorum.leader_epoch),
        controllers=controllers_of(log.image),
        brokers=brokers_of(log.image),
        partitions=partitions,
        unexamined={Subject.MIN_INSYNC_REPLICAS: _STATIC_MIN_ISR} if partitions.min_isr_unknown else {},
    )


def _with_partitions(facts: Examination, described: ExaminedPartitions) -> Examination:
    """Add what brokers describe."""
    partitions = described.facts
    unexamined = {Subject.REGISTRATIONS: "brokers do not return registrations of controllers"}
    if described.problem is not None:
        unexamined[Subject.PARTITIONS] = described.problem
    if partitions.min_isr_unknown:
        unexamined[Subject.MIN_INSYNC_REPLICAS] = described.min_isr_problem or "the brokers did not return it"
    is_known = described.problem is None or partitions.topics > 0
    return replace(facts, partitions=partitions if is_known else None, unexamined=unexamined)


def _unexamined(quorum_error: AdminError | None, responses: "_NodeResponses") -> dict[Subject, str]:
    """The quorum and addresses, if nodes did not return them to this client."""
    found = {}
    if isinstance(quorum_error, UnsupportedByServerError) or (
        isinstance(quorum_error, ServerError) and quorum_error.error_code in _NO_REFUSALS
    ):
        found[Subject.QUORUM] = str(quorum_error)
    if responses.unidentified:
        named = ", ".join(map(str, sorted(responses.unidentified)[:NODES_NAMED_MAX]))
        found[Subject.ADDRESSES] = (
            f"These nodes answer, and do not return their configs to this client: {named}."
        )
    return found


async def _with_settled_leader(admin: AdminClient, facts: Examination, described_at_s: float) -> Examination:
    """Describe the quorum again, after a while, if a node that matters has not yet fetched from a new leader."""
    if facts.quorum is None:
        return facts
    judged = judge(facts)
    blockers = (blocker.node_id for outlook in facts.outlooks for blocker in outlook.blockers)
    unregistered = () if facts.partitions is None else facts.partitions.unregistered
    matter = (*(facts.controllers or ()), *blockers, *unregistered)
    if all(judged.follows(node_id) is not None for node_id in matter):
        return facts
    since_ms = LeaderView.of(facts.quorum, facts.leader_since_ms).since_ms
    due_s = described_at_s + (FETCH_SILENCE_MS_MAX + 1) / 1000
    await asyncio.sleep(max(0, due_s - asyncio.get_running_loop().time()))
    quorum, _, _ = await _quorum(admin)
    if quorum is None or quorum.leader_epoch != facts.quorum.leader_epoch:
        return facts
    return replace(facts, quorum=quorum, leader_since_ms=since_ms)


@dataclass(slots=True)
class _NodeResponses:
    """The responses of single nodes, the reasons why others did not answer, and which node each address leads to."""

    versions: dict[int, NodeApiVersions] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    misrouted: dict[int, str] = field(default_factory=dict)
    answering: set[int] = field(default_factory=set)

    @property
    def unidentified(self) -> frozenset[int]:
        """The nodes at whose addresses a server answers without an id."""
        return frozenset(self.versions) - self.answering - frozenset(self.misrouted)


async def _quorum(admin: AdminClient) -> tuple[QuorumDescription | None, AdminError | None, float]:
    """The quorum or the reason why it is unknown, and when, on the event loop's clock."""
    try:
        quorum, problem = await admin.describe_metadata_quorum(timeout_ms=LEADER_TIMEOUT_MS), None
    except AdminError as error:
        quorum, problem = None, error
    return quorum, problem, asyncio.get_running_loop().time()


async def _ask_nodes(admin: AdminClient, cluster: ClusterDescription) -> _NodeResponses:
    responses = _NodeResponses()

    async def ask(node_id: int) -> None:
        try:
            responses.versions[node_id] = await admin.node_api_versions(node_id, timeout_ms=NODE_TIMEOUT_MS)
        except AdminError as error:
            responses.reasons[node_id] = str(error)

    async def recognize(node_id: int, address: Address) -> None:
        is_there = await admin.is_node_at(address, node_id, cluster.cluster_id, timeout_ms=NODE_TIMEOUT_MS)
        if is_there is False:
            responses.misrouted[node_id] = str(address)
        elif is_there:
            responses.answering.add(node_id)

    await asyncio.gather(
        *(ask(node.node_id) for node in cluster.nodes),
        *(recognize(node.node_id, Address(node.host, node.port)) for node in cluster.nodes),
    )
    return responses


async def _describe_partitions(
    admin: AdminClient, config: AdminConfig, cluster: ClusterDescription
) -> ExaminedPartitions:
    """What brokers describe; nothing with bootstrap controllers, which have the log."""
    registered = frozenset(node.node_id for node in cluster.nodes)
    if config.is_to_controllers:
        return ExaminedPartitions(registered)
    return await _examine_partitions(admin, registered)


async def _read_log(config: AdminConfig) -> "LiveImage | AdminError | None":
    """The metadata image, closed, or why it could not be read; None with bootstrap servers, which do not have it."""
    if not config.is_to_controllers:
        return None
    from quorate_admin.metadata_log import LiveImage  # noqa: PLC0415 - with brokers, it is not needed

    try:
        async with LiveImage(config) as live:
            await live.refresh(timeout_ms=TIMEOUT_MS)
            return live
    except AdminError as error:
        return error  # validating levels still works


async def _outlooks(
    admin: AdminClient, facts: Examination, supported: Mapping[str, int]
) -> list[FeatureOutlook | AdminError]:
    """The outlook of each feature, or an AdminError."""
    finalized = {} if facts.features is None else facts.features.finalized
    if facts.is_log_read and facts.quorum is not None:
        nodes = (*(facts.brokers or {}).values(), *(facts.controllers or {}).values())
        voters = [voter.node_id for voter in facts.quorum.voters]
        outlooks = registered_outlooks(finalized, supported, nodes, voters)
        probes = [_confirmed(admin, outlook) for outlook in outlooks]
    else:
        probes = [
            _probed(admin, probe_outlook(feature, finalized.get(feature, 0), target))
            for feature, target in sorted(supported.items())
        ]
    return await asyncio.gather(*map(_or_error, probes))


async def _or_error(probe: Awaitable[FeatureOutlook]) -> FeatureOutlook | AdminError:
    """Return an error instead of raising it, so that it does not hide the outlooks of other features."""
    try:
        return await probe
    except AdminError as error:
        return error


async def _confirmed(admin: AdminClient, outlook: FeatureOutlook) -> FeatureOutlook:
    """The outlook, after the active controller validated its highest level."""
    if outlook.reachable <= outlook.finalized:
        return outlook
    refusal = await _refusal(admin, LevelProbe(feature=outlook.feature, level=outlook.reachable))
    if refusal is None:
        return outlook
    return replace(outlook, reachable=outlook.finalized, obstacle=outlook.obstacle or refusal)


async def _probed(
    admin: AdminClient, probing: Generator[LevelProbe, str | None, FeatureOutlook]
) -> FeatureOutlook:
    response: str | None = None
    try:
        probe = next(probing)
        while True:
            response = await _refusal(admin, probe)
            probe = probing.send(response)
    except StopIteration as end:
        outlook: FeatureOutlook = end.value
        return outlook


async def _refusal(admin: AdminClient, probe: LevelProbe) -> str | None:
    """The reason why a level would be refused; None if it would be accepted. Raises AdminError if unknown."""
    try:
        await admin.update_features(
            {probe.feature: FeatureUpdate(max_level=probe.level)}, validate_only=True, timeout_ms=TIMEOUT_MS
        )
    except ServerError as error:
        if error.error_code in _NO_REFUSALS:
            raise
        return error.message or str(error)
    return None


_NO_REFUSALS = frozenset((ErrorCode.cluster_authorization_failed, ErrorCode.unsupported_version))
"""Errors that are not about the level."""


def _newest(responses: Iterable[NodeApiVersions]) -> FeatureDescription | None:
    """The feature levels from the node that has read the log furthest."""
    newest = max(responses, key=lambda response: response.finalized_features_epoch, default=None)
    return None if newest is None else newest.features


def _supported(responses: Iterable[NodeApiVersions], features: FeatureDescription) -> dict[str, int]:
    """The highest level of each feature that any node supports."""
    highest = {name: high for name, (_, high) in features.supported.items()}
    for response in responses:
        for name, (_, high) in response.supported_features.items():
            highest[name] = max(high, highest.get(name, 0))
    return highest


def _listed(cluster: ClusterDescription, kind: NodeKind) -> dict[int, RegisteredNode]:
    return {
        node.node_id: RegisteredNode(
            kind=kind, node_id=node.node_id, endpoints=((node.host, node.port),), fenced=node.fenced
        )
        for node in cluster.nodes
    }


def controllers_of(image: MetadataImage) -> dict[int, RegisteredNode]:
    """Return the registered controllers by node id."""
    return {
        node_id: _registered(NodeKind.CONTROLLER, node_id, registration)
        for node_id, registration in image.cluster.controllers.items()
    }


def brokers_of(image: MetadataImage) -> dict[int, RegisteredNode]:
    """Return the registered brokers by node id."""
    return {
        node_id: _registered(NodeKind.BROKER, node_id, registration, fenced=registration.fenced)
        for node_id, registration in image.cluster.brokers.items()
    }


def _registered(
    kind: NodeKind,
    node_id: int,
    registration: BrokerRegistration | ControllerRegistration,
    *,
    fenced: bool = False,
) -> RegisteredNode:
    return RegisteredNode(
        kind=kind,
        node_id=node_id,
        endpoints=tuple((listener.host, listener.port) for listener in registration.listeners.values()),
        features=dict(registration.supported_features),
        fenced=fenced,
    )


async def _examine_partitions(admin: AdminClient, registered: Collection[int]) -> ExaminedPartitions:
    """Count the partitions that brokers describe to this client. `registered` are the ids of all brokers.

    Topics that the client may not describe are not listed to it. Errors are in the result.
    """
    examined = ExaminedPartitions(registered)
    ends_at = time.monotonic() + PARTITIONS_TIMEOUT_MS / 1000

    def left_ms() -> int:
        return min(TOPICS_TIMEOUT_MS, max(1, round((ends_at - time.monotonic()) * 1000)))

    try:
        async with asyncio.timeout(PARTITIONS_TIMEOUT_MS / 1000):
            names = sorted(await admin.list_topics(list_internal=True, timeout_ms=left_ms()))
            for at in range(0, len(names), TOPICS_PER_REQUEST):
                await _examine_topics(admin, names[at : at + TOPICS_PER_REQUEST], examined, left_ms())
    except AdminError as error:
        examined.problem = str(error)
    except TimeoutError:
        examined.problem = f"the brokers did not describe the other topics in {PARTITIONS_TIMEOUT_MS} ms"
    return examined


async def _examine_topics(
    admin: AdminClient, names: Sequence[str], examined: ExaminedPartitions, timeout_ms: int
) -> None:
    described = await admin.describe_topics(names, timeout_ms=timeout_ms)
    for error in described.errors.values():
        if error.error_code is not ErrorCode.unknown_topic_or_partition:  # deleted since it was listed
            examined.problem = str(error)
    lacking = [
        topic.name for topic in described.values.values() if any(map(_lacks_replicas, topic.partitions))
    ]
    min_isr = await _min_isr(admin, lacking, examined, timeout_ms) if lacking else {}
    for topic in described.values.values():
        examined.add(topic, min_isr.get(topic.name))


def _lacks_replicas(partition: PartitionDescription) -> bool:
    return partition.leader is not None and len(partition.isr) < len(partition.replicas)


async def _min_isr(
    admin: AdminClient, names: Sequence[str], examined: ExaminedPartitions, timeout_ms: int
) -> Mapping[str, int]:
    """`min.insync.replicas` by topic, of those that brokers return."""
    resources = {name: ConfigResource(ConfigResourceType.TOPIC, name) for name in names}
    try:
        configs = await admin.describe_configs(resources.values(), timeout_ms=timeout_ms)
    except AdminError as refused:
        examined.min_isr_problem = str(refused)
        return {}
    for error in configs.errors.values():
        examined.min_isr_problem = str(error)
    found = {
        name: next(
            (entry.value for entry in configs.values.get(resource, ()) if entry.name == MIN_INSYNC_REPLICAS),
            None,
        )
        for name, resource in resources.items()
    }
    return {name: int(value) for name, value in found.items() if value is not None and value.isdecimal()}
