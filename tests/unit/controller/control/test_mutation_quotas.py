"""Token buckets of users and client ids, and which quota bounds a request (KIP-599).

The oracle against stock Kafka is tests/integration/parity/test_mutation_quotas.py.
"""

from datetime import timedelta
from typing import Any

import pytest
from quorate_controller.control import mutation_quotas
from quorate_controller.control.api import ControlError, RequestContext
from quorate_controller.control.mutation_quotas import MutationQuota, MutationQuotas
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.records.generated import ClientQuotaRecord, EntityData

STRICT_SINCE = 6
RATE = 2.0
NO_WAIT = timedelta(0)


class Rig:
    """Quotas over an image, at a time that a test sets; a bucket holds 11 windows of one second."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.quotas = MutationQuotas(self.image, samples=11, window_s=1)
        self.now_ms = 1_000_000

    def set(self, rate: float | None, *entity: tuple[str, str | None]) -> None:
        """Set or remove the quota of an entity."""
        record = ClientQuotaRecord(
            entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            key="controller_mutation_rate",
            value=rate or 0.0,
            remove=rate is None,
        )
        self.image.replay_all([record], base_offset=self.image.end_offset)

    def of(
        self, user: str = "alice", client_id: str | None = "app", version: int = STRICT_SINCE
    ) -> MutationQuota:
        """The quota of a request."""
        context = RequestContext(
            now_ms=self.now_ms,
            next_offset=0,
            api_version=version,
            principal=f"User:{user}",
            client_id=client_id,
        )
        return self.quotas.of(context, strict_since=STRICT_SINCE)

    def is_refused(self, quota: MutationQuota, partitions: int = 1) -> bool:
        """Whether a quota refuses partitions, which it otherwise counts."""
        try:
            quota.charge(partitions)
        except ControlError as error:
            return error.error_code is ErrorCode.throttling_quota_exceeded
        return False


@pytest.fixture
def rig() -> Rig:
    """Quotas without any."""
    return Rig()


def test_a_bucket_is_full_at_first_and_refills_with_time(rig: Rig) -> None:
    """A burst of 11 s, debts that are paid back at the rate."""
    rig.set(RATE, ("user", "alice"))
    assert not rig.is_refused(rig.of(), 22)
    assert not rig.is_refused(rig.of(), 10)
    quota = rig.of()
    assert rig.is_refused(quota)
    assert quota.throttle_time == timedelta(seconds=5)
    rig.now_ms += 4_500
    quota = rig.of()
    assert rig.is_refused(quota)
    assert quota.throttle_time == timedelta(milliseconds=500)
    rig.now_ms += 500
    quota = rig.of()
    assert not rig.is_refused(quota)
    assert quota.throttle_time == NO_WAIT


def test_a_refused_request_costs_nothing(rig: Rig) -> None:
    """A client that retries repeatedly does not wait longer."""
    rig.set(RATE, ("user", "alice"))
    rig.of().charge(24)
    assert all(rig.is_refused(rig.of(), 100) for _ in range(10))
    rig.now_ms += 1_000
    assert not rig.is_refused(rig.of())


def test_old_versions_are_only_throttled(rig: Rig) -> None:
    """Clients that do not know the error get what they ask for, and a time."""
    rig.set(RATE, ("user", "alice"))
    quota = rig.of(version=STRICT_SINCE - 1)
    assert not rig.is_refused(quota, 22)
    assert quota.throttle_time == NO_WAIT
    assert not rig.is_refused(quota, 3)
    assert quota.throttle_time == timedelta(milliseconds=1_500)
    assert rig.is_refused(rig.of())


LEVELS = (
    (("user", "alice"), ("client-id", "app")),
    (("user", "alice"), ("client-id", None)),
    (("user", "alice"),),
    (("user", None), ("client-id", "app")),
    (("user", None), ("client-id", None)),
    (("user", None),),
    (("client-id", "app"),),
    (("client-id", None),),
)
"""In the order in which quotas count."""


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_most_specific_quota_counts(rig: Rig, level: int) -> None:
    for number, entity in enumerate(LEVELS[level:]):
        rig.set(1.0 if number == 0 else 1_000.0, *entity)
    rig.of().charge(12)
    assert rig.is_refused(rig.of())


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_who_shares_a_bucket(rig: Rig, level: int) -> None:
    """Client ids share a quota of their user, users a quota of their client id; a pair has its own."""
    entity = dict(LEVELS[level])
    rig.set(1.0, *LEVELS[level])
    rig.of().charge(12)
    assert rig.is_refused(rig.of())
    assert rig.is_refused(rig.of(client_id="other")) == (entity.keys() == {"user"})
    assert rig.is_refused(rig.of(user="bob")) == (entity.keys() == {"client-id"})


def test_without_a_quota_nothing_is_bounded(rig: Rig) -> None:
    """No quota, no bucket, also for clients without a name, which defaults do not mean."""
    assert not rig.is_refused(rig.of(), 10_000)
    rig.set(1.0, ("user", "bob"))
    rig.set(1.0, ("user", None), ("client-id", None))
    for _ in range(2):
        assert not rig.is_refused(rig.of(client_id=None), 10_000)
    rig.of().charge(12)
    assert rig.is_refused(rig.of())
    rig.set(None, ("user", None), ("client-id", None))
    assert not rig.is_refused(rig.of(), 10_000)


def test_a_quota_that_changes_applies_at_once(rig: Rig) -> None:
    rig.set(1.0, ("user", "alice"))
    rig.of().charge(21)
    rig.set(10.0, ("user", "alice"))
    quota = rig.of()
    assert rig.is_refused(quota)
    assert quota.throttle_time == timedelta(seconds=1)


def test_an_unused_bucket_is_full_again(rig: Rig) -> None:
    """A debt ends after an hour without requests, as in Kafka."""
    rig.set(1.0, ("user", "alice"))
    rig.of().charge(36_000)
    rig.now_ms += 3_600_000
    assert rig.is_refused(rig.of())
    rig.now_ms += 1
    assert not rig.is_refused(rig.of())


def test_throttle_times_fit_their_field(rig: Rig) -> None:
    rig.set(5e-324, ("user", "alice"))
    rig.of().charge(1)
    quota = rig.of()
    assert rig.is_refused(quota)
    assert quota.throttle_time == timedelta(milliseconds=2**31 - 1)


def test_buckets_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Client ids cost no memory without end, and those in use are kept."""
    monkeypatch.setattr(mutation_quotas, "BUCKETS_MAX", 10)
    rig.set(1.0, ("user", None), ("client-id", None))
    for number in range(25):
        rig.now_ms += 1
        rig.of(client_id=f"app-{number}").charge(100)
        assert rig.is_refused(rig.of(client_id=f"app-{number}"))
    buckets: dict[Any, Any] = rig.quotas._buckets
    assert len(buckets) <= 10
    assert not rig.is_refused(rig.of(client_id="app-0"))
