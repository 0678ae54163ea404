"""What endangers or blocks a cluster, and the way out. Pure: an examination in, findings out.

facts = Examination(quorum=..., features=..., ...)      # gathered by `quorate_admin.examination`
for finding in diagnose(facts).findings: ...
"""

from quorate_admin.diagnosis.commands import Commands
from quorate_admin.diagnosis.facts import (
    Blocker,
    Examination,
    FeatureOutlook,
    NodeKind,
    RegisteredNode,
)
from quorate_admin.diagnosis.features import (
    Probe,
    parse_refusal,
    probe_outlook,
    registered_outlooks,
    supports,
)
from quorate_admin.diagnosis.findings import Code, Diagnosis, Finding, Severity
from quorate_admin.diagnosis.judgement import (
    CAUGHT_UP_AGE_MS_MAX,
    FETCH_SILENCE_MS_MAX,
    ClusterFacts,
    JudgedReplica,
    LeaderView,
    Presence,
    judge,
    majority,
)
from quorate_admin.diagnosis.quorum import find_in_quorum
from quorate_admin.diagnosis.registrations import find_in_registrations

__all__ = (
    "CAUGHT_UP_AGE_MS_MAX",
    "FETCH_SILENCE_MS_MAX",
    "Blocker",
    "ClusterFacts",
    "Code",
    "Commands",
    "Diagnosis",
    "Examination",
    "FeatureOutlook",
    "Finding",
    "JudgedReplica",
    "LeaderView",
    "NodeKind",
    "Presence",
    "Probe",
    "RegisteredNode",
    "Severity",
    "diagnose",
    "judge",
    "majority",
    "parse_refusal",
    "probe_outlook",
    "registered_outlooks",
    "supports",
)


def diagnose(facts: Examination, commands: Commands | None = None) -> Diagnosis:
    """Returns all findings about a cluster, the worst first."""
    commands = commands or Commands()
    judged = judge(facts)
    findings = [*find_in_quorum(facts, judged, commands), *find_in_registrations(facts, judged, commands)]
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Diagnosis(findings=tuple(findings), outlooks=facts.outlooks)
