"""A leader of another kind that leaves a metadata transaction open: ours never do, and have to abort it (KIP-868)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from kit.simulator.coverage import Happening
from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.raft.events import Resign
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.records.generated import BeginTransactionRecord, ConfigRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.simulator.world import Machine, World
    from quorate_controller.control.api import RequestContext
    from quorate_controller.node import ControllerNode

TOPIC_RESOURCE: Final = 2


@dataclass(frozen=True, slots=True)
class ForeignTransaction:
    """What makes the active controller begin a transaction and end there."""

    __version__: ClassVar[int] = 0
    __api_key__: ClassVar[int] = ApiKey.CREATE_TOPICS
    """Of the class of requests that it belongs to: those of clients."""
    number: int


def _begin(request: ForeignTransaction) -> ControlResult:
    name = f"never-there-{request.number}"
    records = (
        BeginTransactionRecord(name="foreign"),
        TopicRecord(name=name, topic_id=UUID(int=(6 << 76) + request.number)),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name="retention.ms", value="1"),
    )
    return ControlResult(records=records, atomic=True)


def teach(world: World, machine: Machine, node: ControllerNode) -> None:
    """Let a node take a ForeignTransaction. After it, it decides on nothing more, and resigns."""
    control = node.metadata.control
    decide: Callable[[Any, RequestContext], ControlResult] = control.decide
    epoch: int | None = None

    def decide_or_begin(request: Any, context: RequestContext) -> ControlResult:
        nonlocal epoch
        if epoch == node.raft.epoch:
            raise ControlError(ErrorCode.not_controller, "in a foreign transaction")
        if not isinstance(request, ForeignTransaction):
            return decide(request, context)
        if not control.is_active:
            raise ControlError(ErrorCode.not_controller, "on standby")
        epoch = node.raft.epoch
        world.coverage.count(Happening.FOREIGN_TRANSACTION)
        world.schedule(world.rng.randint(0, 20), partial(world.deliver, machine, Resign(epoch=epoch)))
        return _begin(request)

    control.decide = decide_or_begin  # type: ignore[method-assign]
