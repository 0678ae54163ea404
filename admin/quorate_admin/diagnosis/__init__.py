# ruff: noqa: I001 - one statement for each module, though the names are exported by `as`
"""Finds what endangers or blocks a cluster, and how to solve it. Pure: it turns an examination into findings.

facts = Examination(quorum=..., features=..., ...)      # gathered by `quorate_admin.examination`
for finding in diagnose(facts).findings: ...
"""

from quorate_admin.diagnosis.client_facts import (
    BrokerSample as BrokerSample,
    ClientFacts as ClientFacts,
    ConnectedClient as ConnectedClient,
    clients_of_pages as clients_of_pages,
)
from quorate_admin.diagnosis.commands import Commands as Commands
from quorate_admin.diagnosis.facts import (
    Blocker as Blocker,
    Examination as Examination,
    FeatureOutlook as FeatureOutlook,
    NodeKind as NodeKind,
    PartitionFacts as PartitionFacts,
    PartitionTally as PartitionTally,
    RegisteredNode as RegisteredNode,
    Subject as Subject,
    TroubledPartitions as TroubledPartitions,
    partitions_of_image as partitions_of_image,
)
from quorate_admin.diagnosis.features import (
    LevelProbe as LevelProbe,
    parse_refusal as parse_refusal,
    probe_outlook as probe_outlook,
    registered_outlooks as registered_outlooks,
    supports as supports,
)
from quorate_admin.diagnosis.findings import (
    Code as Code,
    Diagnosis as Diagnosis,
    Finding as Finding,
    Severity as Severity,
)
from quorate_admin.diagnosis.judgement import (
    CAUGHT_UP_AGE_MS_MAX as CAUGHT_UP_AGE_MS_MAX,
    FETCH_SILENCE_MS_MAX as FETCH_SILENCE_MS_MAX,
    ClusterFacts as ClusterFacts,
    JudgedReplica as JudgedReplica,
    LeaderView as LeaderView,
    Presence as Presence,
    judge as judge,
)
from quorate_admin.diagnosis.known_clients import (
    Rebootstraps as Rebootstraps,
    judge_client as judge_client,
)
from quorate_admin.diagnosis.quorum_search import (
    AskedController as AskedController,
    QuorumSearch as QuorumSearch,
    majority as majority,
)
from quorate_admin.diagnosis.clients import find_in_clients
from quorate_admin.diagnosis.coverage import find_unexamined
from quorate_admin.diagnosis.partitions import find_in_partitions
from quorate_admin.diagnosis.quorum import find_in_observers, find_in_quorum
from quorate_admin.diagnosis.registrations import find_in_registrations


def diagnose(facts: Examination, commands: Commands | None = None) -> Diagnosis:
    """Return all findings about a cluster, the worst first."""
    commands = commands or Commands()
    judged = judge(facts)
    findings = [
        *find_in_quorum(facts, judged, commands),
        *find_in_partitions(facts, judged, commands),
        *find_in_observers(facts, judged, commands),
        *find_in_registrations(facts, judged, commands),
        *find_in_clients(facts, commands),
        *find_unexamined(facts, commands),
    ]
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Diagnosis(findings=tuple(findings), outlooks=facts.outlooks)
