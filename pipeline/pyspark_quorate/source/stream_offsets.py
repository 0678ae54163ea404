"""Where a stream stands: what Spark keeps in a checkpoint and gives back after a restart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from quorate_protocol.observer import Position

from pyspark_quorate.source.follow import Mark

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


class OffsetError(ValueError):
    """What a checkpoint holds is no offset of this source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """A position in the metadata log of one cluster. Its JSON is kept for as long as a checkpoint: no secrets."""

    cluster_id: str
    mark: Mark
    parted_at: Position | None = None
    """Set where the log contradicted what had been read, and is read anew: how far the two logs may agree."""

    def to_json(self) -> dict[str, Any]:
        """What Spark writes down; equal offsets have equal texts."""
        where: dict[str, Any] = {
            "clusterId": self.cluster_id,
            **_to_json(self.mark.position),
            "leaderEpoch": self.mark.leader_epoch,
        }
        if self.parted_at is not None:
            where["partedAt"] = _to_json(self.parted_at)
        return where

    @classmethod
    def from_json(cls, where: Mapping[str, Any]) -> Self:
        """Raises OffsetError that names the field, its value and what is allowed."""
        cluster_id, parted_at = where.get("clusterId"), where.get("partedAt")
        if not isinstance(cluster_id, str) or not cluster_id:
            raise OffsetError(f"an offset has clusterId={cluster_id!r}: allowed is a Kafka cluster id")
        return cls(
            cluster_id=cluster_id,
            mark=Mark(_from_json(where), _number(where, "leaderEpoch", _INT32_MAX)),
            parted_at=None if parted_at is None else _from_json(parted_at),
        )


def _to_json(position: Position) -> dict[str, Any]:
    return {"offset": position.offset, "epoch": position.epoch}


def _from_json(where: Mapping[str, Any]) -> Position:
    return Position(_number(where, "offset", _INT64_MAX), _number(where, "epoch", _INT32_MAX))


def _number(where: Mapping[str, Any], name: str, highest: int) -> int:
    value = where.get(name)
    if type(value) is not int or not 0 <= value <= highest:
        raise OffsetError(f"an offset has {name}={value!r}: allowed is a whole number from 0 to {highest}")
    return value
