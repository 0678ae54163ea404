"""Observing a cluster's metadata log: the whole metadata image, live, from its controllers.

No release of Kafka offers this. Controllers accept a Fetch from a client that is not a replica as they accept a
consumer's: the client is neither a voter nor listed as an observer, and nothing waits for it. With an authorizer it
needs CLUSTER_ACTION on the cluster, as any Fetch at a controller's listener does.

    image = await load_live_image(AdminConfig.from_properties({}, bootstrap_controllers=["localhost:9093"]))
    for controller_id, registration in image.cluster.controllers.items():
        print(controller_id, registration.supported_features)

`LiveImage` keeps an image that can be refreshed, and `MetadataFeed` returns each committed batch.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import Any, Self

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.image import MetadataImage, Provenance
from quorate_protocol.image.loading import load_checkpoint, replay_log_batch
from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.observer import (
    BEGINNING,
    Ask,
    Committed,
    Endpoint,
    Event,
    Observer,
    ObserverConfig,
    Position,
    RefusedError,
    SnapshotAbandoned,
    SnapshotBegun,
    SnapshotChunk,
    SnapshotLoaded,
)

from quorate_admin.config import Address, AdminConfig
from quorate_admin.errors import (
    AdminError,
    AuthenticationError,
    ConfigError,
    MismatchedEndpointError,
    RequestTimeoutError,
    ServerError,
    UnreachableError,
    UnsupportedByServerError,
    UnsupportedEndpointError,
)
from quorate_admin.network.connection import Connection

_MEMORY_BYTES_MAX = 8 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
WAIT_MS = 500
"""How long a leader without a known high watermark may hold a request."""


class ObservingError(AdminError):
    """The leader sent data that can't be read, or that contradicts earlier data; the message says which."""


class MetadataFeed:
    """The events of a cluster's metadata log from a position on. Close it.

    Another feed can continue from `observer.position`.
    """

    def __init__(
        self,
        config: AdminConfig,
        *,
        position: Position = BEGINNING,
        observer_config: ObserverConfig | None = None,
    ) -> None:
        if not config.is_to_controllers:
            raise UnsupportedEndpointError(
                "only controllers serve the metadata log: give bootstrap.controllers instead of bootstrap.servers"
            )
        self._config = config
        endpoints = tuple(Endpoint(address.host, address.port) for address in config.bootstrap_controllers)
        self.observer = Observer(endpoints, observer_config or ObserverConfig(), position)
        self.contacts: Mapping[int, Address] = {}
        """The addresses of leaders by node id, where they differ from the advertised ones."""
        self.failures: dict[str, str] = {}
        """The reason for each address whose last request failed; empty after a successful request."""
        self._connection: Connection | None = None
        self._has_response = False
        """Whether a controller has responded."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def exchange(self, max_wait_ms: int) -> tuple[Event, ...]:
        """Send one request, and return the events of its response in order; no events if it failed.

        `max_wait_ms` is how long the leader may wait for new records. Call this repeatedly; it waits between attempts
        as needed.

        Raises:
            ServerError, AuthenticationError, ConfigError, UnsupportedByServerError, ObservingError: a retry would
                fail too.
            MismatchedEndpointError: a broker is at the address, and no controller has answered so far.
        """
        ask = self.observer.next_ask(max_wait_ms)
        if ask.delay_ms:
            await asyncio.sleep(ask.delay_ms / 1000)
        address = self._address_of(ask.endpoint)
        try:
            response = await self._request(address, ask, max_wait_ms)
        except (AuthenticationError, ConfigError, UnsupportedByServerError):
            raise
        except AdminError as error:
            # Later a broker may get an address that was a controller's: then other controllers are asked.
            if isinstance(error, MismatchedEndpointError) and not self._has_response:
                raise
            events = self.observer.failed(str(error))
        else:
            events = self._received(response)
            self._has_response = True
        failure = self.observer.last_failure
        if failure is None:
            self.failures.clear()
        else:
            self.failures[str(address)] = failure.partition(": ")[2]
        return events

    def _received(self, response: Any) -> tuple[Event, ...]:
        try:
            return self.observer.receive(response)
        except RefusedError as error:
            needs = error.error_code is ErrorCode.cluster_authorization_failed
            hint = ": observing requires CLUSTER_ACTION on the cluster" if needs else ""
            raise ServerError(error.error_code, f"{error.message}{hint}") from error
        except ProtocolError as error:
            raise ObservingError(error.message) from error

    def _address_of(self, endpoint: Endpoint) -> Address:
        address = Address(endpoint.host, endpoint.port)
        if address in self._config.bootstrap_controllers:
            return address
        return self.contacts.get(self.observer.leader_id, address)

    async def _request(self, address: Address, ask: Ask, max_wait_ms: int) -> Any:
        connection = self._connection
        if connection is None or not connection.is_open or connection.address != address:
            await self.close()
            connection = self._connection = await Connection.open(
                address,
                client_id=self._config.client_id,
                timeout_ms=self._config.request_timeout_ms,
                setup_timeout_ms=self._config.socket_connection_setup_timeout_ms,
                security=self._config.security,
            )
            if not connection.supports(ApiKey.FETCH_SNAPSHOT):
                raise MismatchedEndpointError(
                    f"{address} is a broker, and only controllers serve the metadata log: "
                    "use controllers as bootstrap controllers (--bootstrap-controller)"
                )
        return await connection.request(ask.request, self._config.request_timeout_ms + max_wait_ms)


class ImageFollower:
    """Applies events to `image`, in place. Close it."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.epoch_seen = Provenance(end_offset=0, epoch=-1, timestamp_ms=0)
        """The oldest known record of the latest leader epoch: the first one, unless a snapshot replaces it."""
        self._snapshot: SpooledTemporaryFile[bytes] | None = None

    def close(self) -> None:
        """Discard the snapshot that is being fetched."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()

    def apply(self, event: Event) -> None:
        """Apply an event to the image.

        Raises:
            ProtocolError: records or a snapshot can't be read.
            OSError: the temporary file of a snapshot can't be written.
        """
        if isinstance(event, Committed):
            for batch in event.batches:
                replay_log_batch(self.image, batch)
                self._note_epoch()
            self.image.commit(event.position.offset)
        elif isinstance(event, SnapshotBegun):
            self.close()
            # Large snapshots go to disk: they would be in memory twice, as bytes and as an image.
            self._snapshot = SpooledTemporaryFile(max_size=_MEMORY_BYTES_MAX)  # noqa: SIM115 - outlives this call
        elif isinstance(event, SnapshotChunk):
            assert self._snapshot is not None
            self._snapshot.write(event.data)
        elif isinstance(event, SnapshotAbandoned):
            self.close()
        elif isinstance(event, SnapshotLoaded):
            self._restore(event)

    def _restore(self, event: SnapshotLoaded) -> None:
        assert self._snapshot is not None
        try:
            self._snapshot.seek(0)
            offset, epoch = event.position
            chunks = iter(partial(self._snapshot.read, _CHUNK_BYTES), b"")
            load_checkpoint(self.image, chunks, end_offset=offset, epoch=epoch)
            self._note_epoch()
        finally:
            self.close()

    def _note_epoch(self) -> None:
        if self.image.provenance.epoch > self.epoch_seen.epoch:
            self.epoch_seen = self.image.provenance


class LiveImage:
    """A cluster's metadata image that can be refreshed. Close it."""

    def __init__(self, config: AdminConfig) -> None:
        self._config = config
        self._feed = MetadataFeed(config)
        self._follower = ImageFollower()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def image(self) -> MetadataImage:
        """The image. `refresh` changes it in place, or replaces it after an error."""
        return self._follower.image

    @property
    def epoch(self) -> int:
        """The highest leader epoch seen so far."""
        return self._feed.observer.leader_epoch

    def leader_since_ms(self, epoch: int) -> int | None:
        """Return a time at which the epoch's leader was elected already, in Unix milliseconds of its clock.

        It is the time of the epoch's first record, or of a later one if a snapshot replaced that. None if the image
        has no record of the epoch.
        """
        seen = self._follower.epoch_seen
        return seen.timestamp_ms if seen.epoch == epoch else None

    async def redirect(self, config: AdminConfig, contacts: Mapping[int, Address]) -> None:
        """Use other controllers from now on, and continue at the end of the current image.

        `contacts` are the addresses of leaders by node id, where they differ from the advertised ones.
        """
        former = self._feed
        self._feed = MetadataFeed(config, position=former.observer.position)
        self._feed.contacts = contacts
        self._config = config
        self._follower.close()  # a snapshot that is being fetched will not be completed
        await former.close()

    async def close(self) -> None:
        """Close the connection. The image stays valid."""
        self._follower.close()
        await self._feed.close()

    async def refresh(self, *, timeout_ms: int | None = None) -> None:
        """Catch up with the high watermark of a response that arrives after the call.

        `timeout_ms` defaults to `default_api_timeout_ms` of the config.

        Raises:
            RequestTimeoutError: the image did not catch up in time.
            UnreachableError: no controller answered.
            ServerError: the leader refused, for instance with CLUSTER_AUTHORIZATION_FAILED.
            ObservingError: the log can't be read; the next call reads all of it again.
        """
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_ms / 1000):
                await self._catch_up()
                return
        if self._feed.failures:
            raise UnreachableError(self._feed.failures)
        raise RequestTimeoutError(f"not caught up with the metadata log in {limit_ms} ms")

    async def _catch_up(self) -> None:
        observer = self._feed.observer
        wait_ms = 0
        try:
            while True:
                events = await self._feed.exchange(wait_ms)
                for event in events:
                    await self._apply(event)
                if observer.is_caught_up:
                    return
                # A new leader has no high watermark until its first record is committed.
                wait_ms = WAIT_MS if not events and observer.last_failure is None else 0
        except ProtocolError as error:
            self._start_over()
            raise ObservingError(error.message) from error
        except ObservingError:
            self._start_over()
            raise

    async def _apply(self, event: Event) -> None:
        if not isinstance(event, SnapshotLoaded):
            self._follower.apply(event)
            return
        # A large snapshot takes many seconds, which must not block the event loop. Cancellation waits for its end,
        # because nothing else may change the image before.
        loading = asyncio.ensure_future(asyncio.to_thread(self._follower.apply, event))
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            await asyncio.wait([loading])
            if loading.exception() is not None:
                self._start_over()
            raise

    def _start_over(self) -> None:
        self._follower.close()
        self._follower = ImageFollower()
        self._feed.observer.start_over()


async def load_live_image(config: AdminConfig, *, timeout_ms: int | None = None) -> MetadataImage:
    """The current committed metadata of a live cluster.

    The config must have `bootstrap_controllers`. Registrations are in `image.cluster.controllers` and
    `image.cluster.brokers` (by node id; `supported_features` maps feature names to `VersionRange`), finalized levels
    in `image.features`.

    Raises:
        UnsupportedEndpointError: the config has `bootstrap_servers`.
        AdminError: as `LiveImage.refresh`.
    """
    async with LiveImage(config) as live:
        await live.refresh(timeout_ms=timeout_ms)
        return live.image
