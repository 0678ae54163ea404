"""The metrics of the certificates that the operator issues."""

from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.resources.cluster_authority import CertificateTimes

TIMES = {"quorum-ca": CertificateTimes(300.0, 200.0), "brokers-in-tls": CertificateTimes(30.0, 20.0)}


def ends(metrics: OperatorMetrics) -> dict[str, tuple[float | None, float | None]]:
    """The end and the renewal by Secret."""

    def value(name: str, secret: str) -> float | None:
        labels = {"name": "quorum", "resource_namespace": "kafka", "secret": secret}
        return metrics.registry.get_sample_value(
            f"quorate_issued_certificate_{name}_timestamp_seconds", labels
        )

    return {secret: (value("expiry", secret), value("renewal", secret)) for secret in TIMES}


def test_the_end_of_each_certificate_is_a_metric_until_it_is_gone() -> None:
    metrics = OperatorMetrics()
    metrics.set_certificates("kafka", "quorum", TIMES)
    assert ends(metrics) == {"quorum-ca": (300.0, 200.0), "brokers-in-tls": (30.0, 20.0)}
    metrics.set_certificates("kafka", "quorum", {"quorum-ca": CertificateTimes(400.0, 350.0)})
    assert ends(metrics) == {"quorum-ca": (400.0, 350.0), "brokers-in-tls": (None, None)}
    metrics.set_certificates("kafka", "quorum", {})
    assert ends(metrics) == {"quorum-ca": (None, None), "brokers-in-tls": (None, None)}
