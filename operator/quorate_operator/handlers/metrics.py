"""The operator's metrics for Prometheus: names and meaning are Strimzi's, with the prefix `quorate_`."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from quorate_protocol.bounded_http.places import HttpLimit

from quorate_operator.resources.cluster_authority import CertificateTimes

_LABELS = ("kind", "namespace")
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class OperatorMetrics:
    """The metrics of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._states: dict[tuple[str, str, str], str] = {}
        """The reason of each resource, by kind, name and namespace."""
        self._resources: dict[tuple[str, str], set[str]] = {}
        self._paused: dict[tuple[str, str], set[str]] = {}
        """uids by kind and namespace."""
        self.reconciliations = self._counter("reconciliations", "Passes over a cluster or its entities.")
        self.successful = self._counter("reconciliations_successful", "Passes that succeeded.")
        self.failed = self._counter("reconciliations_failed", "Passes that failed.")
        self.faults = self._counter("reconcile_faults", "Faults of the operator in a pass.")
        self.duration = Histogram(
            "quorate_reconciliations_duration_seconds",
            "Duration of a pass, including its steps.",
            _LABELS,
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.resources = self._gauge("resources", "Resources that the operator selects.")
        self.paused = self._gauge("resources_paused", "Resources that are paused.")
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
        self.has_leader = Gauge(
            "quorate_quorum_has_leader",
            "1 while the quorum's leader answers the operator, else 0.",
            ("name", "resource_namespace"),
            registry=self.registry,
        )
        self._certificates: dict[tuple[str, str], frozenset[str]] = {}
        """The Secrets by name and namespace of the cluster."""
        of_certificate = ("name", "resource_namespace", "secret")
        self.certificate_expiry = Gauge(
            "quorate_issued_certificate_expiry_timestamp_seconds",
            "When a certificate that the operator issued, or the authority of a cluster, expires, in Unix seconds.",
            of_certificate,
            registry=self.registry,
        )
        self.certificate_renewal = Gauge(
            "quorate_issued_certificate_renewal_timestamp_seconds",
            "When the operator is to renew the certificate or to replace the authority, in Unix seconds.",
            of_certificate,
            registry=self.registry,
        )
        self.http_limits = Counter(
            "quorate_limited_connections",
            "Connections that a limit of an HTTP server refused, closed or delayed.",
            ("server", "limit"),
            registry=self.registry,
        )
        self.leading = Gauge(
            "quorate_leader", "1 in the replica that reconciles, 0 in one that waits.", registry=self.registry
        )

        self.unread = Gauge(
            "quorate_api_server_unread_seconds",
            "Time since which the API server has answered no request of the operator, 0 while it answers.",
            registry=self.registry,
        )
        self.unlisted = Gauge(
            "quorate_unlisted_kinds",
            "Kinds of objects that the operator can't list, counted in each watched namespace.",
            registry=self.registry,
        )

    def http_limit_counter(self, server: str) -> Callable[[HttpLimit], None]:
        """Return what counts a limit that one of the operator's HTTP servers applied."""
        return lambda limit: self.http_limits.labels(server, limit.value).inc()

    def count_pass(self, kind: str, namespace: str, duration_s: float, *, has_failed: bool) -> None:
        """Count one pass over a cluster, or over the due resources of a kind."""
        self.reconciliations.labels(kind, namespace).inc()
        self.duration.labels(kind, namespace).observe(duration_s)
        (self.failed if has_failed else self.successful).labels(kind, namespace).inc()

    def count_resource(self, kind: str, namespace: str, uid: str, *, exists: bool, is_paused: bool) -> None:
        """Count a resource that exists, and one that is paused."""
        for counted, gauge, is_counted in (
            (self._resources, self.resources, exists),
            (self._paused, self.paused, is_paused),
        ):
            uids = counted.setdefault((kind, namespace), set())
            (uids.add if is_counted else uids.discard)(uid)
            gauge.labels(kind, namespace).set(len(uids))

    def set_leader(self, namespace: str, name: str, *, has_leader: bool | None) -> None:
        """Set whether a quorum's leader answers; None if none is expected: not formed, hibernated or deleted."""
        if has_leader is not None:
            self.has_leader.labels(name, namespace).set(has_leader)
            return
        self.has_leader.remove(name, namespace)

    def set_certificates(self, namespace: str, name: str, times: Mapping[str, CertificateTimes]) -> None:
        """Set when the certificates of a cluster expire and are renewed, by the name of the Secret."""
        key = (name, namespace)
        for secret in self._certificates.pop(key, frozenset()) - times.keys():
            self.certificate_expiry.remove(*key, secret)
            self.certificate_renewal.remove(*key, secret)
        for secret, (expiry_s, renewal_s) in times.items():
            self.certificate_expiry.labels(*key, secret).set(expiry_s)
            self.certificate_renewal.labels(*key, secret).set(renewal_s)
        if times:
            self._certificates[key] = frozenset(times)

    def set_state(self, kind: str, namespace: str, name: str, reason: str | None) -> None:
        """Set a resource's state. `reason` is why it is not ready, empty if it is ready, None if it is deleted."""
        before = self._states.pop((kind, name, namespace), None)
        if before is not None and before != reason:
            self.state.remove(kind, name, namespace, before)
        if reason is not None:
            self._states[kind, name, namespace] = reason
            self.state.labels(kind, name, namespace, reason).set(0 if reason else 1)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"quorate_{name}", text, _LABELS, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"quorate_{name}", text, _LABELS, registry=self.registry)
