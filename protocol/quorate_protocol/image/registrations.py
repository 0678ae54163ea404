"""Registrations of brokers and controllers (KIP-631, KIP-919)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from quorate_protocol import features
from quorate_protocol.image.errors import CannotReplay, UnwritableImageError
from quorate_protocol.image.partitions import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

_ZK_MIGRATION_SINCE: Final = 8
"""metadata.version whose RegisterBrokerRecord has IsMigratingZkBroker."""


class Listener(NamedTuple):
    """A listener of a node."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol


class VersionRange(NamedTuple):
    """A range of feature levels, both ends included."""

    min_level: int
    max_level: int

    def contains(self, level: int) -> bool:
        return self.min_level <= level <= self.max_level


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """The registration of a broker. Its epoch is the offset of the record that registered this incarnation."""

    broker_id: int
    epoch: int
    incarnation_id: UUID
    listeners: Mapping[str, Listener]
    """By listener name, in the order of the registration."""
    supported_features: Mapping[str, VersionRange]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False
    """True only in clusters that were migrated from ZooKeeper; kept because the record has it."""
    directories: tuple[UUID, ...] = ()
    """Online log directories, sorted."""
    cordoned_directories: tuple[UUID, ...] | None = None
    """Log directories that take no new replicas, sorted; None until the broker reports them (metadata.version 30)."""

    @property
    def is_active(self) -> bool:
        """Whether it is neither fenced nor shutting down: it may join an ISR and lead."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def has_uncordoned_directory(self) -> bool:
        """Whether new replicas may be placed on it."""
        if not self.directories or self.cordoned_directories is None:
            return True
        return not set(self.directories) <= set(self.cordoned_directories)

    def has_online_directory(self, directory: UUID) -> bool:
        """Whether a replica in ``directory`` is reachable (DirectoryId.isOnline).

        MIGRATING and UNASSIGNED count as online: the broker has not reported yet where the replica is. So does any
        directory of a broker that registered none.
        """
        if directory == LOST_DIRECTORY:
            return False
        if directory in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY):
            return True
        return not self.directories or directory in self.directories

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> "BrokerRegistration":
        """Return the registration in a record.

        Raises:
            CannotReplay: a security protocol is unknown.
        """
        return cls(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id or _ZERO,
            listeners=_listeners(record.end_points),
            supported_features=_supported_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            directories=_sorted_directories(record.log_dirs),
            cordoned_directories=(
                None if record.cordoned_log_dirs is None else _sorted_directories(record.cordoned_log_dirs)
            ),
        )

    def merge(self, change: BrokerRegistrationChangeRecord) -> "BrokerRegistration":
        """Return the registration after ``change``; the caller has compared the broker epoch.

        Raises:
            CannotReplay: the value of ``fenced`` or ``in_controlled_shutdown`` is unknown.
        """
        # 0 keeps; fenced: 1 fences, -1 unfences; in_controlled_shutdown: 1 sets, nothing clears.
        if change.fenced not in (-1, 0, 1):
            raise CannotReplay(f"unknown value {change.fenced} of fenced")
        if change.in_controlled_shutdown not in (0, 1):
            raise CannotReplay(f"unknown value {change.in_controlled_shutdown} of in_controlled_shutdown")
        return replace(
            self,
            fenced=change.fenced == 1 if change.fenced else self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown or change.in_controlled_shutdown == 1,
            directories=_sorted_directories(change.log_dirs) if change.log_dirs else self.directories,
            cordoned_directories=(
                self.cordoned_directories
                if change.cordoned_log_dirs is None
                else _sorted_directories(change.cordoned_log_dirs)
            ),
        )

    def with_fenced(self, fenced: bool) -> "BrokerRegistration":
        return replace(self, fenced=fenced)

    def to_record(self, metadata_version: int) -> RegisterBrokerRecord:
        """Return the RegisterBrokerRecord that recreates this registration.

        Raises:
            UnwritableImageError: metadata.version is too low for one of its fields.
        """
        self._check_writable(metadata_version)
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=_end_points(BrokerEndpoint, self.listeners),
            features=_feature_ranges(BrokerFeature, self.supported_features),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=self.directories,
            cordoned_log_dirs=self.cordoned_directories,
        )

    def _check_writable(self, metadata_version: int) -> None:
        if self.is_migrating_zk_broker and metadata_version < _ZK_MIGRATION_SINCE:
            raise UnwritableImageError(
                metadata_version, "the isMigratingZkBroker state of one or more brokers"
            )
        if self.directories and metadata_version < features.DIRECTORY_ASSIGNMENT_SINCE:
            raise UnwritableImageError(metadata_version, "the online log directories of one or more brokers")
        if self.cordoned_directories is not None and metadata_version < features.CORDONED_DIRECTORIES_SINCE:
            raise UnwritableImageError(
                metadata_version, "the cordoned log directories of one or more brokers"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    """The registration of a controller, valid until it is replaced or, from metadata.version 33, unregistered."""

    controller_id: int
    incarnation_id: UUID
    listeners: Mapping[str, Listener]
    supported_features: Mapping[str, VersionRange]
    zk_migration_ready: bool = False

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> "ControllerRegistration":
        """Return the registration in a record.

        Raises:
            CannotReplay: a security protocol is unknown.
        """
        return cls(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id or _ZERO,
            listeners=_listeners(record.end_points),
            supported_features=_supported_features(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )

    def to_record(self) -> RegisterControllerRecord:
        """Return the RegisterControllerRecord that recreates this registration."""
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=_end_points(ControllerEndpoint, self.listeners),
            features=_feature_ranges(ControllerFeature, self.supported_features),
        )


E = TypeVar("E", BrokerEndpoint, ControllerEndpoint)
F = TypeVar("F", BrokerFeature, ControllerFeature)


def _end_points(kind: type[E], listeners: Mapping[str, Listener]) -> tuple[E, ...]:
    return tuple(
        kind(name=name, host=host, port=port, security_protocol=int(protocol))
        for name, host, port, protocol in listeners.values()
    )


def _feature_ranges(kind: type[F], ranges: Mapping[str, VersionRange]) -> tuple[F, ...]:
    return tuple(
        kind(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in ranges.items()
    )


_SECURITY_PROTOCOLS: Final = {int(protocol): protocol for protocol in SecurityProtocol}


def _listeners(end_points: Sequence[BrokerEndpoint | ControllerEndpoint]) -> dict[str, Listener]:
    listeners = {}
    for point in end_points:
        protocol = _SECURITY_PROTOCOLS.get(point.security_protocol)
        if protocol is None:
            raise CannotReplay(
                f"unknown security protocol {point.security_protocol} of listener {point.name}"
            )
        listeners[point.name] = Listener(point.name, point.host, point.port, protocol)
    return listeners


def _supported_features(given: Sequence[BrokerFeature | ControllerFeature]) -> dict[str, VersionRange]:
    return {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in given}


def _sorted_directories(directories: Sequence[UUID | None]) -> tuple[UUID, ...]:
    return tuple(sorted((directory or MIGRATING_DIRECTORY for directory in directories), key=_signed_halves))


def _signed_halves(uuid: UUID) -> tuple[int, int]:
    # Kafka's Uuid compares two signed 64-bit halves; flipping their top bits gives the same order.
    return (uuid.int >> 64) ^ _SIGN_BIT, (uuid.int & _LOW_HALF) ^ _SIGN_BIT


_ZERO: Final = UUID(int=0)
_SIGN_BIT: Final = 1 << 63
_LOW_HALF: Final = (1 << 64) - 1
