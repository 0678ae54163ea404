"""Quotas on changes of partitions: `controller_mutation_rate` of users and client ids (KIP-599).

Each pair of user and client id that a quota is for has a token bucket. Creating, adding and deleting partitions takes
one token for each partition. A bucket may go below zero once; a strict quota then refuses requests, a permissive one
only returns the time to wait. Buckets belong to the process, as in Kafka: they are neither replicated nor stored.

Source: ControllerMutationQuotaManager, ClientQuotaManager and TokenBucket of Kafka 4.4.0.
"""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import CLIENT_ID, USER
from quorate_protocol.plain_data import dataclass

from quorate_controller.control.api import ControlError
from quorate_controller.control.client_quotas import CONTROLLER_MUTATION_RATE

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage

    from quorate_controller.control.api import RequestContext

BUCKETS_MAX: Final = 10_000
"""Beyond this the least recently used half is dropped: its clients start with full buckets."""

_UNUSED_MS_MAX: Final = 3_600_000
"""Buckets are dropped after this time without use (ClientQuotaManager.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS)."""

_THROTTLE_TIME_MS_MAX: Final = 2**31 - 1
_ANY: Final = None
"""The name of the default user and of the default client id."""

Shares = tuple[str, str | None]
"""User and client id that share a bucket; "" where the quota is for any."""


@dataclass(slots=True)
class Bucket:
    """Remaining tokens, and the time of their count; `used_ms` is the time of the last charge."""

    tokens: float
    counted_ms: int
    used_ms: int

    def refill(self, rate: float, burst: float, now_ms: int) -> None:
        """Add the tokens since the last refill, up to `burst`."""
        self.tokens = min(burst, self.tokens + rate * ((now_ms - self.counted_ms) / 1000))
        self.counted_ms = now_ms


class MutationQuota:
    """The quota of one request."""

    def __init__(
        self, bucket: Bucket | None, *, rate: float, burst: float, now_ms: int, is_strict: bool
    ) -> None:
        self._bucket = bucket
        self._rate = rate
        self._burst = burst
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._throttle_time_ms = 0

    @property
    def throttle_time(self) -> timedelta:
        """The time until the bucket is no longer below zero."""
        return timedelta(milliseconds=self._throttle_time_ms)

    def charge(self, partitions: int) -> None:
        """Charge the tokens for partitions that are created or deleted.

        Raises:
            ControlError: THROTTLING_QUOTA_EXCEEDED by a strict quota; no tokens are charged then.
        """
        bucket = self._bucket
        if bucket is None:
            return
        bucket.refill(self._rate, self._burst, self._now_ms)
        if self._is_strict and bucket.tokens < 0:
            self._throttle(bucket)
            raise ControlError(ErrorCode.throttling_quota_exceeded)
        bucket.tokens -= partitions
        bucket.used_ms = self._now_ms
        if not self._is_strict and bucket.tokens < 0:
            self._throttle(bucket)

    def _throttle(self, bucket: Bucket) -> None:
        wait_ms = math.floor(min(-bucket.tokens / self._rate * 1000, _THROTTLE_TIME_MS_MAX) + 0.5)
        self._throttle_time_ms = min(wait_ms, _THROTTLE_TIME_MS_MAX)


UNBOUNDED: Final = MutationQuota(None, rate=0.0, burst=0.0, now_ms=0, is_strict=False)


class MutationQuotas:
    """The buckets of this process. A bucket holds `samples` windows of `window_s` seconds at the quota's rate."""

    def __init__(self, image: "MetadataImage", *, samples: int, window_s: int) -> None:
        self._image = image
        self._seconds = samples * window_s
        self._buckets: dict[Shares, Bucket] = {}

    def of(self, context: "RequestContext", *, strict_since: int) -> MutationQuota:
        """Return the quota of a request; it is strict from this version of the request on."""
        if not self._image.client_quotas:
            self._buckets.clear()
            return UNBOUNDED
        user = context.principal.partition(":")[2]
        shares = self._shares(user, context.client_id)
        rate = self._rate_of(shares)
        if rate is None or rate <= 0:
            self._buckets.pop(shares, None)
            return UNBOUNDED
        burst = rate * self._seconds
        return MutationQuota(
            self._bucket(shares, burst, context.now_ms),
            rate=rate,
            burst=burst,
            now_ms=context.now_ms,
            is_strict=context.api_version >= strict_since,
        )

    def _bucket(self, shares: Shares, burst: float, now_ms: int) -> Bucket:
        bucket = self._buckets.get(shares)
        if bucket is None or now_ms - bucket.used_ms > _UNUSED_MS_MAX:
            if bucket is None and len(self._buckets) >= BUCKETS_MAX:
                self._forget()
            bucket = self._buckets[shares] = Bucket(burst, counted_ms=now_ms, used_ms=now_ms)
        return bucket

    def _forget(self) -> None:
        by_use = sorted(self._buckets, key=lambda shares: self._buckets[shares].used_ms)
        for shares in by_use[: BUCKETS_MAX // 2]:
            del self._buckets[shares]

    def _shares(self, user: str, client_id: str | None) -> Shares:
        """Return the key of a bucket, from the first quota that matches the user and the client id."""
        known = [client_id] if client_id is not None else []
        for owner in (user, _ANY):
            for client in (*known, _ANY):
                if self._rate({USER: owner, CLIENT_ID: client}) is not None:
                    return user, client_id
            if self._rate({USER: owner}) is not None:
                return user, ""
        return "", client_id

    def _rate_of(self, shares: Shares) -> float | None:
        """Return the rate of a bucket; None without a quota, and for clients without a client id."""
        user, client_id = shares
        if client_id is None:
            return None
        if user and client_id:
            pairs = [
                {USER: owner, CLIENT_ID: client} for owner in (user, _ANY) for client in (client_id, _ANY)
            ]
            return self._first(*pairs)
        if user:
            return self._first({USER: user}, {USER: _ANY})
        return self._first({CLIENT_ID: client_id}, {CLIENT_ID: _ANY}) if client_id else None

    def _first(self, *entities: Mapping[str, str | None]) -> float | None:
        rates = (self._rate(entity) for entity in entities)
        return next((rate for rate in rates if rate is not None), None)

    def _rate(self, entity: Mapping[str, str | None]) -> float | None:
        quotas = self._image.client_quotas.get(tuple(sorted(entity.items())))
        return None if quotas is None else quotas.get(CONTROLLER_MUTATION_RATE)
