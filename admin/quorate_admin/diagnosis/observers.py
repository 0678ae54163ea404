"""Finds controllers that could become voters, and nodes that run without what they should have.

A ghost is a registration of a node that is gone (`registrations`). Here are nodes that run: without a registration,
or with one and without following the log.
"""

from collections.abc import Iterator

from quorate_admin.diagnosis.commands import Commands
from quorate_admin.diagnosis.facts import Examination, NodeKind
from quorate_admin.diagnosis.findings import Code, Finding, Severity
from quorate_admin.diagnosis.judgement import ClusterFacts


def running_ghosts(facts: Examination, judged: ClusterFacts) -> tuple[int, ...]:
    """Returns the controllers that would be ghosts, if they did not answer at their registered addresses."""
    return tuple(node_id for node_id in judged.ghosts if node_id in facts.answering)


def find_in_observers(facts: Examination, judged: ClusterFacts, commands: Commands) -> Iterator[Finding]:
    """Yields findings about nodes that run and are no voters."""
    for node_id in running_ghosts(facts, judged):
        yield _not_following(facts, node_id, commands)
    if not facts.is_log_read:
        return  # registrations of controllers are unknown
    named = {} if facts.partitions is None else facts.partitions.unregistered
    for node_id in judged.unregistered:
        if node_id not in named:  # it is a broker, and a finding about partitions
            yield _not_registered(node_id, commands)
    for node_id in judged.possible_voters:
        yield _could_vote(judged, node_id, commands)


def _not_following(facts: Examination, node_id: int, commands: Commands) -> Finding:
    registered = (facts.controllers or {}).get(node_id)
    endpoints = () if registered is None else registered.endpoints
    where = ", ".join(f"{host}:{port}" for host, port in endpoints) or "its address"
    return Finding(
        severity=Severity.WARNING,
        code=Code.CONTROLLER_NOT_FOLLOWING,
        message=f"Controller {node_id} runs and is registered, but does not follow the metadata log",
        evidence=f"It answers at {where}, is not a voter, and does not fetch from the leader. Its registration keeps "
        "feature levels back as that of a live controller does.",
        advice=f"Look for the reason in the log of controller {node_id}: often it does not reach the leader, or "
        "its controller.quorum.bootstrap.servers are wrong. If it is not needed, stop it. Then:",
        commands=(commands.doctor(),),
        node_kind=NodeKind.CONTROLLER,
        node_id=node_id,
    )


def _not_registered(node_id: int, commands: Commands) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        code=Code.OBSERVER_NOT_REGISTERED,
        message=f"Node {node_id} follows the metadata log, and is registered neither as a broker nor as a controller",
        evidence="It is starting, its registration is refused, or it was removed while the node ran. Clients and "
        "other nodes can't see it.",
        advice=f"Wait some seconds and run the doctor again. If the finding stays, the log of node {node_id} has the "
        "reason. A broker whose registration was removed has to be restarted: it registers only when it starts.",
        commands=(commands.doctor(),),
        node_id=node_id,
    )


def _could_vote(judged: ClusterFacts, node_id: int, commands: Commands) -> Finding:
    voters = sorted(judged.voter_ids)
    return Finding(
        severity=Severity.NOTE,
        code=Code.CONTROLLER_COULD_VOTE,
        message=f"Controller {node_id} follows the metadata log and could become a voter",
        evidence="It is registered and caught up. The quorum is dynamic; its voters are "
        f"{', '.join(map(str, voters))}.",
        advice="If it shall vote, run this on its host, with its own properties as controller.properties:",
        commands=(commands.add_voter(),),
        node_kind=NodeKind.CONTROLLER,
        node_id=node_id,
    )
