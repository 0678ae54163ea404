"""What endangers or blocks a cluster, and the way out. Pure: facts in, findings out.

facts = Facts(quorum=..., features=..., ...)      # found out by `quorate_admin.examination`, or by an operator
for finding in diagnose(facts).findings: ...
"""

from quorate_admin.diagnosis.commands import Commands
from quorate_admin.diagnosis.facts import (
    FETCH_SILENCE_MS,
    Blocker,
    Facts,
    FeatureOutlook,
    NodeKind,
    RegisteredNode,
)
from quorate_admin.diagnosis.features import Probe, parse_refusal, probe_outlook, registered_outlooks
from quorate_admin.diagnosis.findings import Code, Diagnosis, Finding, Severity
from quorate_admin.diagnosis.quorum import find_in_quorum
from quorate_admin.diagnosis.registrations import Presence, find_in_registrations, presence_of

__all__ = (
    "FETCH_SILENCE_MS",
    "Blocker",
    "Code",
    "Commands",
    "Diagnosis",
    "Facts",
    "FeatureOutlook",
    "Finding",
    "NodeKind",
    "Presence",
    "Probe",
    "RegisteredNode",
    "Severity",
    "diagnose",
    "parse_refusal",
    "presence_of",
    "probe_outlook",
    "registered_outlooks",
)


def diagnose(facts: Facts, commands: Commands | None = None) -> Diagnosis:
    """Everything that is to be said about a cluster, the worst first."""
    commands = commands or Commands()
    findings = [*find_in_quorum(facts, commands), *find_in_registrations(facts, commands)]
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Diagnosis(findings=tuple(findings), outlooks=facts.outlooks)
