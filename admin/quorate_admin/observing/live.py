"""The metadata image of a live cluster, refreshed on request."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from quorate_protocol.errors import ProtocolError
from quorate_protocol.image import MetadataImage
from quorate_protocol.observer import Event, SnapshotLoaded

from quorate_admin.config import Address, AdminConfig
from quorate_admin.errors import RequestTimeoutError, UnreachableError
from quorate_admin.observing.feed import MetadataFeed, ObservingError
from quorate_admin.observing.following import ImageFollower

WAIT_MS = 500
"""How long a leader without a known high watermark may hold a request."""


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
        """Returns a time at which the epoch's leader was elected already, in Unix milliseconds of its clock.

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
