"""The gateway to Kafka: observes controllers and brokers, and applies the steps of Kafka's RPCs."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError
from quorate_admin.metadata_log import LiveImage
from quorate_admin.types.cluster import QuorumDescription
from quorate_admin.types.configs import ConfigEntry, ConfigResource
from quorate_protocol.features import KRAFT_VERSION
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.views import MIN_INSYNC_REPLICAS, min_insync_replicas
from quorate_protocol.kafka.enums import ConfigResourceType

from quorate_operator import clock
from quorate_operator.gateway import facts
from quorate_operator.gateway.actions import Leader, NodeAction, perform, perform_at_node
from quorate_operator.gateway.facts import Counts, LogDirs
from quorate_operator.gateway.node_clients import NodeClients, SecurityOf, admin_address
from quorate_operator.gateway.probes import probe, resolve
from quorate_operator.placement.directories import Directories
from quorate_operator.planning.cluster import Address, KafkaFacts, Reached, Role
from quorate_operator.planning.steps import KafkaAction, StepError

logger = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 3_000
"""Time limit for the response of one node, as for a probe: a node that takes longer is not in service."""
IMAGE_TIMEOUT_MS = 10_000
"""Time limit for the image to catch up; the next observation continues from there."""
LOG_DIRS_TIMEOUT_MS = 5_000
LOG_DIRS_AGE_MS_MAX = 10_000
STATIC_CONFIG_AGE_MS_MAX = 60_000
PARTITIONS_COUNTED_IN_PLACE_MAX = 20_000
"""Counting more partitions would delay the event loop, so a thread counts them."""
ACTION_ATTEMPTS_MAX = 3
LEADER_WAIT_S = 5.0
"""How long a step waits for a leader: the step before it may have removed the former one."""
LEADER_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Led:
    """The quorum as its leader described it, with kraft.version and cluster id."""

    described: QuorumDescription
    at_ms: int
    kraft_version: int
    cluster_id: str
    address: Address


class KafkaGateway:
    """Observes the quorum and brokers of one cluster, and applies the steps that Kafka does. Close it.

    It keeps its connections, and one metadata image that it follows as an observer. If nothing has changed, observing
    costs a few small requests to each node. Calls may overlap.
    """

    def __init__(self, security_of: SecurityOf = lambda _: None) -> None:
        self._security_of = security_of
        self._clients = NodeClients(security_of)
        self._controllers: Mapping[int, Address] = {}
        self._brokers: Mapping[int, Address] = {}
        self._live: LiveImage | None = None
        self._live_of = ""
        self._live_at: tuple[int, Address] | None = None
        self._observing = asyncio.Lock()
        self._counted: tuple[object, int, object, Counts] | None = None
        self._log_dirs: dict[int, LogDirs] = {}
        self._directories: dict[int, Directories] = {}
        self._log_dirs_at_ms = 0
        self._static_min_insync = 1
        self._static_min_insync_at_ms = 0
        self._problem: str | None = None
        self._reasons: dict[Address, str] = {}
        """Why each controller that was asked last does not lead."""

    @property
    def problem(self) -> str | None:
        return self._problem

    async def observe(
        self,
        controllers: Mapping[int, Address],
        brokers: Mapping[int, Address],
        draining: frozenset[int],
        loggers: Mapping[int, frozenset[str]],
        directories_of: frozenset[int] = frozenset(),
    ) -> KafkaFacts | None:
        """Return what quorum and brokers report; None without a leader, or with a `problem`.

        Partitions are reported of `draining` brokers alone, levels of the `loggers` that are named, by node, and log
        directories of the brokers `directories_of`.
        """
        async with self._observing:
            self._controllers, self._brokers = dict(controllers), dict(brokers)
            await self._clients.retain({Role.CONTROLLER: controllers.values(), Role.BROKER: brokers.values()})
            led, answering = await asyncio.gather(self._find_leader(), self._answering(brokers))
            if led is None:
                self._problem = None
                return None
            (log_dirs, directories), log_levels, _ = await asyncio.gather(
                self._describe_log_dirs(
                    {
                        broker_id: at
                        for broker_id, at in brokers.items()
                        if draining or broker_id in directories_of
                    }
                ),
                self._describe_log_levels(loggers),
                self._update_min_insync(brokers, answering),
            )
            live = await self._followed(led)
            if live is None:
                return None
            image = live.image
            counts = await self._count(image)
            return KafkaFacts(
                quorum=facts.observed_quorum(
                    led.described,
                    led.kraft_version,
                    image.cluster.brokers,
                    led.at_ms,
                    live.leader_since_ms(led.described.leader_epoch),
                ),
                cluster_id=led.cluster_id,
                registrations=facts.registrations(image),
                features={**image.features, KRAFT_VERSION: led.kraft_version},
                partitions=facts.partitions_to_watch(image, draining, log_dirs),
                loads=facts.loads(image, counts, log_dirs, directories),
                offline_partitions=len(image.index.leaderless),
                log_levels=log_levels,
                answering=answering,
                directories={
                    broker_id: directories[broker_id] for broker_id in directories_of & directories.keys()
                },
                cordoned=facts.cordoned_directories(image),
                replication_rates=facts.replication_rates(image),
                throttled=facts.throttled_replicas(image),
            )

    async def probe(
        self, addresses: frozenset[Address], node_ids: frozenset[int] = frozenset()
    ) -> Mapping[Address, Reached]:
        return await probe(addresses, node_ids, self._security_of)

    async def resolve(self, addresses: frozenset[Address]) -> Mapping[Address, Reached]:
        """See `probes.resolve`."""
        return await resolve(addresses)

    async def apply(self, action: KafkaAction) -> None:
        async with self._observing:
            if isinstance(action, NodeAction):
                await perform_at_node(action, self._client_of(action.node_id))
                self._log_dirs_at_ms = 0
                return
            for attempt in range(1, ACTION_ATTEMPTS_MAX + 1):
                led = await self._await_leader()
                if led is None:
                    reasons = "; ".join(f"{address}: {text}" for address, text in self._reasons.items())
                    raise StepError(
                        f"{action.reason}: no controller answers as the leader of the quorum ({reasons})"
                    )
                live = await self._followed(led)
                if live is None:
                    raise StepError(f"{action.reason}: {self._problem}")
                client = self._clients.client(Role.CONTROLLER, led.address)
                leader = Leader(client=client, cluster_id=led.cluster_id, image=live.image)
                # Another leader may have taken over since, also because of the action itself.
                if await perform(action, leader, is_last_attempt=attempt == ACTION_ATTEMPTS_MAX):
                    return

    async def close(self) -> None:
        live, self._live = self._live, None
        await self._clients.close()
        if live is not None:
            await live.close()

    # The quorum

    async def _find_leader(self) -> _Led | None:
        addresses = list(self._controllers.values())
        # Each controller has its own client, so that one that hangs does not delay the others.
        responses = await asyncio.gather(*map(self._as_led_by, addresses))
        led = [response for response in responses if isinstance(response, _Led)]
        self._reasons = {
            address: response
            for address, response in zip(addresses, responses, strict=True)
            if isinstance(response, str)
        }
        # A former leader that was suspended may still claim to lead.
        return max(led, key=lambda response: response.described.leader_epoch, default=None)

    async def _await_leader(self) -> _Led | None:
        """Return the quorum as its leader describes it; None without a leader for LEADER_WAIT_S."""
        try:
            async with asyncio.timeout(LEADER_WAIT_S):
                while (led := await self._find_leader()) is None:  # noqa: ASYNC110 - no node announces a leader
                    await asyncio.sleep(LEADER_POLL_S)
                return led
        except TimeoutError:
            return None

    async def _as_led_by(self, address: Address) -> _Led | str:
        """Return the quorum if the controller at this address leads it, with a commit in its epoch; else why not."""
        client = self._clients.client(Role.CONTROLLER, address)
        try:
            async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
                described = await client.describe_metadata_quorum()
                at_ms = clock.now_ms()
                features = await client.describe_features()
                cluster = await client.describe_cluster()
        except (AdminError, TimeoutError) as error:
            return str(error) or f"no response in {ASK_TIMEOUT_MS} ms"
        if described.high_watermark < 0:
            return "it has committed nothing in its epoch yet"
        return _Led(
            described=described,
            at_ms=at_ms,
            kraft_version=features.finalized.get(KRAFT_VERSION, 0),
            cluster_id=cluster.cluster_id,
            address=address,
        )

    # The metadata image

    async def _followed(self, led: _Led) -> LiveImage | None:
        """Return the image, caught up; None if the log can't be read, with the reason in `problem`."""
        live = await self._live_image(led)
        try:
            await live.refresh(timeout_ms=IMAGE_TIMEOUT_MS)
        except AdminError as error:
            problem = f"the metadata log can't be read: {error}"
            if problem != self._problem:
                logger.warning("metadata_log_unreadable: %s: %s", led.address, error)
            self._problem = problem
            return None
        self._problem = None
        return live

    async def _live_image(self, led: _Led) -> LiveImage:
        """Return the image, which follows this leader from now on."""
        leader_id = led.described.leader_id
        config = self._clients.config(Role.CONTROLLER, led.address)
        contacts = {node_id: admin_address(address) for node_id, address in self._controllers.items()}
        live = self._live
        # A cluster that was recreated, or restored from a backup, has another history.
        if live is not None and (self._live_of != led.cluster_id or live.epoch > led.described.leader_epoch):
            self._live = None
            await live.close()
        if self._live is None:
            self._live = LiveImage(config)
            self._live_of = led.cluster_id
        elif self._live_at != (leader_id, led.address):
            await self._live.redirect(config, contacts)
        self._live_at = (leader_id, led.address)
        return self._live

    async def _count(self, image: MetadataImage) -> Counts:
        general, own = min_insync_replicas(image, self._static_min_insync)
        active = frozenset(id_ for id_, broker in image.cluster.brokers.items() if broker.is_active)
        key = (general, own, active)
        index = image.index
        if self._counted is not None:
            counted_index, revision, counted_key, counts = self._counted
            if counted_index is index and revision == index.revision and counted_key == key:
                return counts
        if index.num_partitions > PARTITIONS_COUNTED_IN_PLACE_MAX:
            # The image does not change meanwhile: `_observing` is held.
            counts = await asyncio.to_thread(facts.count_partitions, image, general, own)
        else:
            counts = facts.count_partitions(image, general, own)
        self._counted = (index, index.revision, key, counts)
        return counts

    # Single nodes

    def _client_of(self, node_id: int) -> AdminClient | None:
        """Return a client of this node alone; None if the last observation found no such node."""
        if node_id in self._controllers:
            return self._clients.client(Role.CONTROLLER, self._controllers[node_id])
        if node_id in self._brokers:
            return self._clients.client(Role.BROKER, self._brokers[node_id])
        return None

    async def _describe_log_levels(
        self, loggers: Mapping[int, frozenset[str]]
    ) -> Mapping[int, Mapping[str, str]]:
        """Return the levels of the named loggers, of each node that answers."""
        responses = await asyncio.gather(*(self._log_levels_of(*logger) for logger in loggers.items()))
        return {
            node_id: response
            for node_id, response in zip(loggers, responses, strict=True)
            if response is not None
        }

    async def _log_levels_of(self, node_id: int, names: frozenset[str]) -> Mapping[str, str] | None:
        client = self._client_of(node_id)
        if client is None:
            return None
        levels = await _described(client, ConfigResource(ConfigResourceType.BROKER_LOGGER, str(node_id)))
        if levels is None:
            return None
        return {entry.name: entry.value for entry in levels if entry.name in names and entry.value}

    # The brokers

    async def _answering(self, brokers: Mapping[int, Address]) -> frozenset[int]:
        # Each broker is asked itself, because the others consider a dead broker unfenced until its session ends.
        responses = await asyncio.gather(*(self._is_unfenced(*broker) for broker in brokers.items()))
        return frozenset(broker for broker, response in zip(brokers, responses, strict=True) if response)

    async def _is_unfenced(self, broker_id: int, address: Address) -> bool:
        client = self._clients.client(Role.BROKER, address)
        try:
            async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
                cluster = await client.describe_cluster()
        except (AdminError, TimeoutError):
            return False
        return any(node.node_id == broker_id and not node.fenced for node in cluster.nodes)

    async def _describe_log_dirs(
        self, brokers: Mapping[int, Address]
    ) -> tuple[Mapping[int, LogDirs], Mapping[int, Directories]]:
        """Return the log directories of the brokers that answer, at most LOG_DIRS_AGE_MS_MAX old, in both forms."""
        if not brokers:
            return {}, {}
        now_ms = clock.now_ms()
        if now_ms - self._log_dirs_at_ms > LOG_DIRS_AGE_MS_MAX or not self._log_dirs.keys() >= brokers.keys():
            responses = await asyncio.gather(*(self._log_dirs_of(*broker) for broker in brokers.items()))
            self._log_dirs = {
                broker_id: response
                for broker_id, response in zip(brokers, responses, strict=True)
                if response is not None
            }
            self._directories = {
                broker_id: facts.observed_directories(own) for broker_id, own in self._log_dirs.items()
            }
            self._log_dirs_at_ms = now_ms
        return self._log_dirs, self._directories

    async def _log_dirs_of(self, broker_id: int, address: Address) -> LogDirs | None:
        client = self._clients.client(Role.BROKER, address)
        try:
            async with asyncio.timeout(LOG_DIRS_TIMEOUT_MS / 1000):
                described = await client.describe_log_dirs([broker_id])
            return described[broker_id]
        except (AdminError, TimeoutError):
            return None

    async def _update_min_insync(self, brokers: Mapping[int, Address], answering: frozenset[int]) -> None:
        """Read the static `min.insync.replicas` of a broker each minute: the metadata has only dynamic configs."""
        now_ms = clock.now_ms()
        if not answering or now_ms - self._static_min_insync_at_ms <= STATIC_CONFIG_AGE_MS_MAX:
            return
        broker_id = min(answering)
        client = self._clients.client(Role.BROKER, brokers[broker_id])
        value = await _broker_config(client, broker_id, MIN_INSYNC_REPLICAS)
        if value is not None:
            self._static_min_insync = int(value)
            self._static_min_insync_at_ms = now_ms


async def _broker_config(client: AdminClient, broker_id: int, name: str) -> str | None:
    entries = await _described(client, ConfigResource(ConfigResourceType.BROKER, str(broker_id)))
    return next((entry.value for entry in entries or () if entry.name == name), None)


async def _described(client: AdminClient, resource: ConfigResource) -> Sequence[ConfigEntry] | None:
    """Return the configs of a node; None if it does not answer in time."""
    try:
        async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
            described = await client.describe_configs([resource])
        return described[resource]
    except (AdminError, TimeoutError):
        return None
