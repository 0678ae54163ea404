"""Finds problems of registrations: ghosts, fenced brokers, wrong addresses, and blocked feature levels."""

from collections.abc import Iterable, Iterator

from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import (
    CONTROLLER_UNREGISTRATION_SINCE,
    METADATA_VERSION,
    metadata_version_name,
)
from quorate_protocol.kafka.releases import DEFAULT_RELEASE, RELEASES, Release

from quorate_admin.diagnosis.commands import Commands
from quorate_admin.diagnosis.facts import Blocker, Examination, FeatureOutlook, NodeKind, RegisteredNode
from quorate_admin.diagnosis.findings import Code, Finding, Severity
from quorate_admin.diagnosis.judgement import ClusterFacts, Presence


def find_in_registrations(facts: Examination, judged: ClusterFacts, commands: Commands) -> Iterator[Finding]:
    """Yield findings about registered controllers and brokers, and about feature levels."""
    blocking: dict[tuple[NodeKind, int], list[tuple[FeatureOutlook, Blocker]]] = {}
    for outlook in facts.outlooks:
        for blocker in outlook.blockers:
            if blocker.is_registered:  # a voter that is not is a finding about the quorum
                blocking.setdefault((blocker.kind, blocker.node_id), []).append((outlook, blocker))
    for (kind, node_id), blocked in sorted(blocking.items()):
        presence = judged.presence_of(node_id)
        if presence is not Presence.ALIVE or _lacks_levels_of(_release(facts), blocked):
            yield _blocks(facts, kind, node_id, blocked, commands, presence=presence)
    for node_id in judged.ghosts:
        if (NodeKind.CONTROLLER, node_id) not in blocking and node_id not in facts.answering:
            yield _idle_ghost(facts, node_id, commands)
    for broker in _brokers(facts):
        if broker.fenced and (NodeKind.BROKER, broker.node_id) not in blocking:
            yield _fenced(facts, judged, broker, commands)
    for node_id, address in sorted(facts.misrouted.items()):
        if node_id not in judged.ghosts:  # another node may have the address of a node that is gone
            yield _misrouted(facts, node_id, address, commands)
    yield from _behind(facts, commands)
    if facts.outlook_problem is not None:
        yield Finding(
            severity=Severity.WARNING,
            code=Code.FEATURE_UNKNOWN,
            message="The highest possible level of some features is unknown",
            evidence=facts.outlook_problem,
            advice="Run the doctor as a principal that has ALTER on the cluster, as an upgrade needs it, too:"
            if ErrorCode.cluster_authorization_failed.name.upper() in facts.outlook_problem
            else None,
            commands=(commands.doctor(),),
        )


def _misrouted(facts: Examination, node_id: int, address: str, commands: Commands) -> Finding:
    # Only nodes of the kind that the client connects to were asked.
    kind = NodeKind.BROKER if facts.controllers is None else NodeKind.CONTROLLER
    return Finding(
        severity=Severity.WARNING,
        code=Code.ADDRESS_LEADS_ELSEWHERE,
        message=f"The address of {kind} {node_id} leads to another node",
        evidence=f"The node that answers at {address} is not {kind} {node_id} of this cluster.",
        advice="Correct the DNS record, Service or proxy behind that address; restart nothing.",
        commands=(commands.doctor(),),
        node_kind=kind,
        node_id=node_id,
    )


def _blocks(
    facts: Examination,
    kind: NodeKind,
    node_id: int,
    blocked: list[tuple[FeatureOutlook, Blocker]],
    commands: Commands,
    *,
    presence: Presence,
) -> Finding:
    ranges = {
        outlook.feature: (max(blocker.highest, outlook.finalized) + 1, outlook.target)
        for outlook, blocker in blocked
    }
    is_running = presence is Presence.GONE and node_id in facts.answering
    ghost = "Ghost " if presence is Presence.GONE and not is_running else ""
    levels = ", ".join(_levels_text(feature, *levels) for feature, levels in ranges.items())
    who = f"{ghost}{kind} {node_id}"
    supported = ", ".join(
        f"{outlook.feature} {blocker.lowest} to {blocker.highest}"
        if blocker.highest
        else f"no {outlook.feature}"
        for outlook, blocker in blocked
    )
    finalized = ", ".join(f"{outlook.feature} {outlook.finalized}" for outlook, _ in blocked)
    advice, ways = _way_out(facts, kind, node_id, presence, commands)
    return Finding(
        severity=Severity.BLOCKED,
        code=Code.FEATURE_BLOCKED,
        message=f"{who[0].upper()}{who[1:]} blocks {levels}",
        evidence=f"It is registered with {supported}; the cluster has {finalized}. "
        + _presence_text(facts, presence, kind, node_id),
        advice=advice,
        commands=(*ways, *_upgrade(blocked, commands)),
        node_kind=kind,
        node_id=node_id,
        blocks=ranges,
    )


def _lacks_levels_of(release: Release, blocked: list[tuple[FeatureOutlook, Blocker]]) -> bool:
    """Whether a blocked level belongs to the release. That a live node lacks levels of later ones is no problem."""
    levels = {METADATA_VERSION: release.metadata_version, **release.feature_levels}
    return any(blocker.highest < levels.get(outlook.feature, 0) for outlook, blocker in blocked)


def _release(facts: Examination) -> Release:
    """The newest release that a broker runs, by its registration; that of new clusters without any.

    Our controllers support the levels of all releases, which does not show the one that a cluster runs.
    """
    highest = max(
        (broker.features.get(METADATA_VERSION, (0, 0))[1] for broker in _brokers(facts) if broker.features),
        default=0,
    )
    run = [release for release in RELEASES.values() if release.metadata_version <= highest]
    return run[-1] if run else RELEASES[DEFAULT_RELEASE]


def _brokers(facts: Examination) -> Iterable[RegisteredNode]:
    return (facts.brokers or {}).values()


def _way_out(
    facts: Examination, kind: NodeKind, node_id: int, presence: Presence, commands: Commands
) -> tuple[str | None, tuple[str, ...]]:
    """Return what to do about a blocker: the advice for what has to be done by hand or None, and the commands."""
    if presence is Presence.GONE and node_id in facts.answering:
        return f"Upgrade the software of {kind} {node_id} and restart it, or stop it if it is not needed.", ()
    if presence in (Presence.ALIVE, Presence.UNKNOWN):
        return f"Upgrade the software of {kind} {node_id} and restart it.", ()
    if kind is NodeKind.BROKER:
        return _without_broker(facts, f"Start broker {node_id} with newer software", node_id, commands)
    if facts.finalized(METADATA_VERSION) >= CONTROLLER_UNREGISTRATION_SINCE:
        way = commands.unregister_controller(node_id)
    else:
        registered = (facts.controllers or {}).get(node_id)
        # Brokers do not list controllers. Assume that it is listed: the refresh reports if it is not.
        is_listed = facts.controllers is None or (registered is not None and bool(registered.endpoints))
        way = commands.refresh_controller(node_id, is_listed=is_listed)
    if presence is Presence.SILENT_VOTER and facts.quorum is not None:
        voter = next(voter for voter in facts.quorum.voters if voter.node_id == node_id)
        return (
            f"Start controller {node_id} with newer software or, if it is gone for good, remove it from the quorum:",
            (commands.remove_voter(node_id, voter.directory_id), way),
        )
    return None, (way,)


def _upgrade(blocked: list[tuple[FeatureOutlook, Blocker]], commands: Commands) -> tuple[str, ...]:
    """The upgrade that is possible without this blocker; that of metadata.version, if it blocks several features."""
    for outlook, blocker in sorted(blocked, key=lambda pair: pair[0].feature != METADATA_VERSION):
        others = [other for other in outlook.blockers if other is not blocker]
        if any(not other.is_registered for other in others):
            continue
        level = min((other.highest for other in others), default=outlook.target)
        if level > max(outlook.reachable, outlook.finalized):
            return (commands.upgrade(outlook.feature, level),)
    return ()


def _without_broker(
    facts: Examination, or_else: str, node_id: int, commands: Commands
) -> tuple[str, tuple[str, ...]]:
    """The advice about a broker that is down, and the commands for one that is gone for good.

    A broker must not be unregistered while it has replicas: they would stay without a broker.
    """
    replicas = facts.replicas_on(node_id)
    if replicas:
        advice = (
            f"{or_else}. It has {replicas} replica{'' if replicas == 1 else 's'}: if it is gone for good, first move "
            "them to other brokers, then unregister it. This proposes a reassignment of the topics in topics.json:"
        )
        return advice, (commands.propose_reassignment(),)
    condition = "" if replicas == 0 else " and holds no replicas"
    return f"{or_else} or, if it is gone for good{condition}, unregister it:", (
        commands.unregister_broker(node_id),
    )


def _presence_text(facts: Examination, presence: Presence, kind: NodeKind, node_id: int) -> str:
    is_controller = kind is NodeKind.CONTROLLER
    absence = f"It {'is not a voter and ' if is_controller else ''}does not follow the metadata log"
    match presence:
        case Presence.ALIVE:
            return "It is alive: it follows the metadata log."
        case Presence.SILENT_VOTER:
            return "It is a voter, but does not follow the metadata log."
        case Presence.GONE if node_id in facts.answering:
            return f"{absence}, but it answers at its address: it runs."
        case Presence.GONE if node_id in facts.unidentified:
            return f"{absence}. A server answers at its address, and did not say which node it is."
        case Presence.GONE:
            return f"{absence}: no such node runs."
        case Presence.UNKNOWN:
            return "Whether it is alive is unknown: there is no leader, or it has not fetched from a new one yet."


def _idle_ghost(facts: Examination, node_id: int, commands: Commands) -> Finding:
    can_unregister = facts.finalized(METADATA_VERSION) >= CONTROLLER_UNREGISTRATION_SINCE
    return Finding(
        severity=Severity.NOTE,
        code=Code.GHOST_CONTROLLER,
        message=f"Ghost controller {node_id} is registered, and no such node "
        + ("follows the metadata log" if node_id in facts.unidentified else "runs"),
        evidence=_presence_text(facts, Presence.GONE, NodeKind.CONTROLLER, node_id)
        + " It blocks nothing now, but will block the first feature level that it does not support.",
        advice=None
        if can_unregister
        else f"It can be unregistered from metadata.version {CONTROLLER_UNREGISTRATION_SINCE} on. Until then, do "
        "nothing.",
        commands=(commands.unregister_controller(node_id),) if can_unregister else (),
        node_kind=NodeKind.CONTROLLER,
        node_id=node_id,
    )


def _fenced(facts: Examination, judged: ClusterFacts, broker: RegisteredNode, commands: Commands) -> Finding:
    node_id = broker.node_id
    if judged.follows(node_id) or node_id in facts.answering:
        shown = "follows the log" if judged.follows(node_id) else "answers at its address"
        return Finding(
            severity=Severity.WARNING,
            code=Code.BROKER_FENCED,
            message=f"Broker {node_id} is fenced, though it {shown}",
            evidence="A fenced broker leads no partition, and its replicas are not in sync. It is starting, shutting "
            "down, or its heartbeats do not reach the active controller.",
            advice=f"Wait until it has started. If it stays fenced, the log of broker {node_id} has the reason:",
            commands=(commands.doctor(),),
            node_kind=NodeKind.BROKER,
            node_id=node_id,
        )
    advice, ways = _without_broker(facts, f"Start broker {node_id}", node_id, commands)
    return Finding(
        severity=Severity.WARNING,
        code=Code.BROKER_FENCED,
        message=f"Broker {node_id} is registered and down",
        evidence="It is fenced: it leads no partition, and its replicas are not in sync. "
        + _presence_text(facts, judged.presence_of(node_id), NodeKind.BROKER, node_id),
        advice=advice,
        commands=ways,
        node_kind=NodeKind.BROKER,
        node_id=node_id,
    )


def _behind(facts: Examination, commands: Commands) -> Iterator[Finding]:
    outlook = next((outlook for outlook in facts.outlooks if outlook.feature == METADATA_VERSION), None)
    if outlook is None:
        return
    reachable = min(outlook.reachable, _release(facts).metadata_version)
    if reachable > outlook.finalized:
        yield Finding(
            severity=Severity.NOTE,
            code=Code.METADATA_VERSION_BEHIND,
            message=f"metadata.version is {outlook.finalized} ({metadata_version_name(outlook.finalized)}), and "
            f"could be {reachable} ({metadata_version_name(reachable)})",
            evidence="Every registered node supports it.",
            commands=(commands.upgrade(METADATA_VERSION, reachable),),
        )


def _levels_text(feature: str, first: int, last: int) -> str:
    levels = str(first) if first == last else f"{first} to {last}"
    if feature != METADATA_VERSION:
        return f"{feature} {levels}"
    names = metadata_version_name(first)
    if first != last:
        names += f" to {metadata_version_name(last)}"
    return f"{feature} {levels} ({names})"
