"""The operator's metrics for Prometheus: names and meaning are Strimzi's, with the prefix `quorate_`."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_LABELS = ("kind", "namespace")
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class OperatorMetrics:
    """The metrics of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciliations = self._counter("reconciliations", "Looks at a cluster, with what followed.")
        self.successful = self._counter("reconciliations_successful", "Those that ended well.")
        self.failed = self._counter("reconciliations_failed", "Those that ended with an error.")
        self.faults = self._counter("reconcile_faults", "Faults of the operator that ended a cluster's loop.")
        self.duration = Histogram(
            "quorate_reconciliations_duration_seconds",
            "How long a look and the steps that followed took.",
            _LABELS,
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.resources = self._gauge("resources", "Resources that the operator sees.")
        self.paused = self._gauge("resources_paused", "Those that are paused.")
        self.steps = Counter(
            "quorate_steps",
            "Steps of plans that were done, by kind of step and result.",
            ("step", "result"),
            registry=self.registry,
        )
        self.state = Gauge(
            "quorate_resource_state",
            "1 while the resource is ready, else 0.",
            ("kind", "name", "resource_namespace", "reason"),
            registry=self.registry,
        )
        self.leading = Gauge(
            "quorate_leader", "1 in the replica that reconciles, 0 in one that waits.", registry=self.registry
        )

    def set_state(self, kind: str, namespace: str, name: str, reason: str | None) -> None:
        """Sets a resource's state. `reason` is why it is not ready, empty if it is ready, None if it is deleted."""
        for labels in self._states_of(kind, namespace, name):
            self.state.remove(*labels)
        if reason is not None:
            self.state.labels(kind, name, namespace, reason).set(0 if reason else 1)

    def _states_of(self, kind: str, namespace: str, name: str) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for family in self.state.collect():
            for sample in family.samples:
                labels = sample.labels
                if (labels["kind"], labels["name"], labels["resource_namespace"]) == (kind, name, namespace):
                    found.append((kind, name, namespace, labels["reason"]))
        return found

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"quorate_{name}", text, _LABELS, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"quorate_{name}", text, _LABELS, registry=self.registry)
