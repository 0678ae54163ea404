"""Reports what could not be examined, so that the lack of findings about it does not look like health."""

from collections.abc import Callable, Iterator

from quorate_admin.diagnosis.commands import Commands
from quorate_admin.diagnosis.facts import Examination, Subject
from quorate_admin.diagnosis.findings import Code, Finding, Severity


def find_unexamined(facts: Examination, commands: Commands) -> Iterator[Finding]:
    """Yield a finding for each subject of which nothing, or not everything, is known.

    It is a note if the subject can't be examined in this way, or if another finding has the reason; else a warning.
    """
    for subject, reason in sorted(facts.unexamined.items()):
        yield _FINDINGS[subject](facts, reason, commands)


def _quorum(_: Examination, reason: str, commands: Commands) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        code=Code.QUORUM_NOT_EXAMINED,
        message="The quorum was not examined: leader, voters and lag are unknown",
        evidence=reason,
        advice="Run the doctor as a principal that has DESCRIBE on the cluster:",
        commands=(commands.doctor(),),
    )


def _registrations(facts: Examination, reason: str, commands: Commands) -> Finding:
    if facts.is_through_brokers:
        return Finding(
            severity=Severity.NOTE,
            code=Code.REGISTRATIONS_NOT_EXAMINED,
            message="Registrations of controllers were not examined: brokers do not return them",
            evidence="A ghost controller is found only if it blocks a feature level, and a controller that could "
            "become a voter not at all.",
            advice="To examine them, connect to controllers:",
            commands=(commands.doctor_of_controllers(),),
        )
    return Finding(
        severity=_severity(facts),
        code=Code.REGISTRATIONS_NOT_EXAMINED,
        message="Registrations without listeners, and those of brokers, were not examined: the metadata log was not "
        "read",
        evidence=reason,
        advice=_log_advice(facts),
        commands=(commands.doctor(),),
    )


def _partitions(facts: Examination, reason: str, commands: Commands) -> Finding:
    known = facts.partitions
    return Finding(
        severity=_severity(facts),
        code=Code.PARTITIONS_NOT_EXAMINED,
        message="Partitions were not examined: whether all have a leader is unknown"
        if known is None
        else f"Only {known.partitions} partitions of {known.topics} topics were examined",
        evidence=reason,
        advice="Run the doctor as a principal that has DESCRIBE on all topics:"
        if facts.is_through_brokers
        else f"{_log_advice(facts)} Brokers report partitions, too: `quorate doctor --bootstrap-server HOST:PORT`.",
        commands=(commands.doctor(),),
    )


def _min_isr(facts: Examination, reason: str, commands: Commands) -> Finding:
    count = 0 if facts.partitions is None else facts.partitions.min_isr_unknown
    return Finding(
        severity=Severity.NOTE,
        code=Code.MIN_ISR_NOT_EXAMINED,
        message=f"{count} partition{' lacks' if count == 1 else 's lack'} replicas in sync; whether acks=all works "
        "was not examined",
        evidence=reason,
        advice="Brokers report it:",
        commands=(commands.describe_partitions("--under-min-isr-partitions"),),
        count=count,
    )


def _addresses(_: Examination, reason: str, commands: Commands) -> Finding:
    return Finding(
        severity=Severity.NOTE,
        code=Code.ADDRESSES_NOT_EXAMINED,
        message="Whether addresses lead to their nodes was not examined",
        evidence=reason,
        advice="Run the doctor as a principal that has DESCRIBE_CONFIGS on the cluster:",
        commands=(commands.doctor(),),
    )


_FINDINGS: dict[Subject, Callable[[Examination, str, Commands], Finding]] = {
    Subject.QUORUM: _quorum,
    Subject.REGISTRATIONS: _registrations,
    Subject.PARTITIONS: _partitions,
    Subject.MIN_INSYNC_REPLICAS: _min_isr,
    Subject.ADDRESSES: _addresses,
}


def _severity(facts: Examination) -> Severity:
    """Only the leader serves the log: without one, the finding about it has the reason."""
    has_no_leader = facts.quorum is None and Subject.QUORUM not in facts.unexamined
    return Severity.NOTE if has_no_leader else Severity.WARNING


def _log_advice(facts: Examination) -> str:
    if _severity(facts) is Severity.NOTE:
        return "The leader alone serves the log: run the doctor again when there is one."
    return "Run the doctor as a principal that has CLUSTER_ACTION on the cluster."
