"""Registrations of controllers (KIP-919, KIP-1312) and what single nodes speak."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerListener:
    """Where a controller listens. `security_protocol` is Kafka's number: 0 PLAINTEXT, 1 SSL, 2 and 3 with SASL."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    """What a controller registers with the active one (ControllerRegistration, KIP-919).

    `features` has the lowest and highest level that it runs, by name.
    """

    controller_id: int
    incarnation_id: uuid.UUID
    listeners: tuple[ControllerListener, ...]
    features: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeApiVersions:
    """What one node speaks (ApiVersions): versions by API key, and feature levels."""

    api_versions: Mapping[int, tuple[int, int]]
    supported_features: Mapping[str, tuple[int, int]]
    finalized_features: Mapping[str, int]
    finalized_features_epoch: int
