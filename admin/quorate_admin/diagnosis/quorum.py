"""Finds problems of the quorum: its leader, its voters, its size."""

from collections.abc import Iterator

from quorate_protocol.features import CONTROLLER_REGISTRATION_SINCE, KRAFT_VERSION, METADATA_VERSION

from quorate_admin.diagnosis.commands import Commands
from quorate_admin.diagnosis.facts import Examination, NodeKind, Subject
from quorate_admin.diagnosis.findings import Code, Finding, Severity
from quorate_admin.diagnosis.judgement import FETCH_SILENCE_MS_MAX, ClusterFacts, LeaderView
from quorate_admin.diagnosis.quorum_search import majority
from quorate_admin.types.cluster import QuorumDescription, ReplicaDescription


def find_in_quorum(facts: Examination, judged: ClusterFacts, commands: Commands) -> Iterator[Finding]:
    """Yield findings about leader, voters and observers."""
    if Subject.QUORUM in facts.unexamined:
        return  # whether there is a leader is unknown
    if facts.quorum is None:
        yield _no_leader(facts, commands)
        return
    view = LeaderView.of(facts.quorum)
    if facts.quorum.high_watermark < 0:
        yield Finding(
            severity=Severity.DANGER,
            code=Code.NOTHING_COMMITTED,
            message=f"The leader {facts.quorum.leader_id} has not committed anything in its epoch",
            evidence=f"Its high watermark is unknown in epoch {facts.quorum.leader_epoch}: it has no majority "
            "of the voters behind it, or has just been elected.",
            advice="Start the voters that are down.",
            commands=(commands.doctor(),),
        )
    yield from _size(facts.quorum, judged, commands)
    for voter in facts.quorum.voters:
        yield from _voter(facts, judged, view, voter, commands)
    for observer in facts.quorum.observers:
        if view.follows(observer) and not view.is_caught_up(observer):
            yield Finding(
                severity=Severity.WARNING,
                code=Code.OBSERVER_LAGGING,
                message=f"Observer {observer.node_id} does not keep up with the metadata log",
                evidence=_lag_text(view, observer),
                advice="It works with outdated metadata. Look for the reason in the log of node "
                f"{observer.node_id}: often a slow disk, a long pause or the network. The lag should shrink:",
                commands=(commands.describe_replication(),),
                node_id=observer.node_id,
            )
    yield from _static(facts, commands)


def _no_leader(facts: Examination, commands: Commands) -> Finding:
    if facts.search is not None:
        search = facts.search
        return Finding(
            severity=Severity.DANGER,
            code=Code.NO_LEADER,
            message=f"The quorum has no leader; {search.missing}",
            evidence="; ".join(part for part in (search.responders, search.reasons) if part)
            + ". Without a leader, nothing in the cluster's metadata can change.",
            advice=search.advice,
            commands=(commands.doctor(),),
        )
    known = sorted(facts.controllers or ())
    silent = [node_id for node_id in known if node_id in facts.unreachable]
    advice = "Start the controllers that are down: a majority of the voters has to run."
    if silent:
        advice = f"Start {_listed('controller', silent)}: a majority of the voters has to run."
    reasons = "; ".join(f"{node_id}: {facts.unreachable[node_id]}" for node_id in silent)
    return Finding(
        severity=Severity.DANGER,
        code=Code.NO_LEADER,
        message="The quorum has no leader: nothing in the cluster's metadata can change",
        evidence=". ".join(part for part in (facts.quorum_problem, reasons) if part)
        or "No node names a leader.",
        advice=advice,
        commands=(commands.doctor(),),
    )


def _size(quorum: QuorumDescription, judged: ClusterFacts, commands: Commands) -> Iterator[Finding]:
    size = len(quorum.voters)
    if size == 1:
        yield Finding(
            severity=Severity.NOTE,
            code=Code.SINGLE_VOTER,
            message=f"The quorum has one voter, {quorum.leader_id}: if it fails, the cluster stops",
            evidence="Three voters survive the loss of one.",
            advice="Format and start another controller, then run, with its properties:",
            commands=(commands.add_voter(),),
        )
    elif size % 2 == 0:
        yield Finding(
            severity=Severity.NOTE,
            code=Code.EVEN_VOTERS,
            message=f"The quorum has an even number of voters, {size}",
            evidence=f"It survives the loss of {size - majority(size)}, as a quorum of {size - 1} does.",
            advice="Format and start another controller, then run, with its properties:",
            commands=(commands.add_voter(),),
        )
    lacking = sorted(judged.voter_ids - judged.caught_up_voters)
    if size > 1 and lacking and judged.spare_voters <= 0:
        yield Finding(
            severity=Severity.DANGER,
            code=Code.ONE_FAILURE_FROM_LOSS,
            message="The next failure of a voter stops the cluster",
            evidence=f"{size - len(lacking)} of {size} voters are caught up, and {majority(size)} are a majority; "
            f"{_listed('voter', lacking)} {'is' if len(lacking) == 1 else 'are'} not.",
            advice=_bring_back(judged, lacking),
            commands=(commands.doctor(),),
        )


def _bring_back(judged: ClusterFacts, lacking: list[int]) -> str:
    silent = sorted(voter.node_id for voter in judged.voters if not voter.follows)
    if silent:
        return f"Start {_listed('controller', silent)}."
    return f"Wait until {_listed('voter', lacking)} has caught up, before another one is restarted."


def _voter(
    facts: Examination,
    judged: ClusterFacts,
    view: LeaderView,
    voter: ReplicaDescription,
    commands: Commands,
) -> Iterator[Finding]:
    node_id = voter.node_id
    is_dynamic = facts.finalized(KRAFT_VERSION) >= 1
    if not view.follows(voter):
        silence_ms = view.silence_ms(voter)
        since = "since the leader was elected" if silence_ms is None else f"for {silence_ms} ms"
        advice, ways = _way_back(view, voter, commands, is_dynamic=is_dynamic)
        yield Finding(
            severity=Severity.WARNING,
            code=Code.VOTER_SILENT,
            message=f"Voter {node_id} does not follow the log",
            evidence=f"It has not fetched {since}; a live voter fetches every 500 ms, and counts as silent "
            f"after {FETCH_SILENCE_MS_MAX} ms.",
            advice=advice,
            commands=ways,
            node_kind=NodeKind.CONTROLLER,
            node_id=node_id,
        )
    elif not view.is_caught_up(voter):
        yield Finding(
            severity=Severity.WARNING,
            code=Code.VOTER_LAGGING,
            message=f"Voter {node_id} does not keep up with the log",
            evidence=_lag_text(view, voter),
            advice=f"Look for the reason in the log of controller {node_id}: often a slow disk, a long pause or the "
            "network. The lag should shrink:",
            commands=(commands.describe_replication(),),
            node_kind=NodeKind.CONTROLLER,
            node_id=node_id,
        )
    yield from _registration_of_voter(facts, judged, view.quorum, node_id, commands)


def _way_back(
    view: LeaderView, voter: ReplicaDescription, commands: Commands, *, is_dynamic: bool
) -> tuple[str, tuple[str, ...]]:
    """What to do about a voter that does not follow: the advice, and the commands after it."""
    node_id = voter.node_id
    if not is_dynamic:
        return f"Start controller {node_id}.", ()
    remove = commands.remove_voter(node_id, voter.directory_id)
    if any(observer.node_id == node_id and view.follows(observer) for observer in view.quorum.observers):
        advice = (
            f"Controller {node_id} runs with another directory: it was formatted again, or its disk was replaced. "
            "Remove the voter with the old directory. Then add the controller, on its host, with its own properties "
            "as controller.properties:"
        )
        return advice, (remove, commands.add_voter())
    return f"Start controller {node_id}. If it is gone for good, remove it from the quorum:", (remove,)


def _registration_of_voter(
    facts: Examination, judged: ClusterFacts, quorum: QuorumDescription, node_id: int, commands: Commands
) -> Iterator[Finding]:
    if facts.controllers is None or facts.finalized(METADATA_VERSION) < CONTROLLER_REGISTRATION_SINCE:
        return
    registered = facts.controllers.get(node_id)
    if registered is None:
        yield Finding(
            severity=Severity.BLOCKED,
            code=Code.VOTER_NOT_REGISTERED,
            message=f"Voter {node_id} is not registered, so that no feature can be upgraded",
            evidence=f"Registered are {_listed('controller', sorted(facts.controllers)) or 'no controllers'}"
            + (
                "." if facts.is_log_read else "; one that was registered without listeners would not be seen."
            ),
            advice=f"Controller {node_id} runs, and registers itself within seconds. If it does not, its log has the "
            "reason. Then:"
            if judged.follows(node_id)
            else f"Start controller {node_id}: it registers itself. If it does not, its log has the reason. Then:",
            commands=(commands.doctor(),),
            node_kind=NodeKind.CONTROLLER,
            node_id=node_id,
        )
        return
    listed = {(endpoint.host, endpoint.port) for endpoint in quorum.nodes.get(node_id, ())}
    if listed and registered.endpoints and not listed & set(registered.endpoints):
        yield Finding(
            severity=Severity.WARNING,
            code=Code.VOTER_ENDPOINTS_DIFFER,
            message=f"Voter {node_id} registered other addresses than the voter set has",
            evidence=f"The voter set has {_addresses(listed)}, it registered {_addresses(registered.endpoints)}.",
            advice=f"Restart controller {node_id} if its addresses are right: it then corrects its voter entry."
            if facts.finalized(KRAFT_VERSION) >= 1
            else f"Correct {node_id} in controller.quorum.voters of every node, and restart them one by one.",
            commands=(commands.describe_status(),),
            node_kind=NodeKind.CONTROLLER,
            node_id=node_id,
        )


def _static(facts: Examination, commands: Commands) -> Iterator[Finding]:
    outlook = next((outlook for outlook in facts.outlooks if outlook.feature == KRAFT_VERSION), None)
    if outlook is not None and outlook.finalized == 0 and outlook.reachable >= 1:
        yield Finding(
            severity=Severity.NOTE,
            code=Code.QUORUM_STATIC,
            message="The quorum is static. It could be dynamic, so that voters can be added and removed",
            evidence=f"{KRAFT_VERSION} is 0, and every node supports {outlook.reachable} (KIP-853).",
            commands=(commands.upgrade(KRAFT_VERSION, outlook.reachable),),
        )


def _lag_text(view: LeaderView, replica: ReplicaDescription) -> str:
    leader = next((voter for voter in view.quorum.voters if voter.node_id == view.quorum.leader_id), None)
    behind = "" if leader is None else f"{leader.log_end_offset - replica.log_end_offset} records behind"
    behind_ms = view.behind_ms(replica)
    when = (
        "has not had everything since the leader was elected"
        if behind_ms is None
        else f"had everything last {behind_ms} ms ago"
    )
    return f"It is {behind} and {when}." if behind else f"It {when}."


def _listed(what: str, node_ids: list[int]) -> str:
    if not node_ids:
        return ""
    return f"{what}{'s' if len(node_ids) > 1 else ''} {', '.join(map(str, node_ids))}"


def _addresses(endpoints: set[tuple[str, int]] | tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in sorted(endpoints))


def running_ghosts(facts: Examination, judged: ClusterFacts) -> tuple[int, ...]:
    """Return the controllers that would be ghosts, if they did not answer at their registered addresses."""
    return tuple(node_id for node_id in judged.ghosts if node_id in facts.answering)


def find_in_observers(facts: Examination, judged: ClusterFacts, commands: Commands) -> Iterator[Finding]:
    """Yield findings about nodes that run and are no voters."""
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
