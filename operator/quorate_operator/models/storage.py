"""The volumes of nodes: one for each controller, one or several for each broker."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field, model_validator

from quorate_operator.models.base import Duration, Model, Size, Text, duration_ms, rules

SIZE_DEFAULT = "10Gi"
VOLUME_ID_MAX = 99
VOLUMES_MAX = 20
METADATA_VOLUME = 0
"""The id of the volume that has the metadata log; that of a node's only volume."""

VolumeFate = Literal["Retain", "Delete"]
_OnDecommission = Annotated[
    VolumeFate, Field(description="What happens to the volume of a decommissioned node.")
]
_OnDeletion = Annotated[
    VolumeFate,
    Field(
        description="What happens to the volumes when the KafkaController or KafkaBroker is deleted. With Delete, a "
        "KafkaBroker whose KafkaController stays is drained first."
    ),
]

_UnbindAfter = Annotated[
    Duration | None,
    Field(
        description="After which time a node gets new volumes in place of those on a Kubernetes node that was "
        "removed or does not answer, while its pod can't be scheduled elsewhere. One node at a time, and only if "
        "other nodes have all data. Default: never. Needs rbac.readNodes of the chart; `quorate play` ignores it."
    ),
]

_CLASS_IS_FIXED = (
    "className can't be changed: a volume stays in its storage class; "
    "decommission nodes and create a pool of another class"
)
_ONLY_GROWS = "size can't be made smaller: volumes only grow"


def _size(volume: str) -> str:
    """Return the CEL expression of a volume's size."""
    return f"(has({volume}.size) ? string({volume}.size) : '{SIZE_DEFAULT}')"


_RULES_OF_ONE: tuple[Mapping[str, str], ...] = (
    {
        "rule": (
            "has(self.className) == has(oldSelf.className) && "
            "(!has(self.className) || self.className == oldSelf.className)"
        ),
        "message": _CLASS_IS_FIXED,
    },
    {
        "rule": f"quantity({_size('self')}).compareTo(quantity({_size('oldSelf')})) >= 0",
        "message": _ONLY_GROWS,
    },
)


def unbind_after_ms(storage: "Storage | BrokerStorage") -> int | None:
    """Return `unbindAfter` in milliseconds; None for never."""
    return None if storage.unbind_after is None else duration_ms(storage.unbind_after)


class Volume(NamedTuple):
    """A volume that each node of a pool shall have."""

    id: int
    size: str
    class_name: str | None


class StorageVolume(Model):
    """A volume of each broker."""

    model_config = ConfigDict(json_schema_extra=rules(*_RULES_OF_ONE))

    id: Annotated[int, Field(ge=0, le=VOLUME_ID_MAX)] = Field(
        description="The number of the volume. It can't be changed; 0 has the metadata log."
    )
    size: Size = Field(default=SIZE_DEFAULT, description="Requested size. It can grow, but not shrink.")
    class_name: Text | None = Field(
        default=None, description="The storage class. Default: that of Kubernetes. It can't be changed."
    )


class Storage(Model):
    """The volume of each node."""

    model_config = ConfigDict(json_schema_extra=rules(*_RULES_OF_ONE))

    size: Size = Field(default=SIZE_DEFAULT, description="Requested size. It can grow, but not shrink.")
    class_name: Text | None = Field(
        default=None, description="The storage class. Default: that of Kubernetes. It can't be changed."
    )
    on_decommission: _OnDecommission = "Retain"
    on_deletion: _OnDeletion = "Retain"
    unbind_after: _UnbindAfter = None

    @model_validator(mode="before")
    @classmethod
    def _has_one_volume(cls, content: Any) -> Any:
        if isinstance(content, dict) and "volumes" in content:
            raise ValueError(
                "volumes: a controller has one volume, for its metadata log: set size and className instead; "
                "only a KafkaBroker may have several"
            )
        return content

    @property
    def wanted(self) -> tuple[Volume, ...]:
        """The volumes of each node, in the order of their ids."""
        return (Volume(METADATA_VOLUME, self.size, self.class_name),)


_SIZE_OR_VOLUMES = (
    "volumes: must not be set beside size and className, which are those of a single volume; "
    "remove one of them"
)
_METADATA_VOLUME_STAYS = (
    f"volumes: must have the id {METADATA_VOLUME}: the metadata log is on this volume, "
    "and it can't be removed"
)


def _of_metadata_volume(field: str, of_volume: str, of_single: str) -> str:
    """Return the CEL expression of a list with a field of volume 0, whether volumes are listed or not."""
    listed = f"{field}.volumes.filter(v, v.id == {METADATA_VOLUME}).map(v, {of_volume})"
    return f"(has({field}.volumes) ? {listed} : [{of_single}])"


def _class_of(field: str) -> str:
    return _of_metadata_volume(
        field,
        "has(v.className) ? v.className : ''",
        f"has({field}.className) ? {field}.className : ''",
    )


def _size_of(field: str) -> str:
    return _of_metadata_volume(field, _size("v"), _size(field))


_LACKS_METADATA_VOLUME = f"has(self.volumes) && !self.volumes.exists(v, v.id == {METADATA_VOLUME})"


class BrokerStorage(Model):
    """The volumes of each broker: one, or several with directories for the data of partitions (JBOD)."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {
                "rule": "!has(self.volumes) || !has(self.size) && !has(self.className)",
                "message": _SIZE_OR_VOLUMES,
            },
            {"rule": f"!({_LACKS_METADATA_VOLUME})", "message": _METADATA_VOLUME_STAYS},
            {
                "rule": f"{_LACKS_METADATA_VOLUME} || {_class_of('self')} == {_class_of('oldSelf')}",
                "message": _CLASS_IS_FIXED,
            },
            {
                "rule": f"{_size_of('self')}.all(n, {_size_of('oldSelf')}.all(o, "
                "quantity(n).compareTo(quantity(o)) >= 0))",
                "message": _ONLY_GROWS,
            },
        )
    )

    size: Size | None = Field(
        default=None,
        description=f"Requested size of a single volume. It can grow, but not shrink. Default: {SIZE_DEFAULT}, "
        "without volumes.",
    )
    class_name: Text | None = Field(
        default=None,
        description="The storage class of a single volume. Default: that of Kubernetes. It can't be changed.",
    )
    volumes: (
        Annotated[tuple[StorageVolume, ...], Field(strict=False, min_length=1, max_length=VOLUMES_MAX)] | None
    ) = Field(
        default=None,
        description="Several volumes, each with a log directory, instead of size and className. Volumes may be "
        "added; one that is removed here is emptied first. Volume 0 is the volume that a pool with size has.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
    )
    on_decommission: _OnDecommission = Field(
        default="Retain",
        description="What happens to the volumes of a decommissioned broker, and to a volume that was removed.",
    )
    on_deletion: _OnDeletion = "Retain"
    unbind_after: _UnbindAfter = None

    @model_validator(mode="after")
    def _volumes_fit(self) -> Self:
        if self.volumes is None:
            return self
        if self.size is not None or self.class_name is not None:
            raise ValueError(_SIZE_OR_VOLUMES)
        ids = [volume.id for volume in self.volumes]
        for volume_id in ids:
            if ids.count(volume_id) > 1:
                raise ValueError(f"volumes: id {volume_id} is listed more than once; each id may appear once")
        if METADATA_VOLUME not in ids:
            raise ValueError(_METADATA_VOLUME_STAYS)
        return self

    @property
    def wanted(self) -> tuple[Volume, ...]:
        """The volumes of each broker, in the order of their ids."""
        if self.volumes is not None:
            return tuple(sorted(Volume(volume.id, volume.size, volume.class_name) for volume in self.volumes))
        size = SIZE_DEFAULT if self.size is None else self.size
        return (Volume(METADATA_VOLUME, size, self.class_name),)
