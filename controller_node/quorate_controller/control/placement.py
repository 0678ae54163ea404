"""Where the replicas of new partitions go; a request that can't have them is refused."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from quorate_protocol import placement
from quorate_protocol.placement import PlacementError, UsableBroker

from quorate_controller.control.api import ControlError

if TYPE_CHECKING:
    from random import Random

__all__ = ("UsableBroker", "place_replicas")


def place_replicas(
    brokers: Iterable[UsableBroker], num_partitions: int, replication_factor: int, rng: "Random"
) -> list[tuple[int, ...]]:
    """Replicas of each partition, preferred leader first.

    Raises:
        ControlError: INVALID_REPLICATION_FACTOR when there are too few brokers, or all are fenced.
    """
    try:
        return placement.place_replicas(brokers, num_partitions, replication_factor, rng)
    except PlacementError as error:
        raise ControlError(ErrorCode.invalid_replication_factor, str(error)) from error
