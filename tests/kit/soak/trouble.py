"""Which nodes faults hold now, and in which state a fault finds the cluster."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kit.soak.nodes import SoakCluster
from kit.soak.observer import Observer
from kit.soak.schedule import RULES, Fault, State, choose, patience_s, trouble_max

POLL_EVERY_S = 0.25


class Trouble:
    """The nodes that faults hold. A fault asks for them, and gives them back when they are well again."""

    def __init__(self, cluster: SoakCluster, observer: Observer) -> None:
        self._cluster = cluster
        self._observer = observer
        self._lock = threading.Lock()
        self._held: set[int] = set()
        self._at_risk: set[int] = set()
        self._is_alone = False

    def held(self) -> frozenset[int]:
        """The nodes that faults hold."""
        with self._lock:
            return frozenset(self._held)

    def acquire(self, fault: Fault) -> tuple[int, ...] | str:
        """Hold the nodes that a fault may hit, as soon as there are any; the reason after its patience."""
        deadline = time.monotonic() + patience_s(fault.kind)
        while True:
            with self._lock:
                chosen = choose(fault, self._state())
                if not isinstance(chosen, str):
                    self._held.update(chosen)
                    self._is_alone = self._is_alone or RULES[fault.kind].alone
                    if RULES[fault.kind].loses_data:
                        self._at_risk.update(chosen)
                    return chosen
            if time.monotonic() >= deadline:
                return chosen
            time.sleep(POLL_EVERY_S)

    def release(self, fault: Fault, nodes: tuple[int, ...]) -> None:
        """A fault is over, and its nodes are well."""
        with self._lock:
            self._held.difference_update(nodes)
            self._at_risk.difference_update(nodes)
            if RULES[fault.kind].alone:
                self._is_alone = False

    @contextmanager
    def acquire_controller(self, node_id: int, timeout_s: float) -> Iterator[bool]:
        """Hold one controller while the context lasts, if that is possible before the time is over; whether it is."""
        deadline = time.monotonic() + timeout_s
        is_held = False
        while not is_held and time.monotonic() < deadline:
            with self._lock:
                troubled = self._held.intersection(self._cluster.controllers)
                room = len(troubled) < trouble_max(self._cluster.controllers)
                is_held = room and not self._is_alone and node_id not in self._held
                if is_held:
                    self._held.add(node_id)
            if not is_held:
                time.sleep(POLL_EVERY_S)
        try:
            yield is_held
        finally:
            if is_held:
                with self._lock:
                    self._held.discard(node_id)

    def _state(self) -> State:
        controllers = self._cluster.controllers
        return State(
            controllers=controllers,
            python=frozenset(self._cluster.python_controllers),
            brokers=self._cluster.brokers,
            leader=self._observer.leader(),
            in_trouble=frozenset(self._held),
            is_well=self._observer.caught_up() >= set(controllers) == self._observer.voters(),
            data_at_risk=bool(self._at_risk),
            is_alone=self._is_alone,
        )
