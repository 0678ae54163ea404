"""The simulated network: delays, losses, duplicates, partitions, and connections that break, often with a process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kit.simulator.coverage import Happening
from kit.simulator.java_like import LINGER_MS
from kit.simulator.wire import Exchange
from quorate_controller.control.api import ControlError
from quorate_controller.node import ControlRequest, OwnRequestAnswered, OwnRequestFailed
from quorate_controller.node.events import OWN_REQUEST_TIMEOUT_MS, Caller, Principal, ResponseWithData
from quorate_controller.raft.events import (
    ConnectionLost,
    Destination,
    FailureReason,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from quorate_controller.raft.messages import (
    ApiVersionsProbe,
    ApiVersionsProbeResponse,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from quorate_controller.raft.model import VersionRange
from quorate_controller.server.error_responses import error_response
from quorate_protocol.errors import UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.simulator.world import Machine, World
    from quorate_controller.node import OwnRequest
    from quorate_controller.raft.events import Send
    from quorate_controller.raft.messages import FetchRequest, RaftRequest, RaftResponse

LISTENER: Final = "CONTROLLER"
KRAFT_VERSIONS: Final = VersionRange(lowest=0, highest=1)
BROKEN_CONNECTION_NOTICED: Final = 0.7
"""The share of peers that notice the end of a process at once. For others, as in a power cut, requests time out."""


@dataclass(slots=True, eq=False)
class Call:
    """A request of raft under way: its sender gets exactly one event at its end, unless it dies first."""

    sender: Machine
    sender_incarnation: int
    target: Machine
    request_id: int
    exchange: Exchange | None
    """None when messages are handed over as they are."""
    has_response: bool = False
    """A response is in flight: it arrives before the event of a connection that broke after it."""
    is_concluded: bool = False


class Network:
    """Carries messages between machines, and from clients to machines."""

    def __init__(self, world: World, *, is_wired: bool) -> None:
        self._world = world
        self._rng = world.rng
        self._is_wired = is_wired
        self.delay_ms_max = 5
        self.loss = 0.0
        self.duplication = 0.0
        self.for_successors = 0.0
        """How many requests wait for a connection, and so reach the next process of a machine that reboots."""
        self.cut: set[frozenset[int]] = set()
        self.cut_one_way: set[tuple[int, int]] = set()
        """Sources and targets: the responses and requests of the target arrive."""
        self.stolen_names: dict[str, int] = {}
        """Names that lead to another machine than the one that had them."""
        self.lost_names: dict[str, int | None] = {}
        """Names that machines have given up for good: the machine that has them now, or None."""
        self._calls: dict[int, dict[Call, None]] = {}
        self._raft_callers: dict[int, Callable[[ResponseWithData], None]] = {}
        self._control_callers: dict[int, Callable[[Any], None]] = {}
        self._next_token = 0

    def calm_down(self) -> None:
        """Everything works from now on."""
        self.heal()
        self.stolen_names.clear()
        self.loss = self.duplication = self.for_successors = 0.0
        self.delay_ms_max = 5

    def heal(self) -> None:
        """Repair all links."""
        self.cut.clear()
        self.cut_one_way.clear()

    def reaches(self, source: int, target: int) -> bool:
        """Whether messages pass from one machine to another."""
        return frozenset((source, target)) not in self.cut and (source, target) not in self.cut_one_way

    def break_connection(self, client: Machine, server: Machine) -> None:
        """The connection of one living process to another ends, be it idle or under requests."""
        for call in list(self._calls.get(server.node_id, {})):
            if call.sender is client and not call.has_response:
                self._fail_later(call, FailureReason.DISCONNECTED)
        self._deliver_later(client, ConnectionLost(node_id=server.node_id))

    def process_ended(self, machine: Machine) -> None:
        """The connections of a process break: most peers notice."""
        for call in self._calls.pop(machine.node_id, {}):
            is_noticed = self.reaches(machine.node_id, call.sender.node_id) and not call.has_response
            if is_noticed and self._chance(BROKEN_CONNECTION_NOTICED):
                self._fail_later(call, FailureReason.DISCONNECTED)
        for other in self._world.machines.values():
            if other.node is not None and self.reaches(machine.node_id, other.node_id):
                self._deliver_later(other, ConnectionLost(node_id=machine.node_id))

    # ------------------------------------------------------------------------------------------ chance

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability

    def _delay_ms(self) -> int:
        return self._rng.randint(0, self.delay_ms_max)

    def _is_lost(self, source: int, target: int) -> bool:
        is_lost = not self.reaches(source, target) or self._chance(self.loss)
        self._world.coverage.count(Happening.MESSAGE_LOST, int(is_lost))
        return is_lost

    def _deliver_later(self, machine: Machine, event: Any, *, delay_ms: int | None = None) -> None:
        """Deliver an event to the process that lives now, not to its successor."""
        incarnation = machine.incarnation

        def deliver() -> None:
            if machine.incarnation == incarnation:
                self._world.deliver(machine, event)

        self._world.schedule(self._delay_ms() if delay_ms is None else delay_ms, deliver)

    def _deliver_to_whoever_lives(self, machine: Machine, event: Any) -> None:
        incarnation = machine.incarnation

        def deliver() -> None:
            is_successor = machine.node is not None and machine.incarnation != incarnation
            self._world.coverage.count(Happening.MESSAGE_FOR_SUCCESSOR, int(is_successor))
            self._world.deliver(machine, event)

        # Connecting takes a while: the time of several messages.
        self._world.schedule(self._delay_ms() + self._delay_ms() + self._delay_ms(), deliver)

    # ---------------------------------------------------------------------------------- raft's messages

    def transmit(self, sender: Machine, send: Send) -> None:
        """One request of a controller."""
        target = self._machine_at(send.destination)
        if target is None:
            failure = RequestFailed(request_id=send.request_id, reason=FailureReason.UNREACHABLE)
            self._deliver_later(sender, failure)
            return
        call = Call(sender, sender.incarnation, target, send.request_id, None)
        is_misrouted = send.destination.node_id >= 0 and target.node_id != send.destination.node_id
        if is_misrouted and (sender.is_java_like or target.is_java_like):
            self._world.coverage.count(Happening.REACHED_ANOTHER)
        elif is_misrouted:
            # The node there refuses ApiVersions, since it is not the one that was meant (KIP-1242).
            self._world.coverage.count(Happening.MISROUTED)
            is_notified = target.node is not None and not self._is_lost(sender.node_id, target.node_id)
            reason = FailureReason.MISROUTED if is_notified else FailureReason.UNREACHABLE
            self._fail_later(call, reason)
            return
        if isinstance(send.request, ApiVersionsProbe):
            # The listener responds, not raft.
            response = ApiVersionsProbeResponse(kraft_versions=KRAFT_VERSIONS)
            if target.node is not None and not self._is_lost(target.node_id, sender.node_id):
                self._world.schedule(self._delay_ms(), partial(self._respond, call, response))
            else:
                self._fail_later(call, FailureReason.TIMED_OUT, send.timeout_ms)
            return
        try:
            request = self._encode(call, send.request)
        except UnsupportedVersion:
            self._world.coverage.count(Happening.VERSION_UNSUPPORTED)
            self._fail_later(call, FailureReason.UNSUPPORTED_VERSION)
            return
        self._fail_later(call, FailureReason.TIMED_OUT, send.timeout_ms)
        if target.node is None:
            self._fail_later(call, FailureReason.UNREACHABLE)
            return
        if isinstance(request, FetchSnapshotRequest):
            self._world.coverage.count(Happening.SNAPSHOT_CHUNK, int(request.position > 0))
        self._calls.setdefault(target.node_id, {})[call] = None
        is_doubled = self._chance(self.duplication)
        self._world.coverage.count(Happening.MESSAGE_DUPLICATED, int(is_doubled))
        for _ in range(1 + is_doubled):
            if not self._is_lost(sender.node_id, target.node_id):
                self._request(call, request)

    def _encode(self, call: Call, request: RaftRequest) -> RaftRequest:
        if not self._is_wired:
            return request
        call.exchange = Exchange(request, source=call.sender.release, target=call.target.release)
        self._world.coverage.count(Happening.MESSAGE_ON_WIRE)
        return call.exchange.request

    def _request(self, call: Call, request: RaftRequest) -> None:
        target = call.target

        def on_response(response: ResponseWithData) -> None:
            if not self._is_lost(target.node_id, call.sender.node_id):
                call.has_response = True
                self._world.schedule(self._delay_ms(), partial(self._arrive, call, response))

        event = RequestReceived(
            token=self.expect_raft_response(on_response), request=request, listener=LISTENER
        )
        if self._chance(self.for_successors):
            self._deliver_to_whoever_lives(target, event)
        else:
            self._deliver_later(target, event)

    def _arrive(self, call: Call, response: ResponseWithData) -> None:
        if call.is_concluded:
            return
        if call.exchange is not None:
            self._respond(call, call.exchange.response(response))
        elif isinstance(response.response, FetchResponse | FetchSnapshotResponse):
            self._respond(call, replace(response.response, records=response.data))
        else:
            self._respond(call, response.response)

    def _respond(self, call: Call, response: RaftResponse) -> None:
        self._conclude(call, ResponseReceived(request_id=call.request_id, response=response))

    def _fail_later(self, call: Call, reason: FailureReason, delay_ms: int | None = None) -> None:
        failure = RequestFailed(request_id=call.request_id, reason=reason)
        self._world.schedule(
            self._delay_ms() if delay_ms is None else delay_ms, partial(self._conclude, call, failure)
        )

    def _conclude(self, call: Call, event: ResponseReceived | RequestFailed) -> None:
        if call.is_concluded:
            return
        call.is_concluded = True
        self._calls.get(call.target.node_id, {}).pop(call, None)
        if call.sender.incarnation == call.sender_incarnation:
            self._world.deliver(call.sender, event)

    def _machine_at(self, destination: Destination) -> Machine | None:
        """Machines have many names: node3000 and node3000-7 are the same one, unless a name was stolen or lost."""
        thief = self.stolen_names.get(destination.host)
        if thief is not None:
            return self._world.machines[thief]
        if destination.host in self.lost_names:
            successor = self.lost_names[destination.host]
            return None if successor is None else self._world.machines[successor]
        return self._world.machines.get(int(destination.host.removeprefix("node").split("-")[0]))

    # ---------------------------------------------------------------------------------------- responses

    def _token(self) -> int:
        self._next_token += 1
        return self._next_token

    def expect_raft_response(self, on_response: Callable[[ResponseWithData], None]) -> int:
        """A token whose response goes to `on_response`."""
        token = self._token()
        self._raft_callers[token] = on_response
        return token

    def deliver_raft_response(self, token: int, response: ResponseWithData) -> None:
        """A node responds to a request of raft."""
        self._raft_callers.pop(token)(response)

    def deliver_control_response(self, token: int, result: Any) -> None:
        """A node responds to a control request, with a response or a ControlError."""
        self._control_callers.pop(token)(result)

    # ---------------------------------------------------------------------------------------- clients

    def ask(
        self,
        node_id: int,
        request: Any,
        on_response: Callable[[Any | ControlError], None],
        *,
        forwarded: bool = False,
    ) -> None:
        """A client's control request to one node; it gets no response when that node dies."""
        token = self._token()
        self._control_callers[token] = on_response
        caller = Caller(
            principal=Principal(),
            client_host="client",
            client_id="client",
            listener=LISTENER,
            api_version=request.__version__,
            request_timeout_ms=30_000,
            forwarded=forwarded,
        )
        machine = self._world.machines[node_id]
        deadline_ms = self._world.clock_ms(machine) + caller.request_timeout_ms
        event = ControlRequest(token=token, request=request, caller=caller, deadline_ms=deadline_ms)
        delay_ms = self._delay_ms()
        if machine.is_java_like:
            # What comes within the same moment is appended together.
            delay_ms += -(self._world.now_ms + delay_ms) % LINGER_MS
        self._deliver_later(machine, event, delay_ms=delay_ms)

    def ask_raft(self, node_id: int, request: RaftRequest) -> None:
        """An administrator's request to raft: to add or remove a voter. Its response is ignored."""
        token = self.expect_raft_response(lambda _: None)
        event = RequestReceived(token=token, request=request, listener=LISTENER)
        self._deliver_later(self._world.machines[node_id], event)

    def fetch(
        self, node_id: int, request: FetchRequest, on_response: Callable[[FetchResponse], None]
    ) -> None:
        """A broker's Fetch of the metadata log; it gets no response when that node dies."""

        def arrived(read: ResponseWithData) -> None:
            response = replace(read.response, records=read.data)
            self._world.schedule(self._delay_ms(), lambda: on_response(response))

        event = RequestReceived(token=self.expect_raft_response(arrived), request=request, listener=LISTENER)
        self._deliver_later(self._world.machines[node_id], event)

    def ask_active(self, sender: Machine, own: OwnRequest) -> None:
        """A controller registers with the active one, or sends it a heartbeat."""
        incarnation = sender.incarnation
        is_concluded = False

        def conclude(event: Any) -> None:
            nonlocal is_concluded
            if not is_concluded and sender.incarnation == incarnation:
                is_concluded = True
                self._world.deliver(sender, event)

        def failed(reason: str) -> None:
            conclude(OwnRequestFailed(request=own.request, reason=reason))

        def on_response(result: Any) -> None:
            if isinstance(result, ControlError):
                response = error_response(own.request, result.error_code, result.message)
                conclude(OwnRequestAnswered(response=response))
            elif isinstance(result, Exception):
                failed(str(result))
            else:
                conclude(OwnRequestAnswered(response=result))

        self._world.schedule(OWN_REQUEST_TIMEOUT_MS, partial(failed, "timed out"))
        target = self._machine_at(own.destination)
        if target is not None and not self._is_lost(sender.node_id, target.node_id):
            self.ask(target.node_id, own.request, on_response)
