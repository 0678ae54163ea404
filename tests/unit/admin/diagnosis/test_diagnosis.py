"""What a diagnosis finds in facts: each finding, what it advises, and what it does not find."""

import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
from kit.replicas import NOW_MS, replica
from quorate_admin.diagnosis import (
    Blocker,
    Code,
    Commands,
    Diagnosis,
    Examination,
    FeatureOutlook,
    Finding,
    NodeKind,
    Presence,
    RegisteredNode,
    Severity,
    diagnose,
    judge,
)
from quorate_admin.types.cluster import (
    FeatureDescription,
    QuorumDescription,
    RaftVoterEndpoint,
    ReplicaDescription,
)
from quorate_protocol.kafka.releases import RELEASES, Release

BOOTSTRAP = "--bootstrap-controller c:9093"
COMMANDS = Commands(BOOTSTRAP, BOOTSTRAP)
LONG_AGO_MS = NOW_MS - 60_000
SINCE_MS = NOW_MS - 3_600_000
"""When the leader of these tests was elected."""


def quorum(
    *voters: ReplicaDescription, observers: Sequence[ReplicaDescription] = (), high_watermark: int = 90
) -> QuorumDescription:
    """A quorum that the first voter leads."""
    return QuorumDescription(
        leader_id=voters[0].node_id,
        leader_epoch=3,
        high_watermark=high_watermark,
        voters=voters,
        observers=tuple(observers),
        nodes={
            voter.node_id: (RaftVoterEndpoint(name="CONTROLLER", host=f"c{voter.node_id}", port=9093),)
            for voter in voters
        },
    )


def features(metadata_version: int = 30, kraft_version: int = 1) -> FeatureDescription:
    """Finalized levels."""
    return FeatureDescription(
        finalized={"metadata.version": metadata_version, "kraft.version": kraft_version},
        finalized_epoch=5,
        supported={"metadata.version": (7, 30), "kraft.version": (0, 1)},
    )


def controllers(*node_ids: int) -> dict[int, RegisteredNode]:
    """Registrations of controllers."""
    return {
        node_id: RegisteredNode(kind=NodeKind.CONTROLLER, node_id=node_id, endpoints=((f"c{node_id}", 9093),))
        for node_id in node_ids
    }


def healthy(**changes: object) -> Examination:
    """A cluster of three voters and a broker, in which nothing is wrong but for the changes."""
    facts = Examination(
        cluster_id="cluster",
        quorum=quorum(replica(1), replica(2), replica(3), observers=[replica(10)]),
        leader_since_ms=SINCE_MS,
        features=features(),
        controllers=controllers(1, 2, 3),
        brokers={10: RegisteredNode(kind=NodeKind.BROKER, node_id=10)},
        is_log_read=True,
        outlooks=(FeatureOutlook(feature="metadata.version", finalized=30, target=30, reachable=30),),
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def found(facts: Examination) -> Diagnosis:
    """The diagnosis, with the commands of these tests."""
    return diagnose(facts, COMMANDS)


def only(facts: Examination) -> Finding:
    """The only finding."""
    (finding,) = found(facts).findings
    return finding


def codes(facts: Examination) -> list[Code]:
    """The codes of the findings."""
    return [finding.code for finding in found(facts).findings]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert found(healthy()) == Diagnosis(findings=(), outlooks=healthy().outlooks)
    assert found(healthy()).is_healthy


def test_an_address_that_leads_elsewhere_is_found_unless_its_node_is_gone() -> None:
    facts = healthy(controllers=controllers(1, 2, 3, 99), misrouted={3: "h:9093", 99: "h:9094"})
    (finding,) = (
        candidate for candidate in found(facts).findings if candidate.code is Code.ADDRESS_LEADS_ELSEWHERE
    )
    assert (finding.severity, finding.node_kind, finding.node_id) == (
        Severity.WARNING,
        NodeKind.CONTROLLER,
        3,
    )
    assert "h:9093" in finding.evidence
    assert only(healthy(controllers=None, misrouted={10: "h:9092"})).node_kind is NodeKind.BROKER


def test_only_notes_are_healthy_and_the_worst_comes_first() -> None:
    assert found(healthy(quorum=quorum(replica(1)), controllers=controllers(1))).is_healthy
    both = found(healthy(quorum=quorum(replica(1), replica(2, LONG_AGO_MS)), controllers=controllers(1, 2)))
    severities = [finding.severity for finding in both.findings]
    assert severities == [Severity.DANGER, Severity.WARNING, Severity.NOTE]
    assert not both.is_healthy


# The quorum


def test_a_lost_leader_names_the_silent_voters() -> None:
    finding = only(
        healthy(quorum=None, quorum_problem="no leader", outlooks=(), unreachable={2: "refused", 10: "x"})
    )
    assert (finding.severity, finding.code) == (Severity.DANGER, Code.NO_LEADER)
    assert finding.evidence == "no leader. 2: refused"
    assert finding.advice == "Start controller 2: a majority of the voters has to run."
    assert finding.commands == (f"quorate doctor {BOOTSTRAP}",)


def test_a_leader_that_commits_nothing() -> None:
    lost = quorum(replica(1), replica(2), replica(3), high_watermark=-1)
    assert codes(healthy(quorum=lost)) == [Code.NOTHING_COMMITTED]


@pytest.mark.parametrize(
    ("silent", "size", "expected"),
    [
        (0, 3, []),
        (1, 3, [Code.ONE_FAILURE_FROM_LOSS, Code.VOTER_SILENT]),
        (1, 5, [Code.VOTER_SILENT]),
        (2, 5, [Code.ONE_FAILURE_FROM_LOSS, Code.VOTER_SILENT, Code.VOTER_SILENT]),
        (0, 1, [Code.SINGLE_VOTER]),
        (0, 2, [Code.EVEN_VOTERS]),
        (0, 4, [Code.EVEN_VOTERS]),
        (1, 2, [Code.ONE_FAILURE_FROM_LOSS, Code.VOTER_SILENT, Code.EVEN_VOTERS]),
    ],
)
def test_how_many_failures_a_quorum_survives(silent: int, size: int, expected: list[Code]) -> None:
    ids = range(1, size + 1)
    voters = [replica(id_, LONG_AGO_MS if id_ > size - silent else NOW_MS) for id_ in ids]
    assert codes(healthy(quorum=quorum(*voters), controllers=controllers(*ids))) == expected


@pytest.mark.parametrize(("kraft_version", "commands"), [(1, 1), (0, 0)])
def test_a_silent_voter_can_be_removed_from_a_dynamic_quorum(kraft_version: int, commands: int) -> None:
    voters = quorum(replica(1), replica(2), replica(3), replica(4), replica(5, LONG_AGO_MS))
    facts = healthy(
        quorum=voters, controllers=controllers(1, 2, 3, 4, 5), features=features(kraft_version=kraft_version)
    )
    finding = only(facts)
    assert "not fetched for 60000 ms" in finding.evidence
    assert (finding.node_kind, finding.node_id) == (NodeKind.CONTROLLER, 5)
    command = (
        f"quorate metadata-quorum {BOOTSTRAP} remove-controller --controller-id 5 "
        "--controller-directory-id AAAAEAAAAAAAAAAAAAAAAA"
    )
    assert finding.commands == (command,)[:commands]


def test_a_voter_that_never_fetched_is_silent() -> None:
    facts = healthy(quorum=quorum(replica(1), replica(2), replica(3, None, None)))
    silent = next(finding for finding in found(facts).findings if finding.code is Code.VOTER_SILENT)
    assert "not fetched since the leader was elected" in silent.evidence


@pytest.mark.parametrize(
    ("behind_ms", "end", "expected"),
    [
        (10_000, 40, []),
        (10_001, 40, [Code.ONE_FAILURE_FROM_LOSS, Code.VOTER_LAGGING]),
        (10_001, 90, []),
        (None, 90, []),
        (None, 89, [Code.ONE_FAILURE_FROM_LOSS, Code.VOTER_LAGGING]),
    ],
)
def test_a_voter_that_fetches_and_stays_behind(behind_ms: int | None, end: int, expected: list[Code]) -> None:
    caught_up_ms = None if behind_ms is None else NOW_MS - behind_ms
    voters = quorum(replica(1), replica(2), replica(3, NOW_MS, caught_up_ms, end=end))
    assert codes(healthy(quorum=voters)) == expected


def test_a_voter_that_lags_is_not_to_be_started() -> None:
    lagging = quorum(replica(1), replica(2), replica(3, NOW_MS, NOW_MS - 60_000, end=40))
    danger = found(healthy(quorum=lagging)).findings[0]
    assert danger.evidence == "2 of 3 voters are caught up, and 2 are a majority; voter 3 is not."
    assert danger.advice == "Wait until voter 3 has caught up, before another one is restarted."
    silent = quorum(replica(1), replica(2), replica(3, LONG_AGO_MS))
    assert found(healthy(quorum=silent)).findings[0].advice == "Start controller 3."


def test_a_voter_whose_node_has_another_disk_is_silent() -> None:
    fresh = replace(replica(3), directory_id=uuid.UUID(int=7))
    back = quorum(replica(1), replica(2), replica(3, LONG_AGO_MS), observers=[fresh])
    assert codes(healthy(quorum=back)) == [Code.ONE_FAILURE_FROM_LOSS, Code.VOTER_SILENT]
    assert judge(healthy(quorum=back)).presence_of(3) is Presence.ALIVE


def test_the_evidence_of_lag_has_offsets_and_time() -> None:
    lagging = replica(10, NOW_MS, NOW_MS - 20_000, end=40)
    finding = only(healthy(quorum=quorum(replica(1), replica(2), replica(3), observers=[lagging])))
    assert finding.code is Code.OBSERVER_LAGGING
    assert finding.evidence == "It is 60 records behind and had everything last 20000 ms ago."


def test_an_observer_that_stopped_does_not_lag() -> None:
    stopped = replica(10, LONG_AGO_MS, LONG_AGO_MS, end=40)
    assert (
        codes(healthy(quorum=quorum(replica(1), replica(2), replica(3), observers=[stopped, replica(10)])))
        == []
    )


def test_a_voter_that_is_not_registered_blocks_every_upgrade() -> None:
    finding = only(healthy(controllers=controllers(1, 2)))
    assert (finding.severity, finding.code) == (Severity.BLOCKED, Code.VOTER_NOT_REGISTERED)
    assert finding.node_id == 3
    assert codes(healthy(controllers=controllers(1, 2), features=features(14))) == []
    assert codes(healthy(controllers=None)) == []


@pytest.mark.parametrize(
    ("kraft_version", "advice"), [(1, "Restart controller 3"), (0, "controller.quorum.voters")]
)
def test_a_voter_at_another_address_than_registered(kraft_version: int, advice: str) -> None:
    moved = controllers(1, 2, 3)
    moved[3] = replace(moved[3], endpoints=(("elsewhere", 9093),))
    finding = only(healthy(controllers=moved, features=features(kraft_version=kraft_version)))
    assert finding.code is Code.VOTER_ENDPOINTS_DIFFER
    assert finding.evidence == "The voter set has c3:9093, it registered elsewhere:9093."
    assert finding.advice is not None
    assert advice in finding.advice


def test_a_static_quorum_that_could_be_dynamic() -> None:
    outlook = FeatureOutlook(feature="kraft.version", finalized=0, target=1, reachable=1)
    facts = healthy(features=features(kraft_version=0), outlooks=(outlook,))
    assert only(facts).commands == (f"quorate features {BOOTSTRAP} upgrade --feature kraft.version=1",)
    assert only(facts).severity is Severity.NOTE
    assert codes(replace(facts, outlooks=(replace(outlook, reachable=0),))) == []


# Registrations


def blocked(
    *blockers: Blocker, finalized: int = 29, target: int = 30, reachable: int | None = None
) -> Examination:
    """A cluster whose metadata.version these block."""
    highest = min(blocker.highest for blocker in blockers)
    outlook = FeatureOutlook(
        feature="metadata.version",
        finalized=finalized,
        target=target,
        reachable=max(finalized, highest) if reachable is None else reachable,
        blockers=blockers,
    )
    return healthy(outlooks=(outlook,), features=features(finalized), controllers=controllers(1, 2, 3, 99))


def broker_blocks(broker_id: int) -> Examination:
    """A cluster in which a broker blocks metadata.version 30."""
    facts = blocked(Blocker(kind=NodeKind.BROKER, node_id=broker_id, lowest=7, highest=29))
    return replace(facts, controllers=controllers(1, 2, 3))


GHOST = Blocker(kind=NodeKind.CONTROLLER, node_id=99, lowest=7, highest=27)


def test_a_ghost_that_blocks_is_refreshed_below_33() -> None:
    """The first of KIP-1312's two ways."""
    finding = only(blocked(GHOST))
    assert (finding.severity, finding.code) == (Severity.BLOCKED, Code.FEATURE_BLOCKED)
    assert finding.message == "Ghost controller 99 blocks metadata.version 30 (4.3-IV0)"
    assert "registered with metadata.version 7 to 27; the cluster has metadata.version 29" in finding.evidence
    assert finding.commands == (
        f"quorate cluster refresh-controller {BOOTSTRAP} --controller-id 99",
        f"quorate features {BOOTSTRAP} upgrade --feature metadata.version=30",
    )
    assert finding.blocks == {"metadata.version": (30, 30)}


def test_a_ghost_without_endpoints_needs_leave_to_be_refreshed() -> None:
    facts = blocked(GHOST)
    refreshed = {**controllers(1, 2, 3), 99: RegisteredNode(kind=NodeKind.CONTROLLER, node_id=99)}
    assert (
        only(replace(facts, controllers=refreshed))
        .commands[0]
        .endswith("--controller-id 99 --allow-unlisted")
    )
    assert only(replace(facts, controllers=None)).commands[0].endswith("--controller-id 99")


@pytest.mark.parametrize(
    ("bootstrap", "expected"),
    [
        ("--bootstrap-controller a:1", "--bootstrap-controller a:1"),
        ("--bootstrap-server b:1", "--bootstrap-controller c1:9093,c2:9093,c3:9093"),
    ],
)
def test_what_brokers_do_not_take_is_sent_to_the_voters(bootstrap: str, expected: str) -> None:
    commands = Commands.through(bootstrap, healthy())
    assert commands.refresh_controller(9).startswith(f"quorate cluster refresh-controller {expected} --")
    assert commands.doctor() == f"quorate doctor {bootstrap}"
    assert "--bootstrap-controller HOST:PORT" in Commands.through(
        "--bootstrap-server b:1", Examination()
    ).refresh_controller(9)


def test_commands_repeat_the_file_of_properties() -> None:
    commands = Commands.through("--bootstrap-server b:1", healthy(), "my admin.properties")
    assert commands.doctor() == "quorate doctor --bootstrap-server b:1 --command-config 'my admin.properties'"
    assert "my admin.properties" in commands.describe_partitions("--unavailable-partitions")
    assert "my admin.properties" not in commands.refresh_controller(9)
    assert commands.add_voter().count("--command-config") == 1


def test_a_ghost_that_blocks_is_unregistered_from_33_on() -> None:
    finding = only(blocked(replace(GHOST, highest=33), finalized=33, target=34))
    assert finding.commands == (
        f"quorate cluster unregister-controller {BOOTSTRAP} --controller-id 99",
        f"quorate features {BOOTSTRAP} upgrade --feature metadata.version=34",
    )


def test_an_upgrade_goes_as_far_as_the_next_blocker() -> None:
    broker = Blocker(kind=NodeKind.BROKER, node_id=10, lowest=7, highest=29)
    findings = found(blocked(GHOST, broker, finalized=28)).findings
    commands = {finding.node_id: finding.commands for finding in findings}
    assert commands[99][-1] == f"quorate features {BOOTSTRAP} upgrade --feature metadata.version=29"
    assert commands[10] == ()


def test_a_live_node_needs_newer_software() -> None:
    finding = only(broker_blocks(10))
    assert finding.message == "Broker 10 blocks metadata.version 30 (4.3-IV0)"
    assert finding.advice == "Upgrade the software of broker 10 and restart it."
    assert finding.commands == (f"quorate features {BOOTSTRAP} upgrade --feature metadata.version=30",)


@pytest.mark.parametrize("release", RELEASES.values(), ids=list(RELEASES))
def test_a_live_node_that_lacks_levels_of_later_releases_is_no_finding(release: Release) -> None:
    """Stock brokers beside newer controllers are well."""
    level = release.metadata_version
    broker = Blocker(kind=NodeKind.BROKER, node_id=10, lowest=7, highest=level)
    supported = {"metadata.version": (7, level)}
    facts = replace(
        blocked(broker, finalized=level, target=level + 1),
        controllers=controllers(1, 2, 3),
        brokers={10: RegisteredNode(kind=NodeKind.BROKER, node_id=10, features=supported)},
    )
    assert Code.FEATURE_BLOCKED not in codes(facts)
    ghost = blocked(replace(GHOST, highest=level), finalized=level, target=level + 1)
    assert codes(ghost) == [Code.FEATURE_BLOCKED]


def test_a_live_broker_of_an_older_release_than_another_is_a_finding() -> None:
    """An upgrade that stopped half way is reported."""
    older, newer = list(RELEASES.values())[-2:]
    level = older.metadata_version
    old = Blocker(kind=NodeKind.BROKER, node_id=10, lowest=7, highest=level)
    brokers = {
        node_id: RegisteredNode(
            kind=NodeKind.BROKER,
            node_id=node_id,
            features={"metadata.version": (7, release.metadata_version)},
        )
        for node_id, release in ((10, older), (11, newer))
    }
    facts = replace(
        blocked(old, finalized=level, target=newer.metadata_version),
        quorum=quorum(replica(1), replica(2), replica(3), observers=[replica(10), replica(11)]),
        controllers=controllers(1, 2, 3),
        brokers=brokers,
    )
    finding = only(facts)
    assert (finding.code, finding.node_id) == (Code.FEATURE_BLOCKED, 10)
    assert finding.advice == "Upgrade the software of broker 10 and restart it."


def test_a_broker_that_is_gone_is_unregistered() -> None:
    finding = only(broker_blocks(11))
    assert finding.message.startswith("Ghost broker 11 blocks")
    assert finding.commands[0] == f"quorate cluster unregister {BOOTSTRAP} --id 11"


def test_a_silent_voter_that_blocks_is_taken_out_first() -> None:
    voters = quorum(replica(1), replica(2), replica(3), replica(4), replica(5, LONG_AGO_MS))
    facts = replace(
        blocked(Blocker(kind=NodeKind.CONTROLLER, node_id=5, lowest=7, highest=29)),
        quorum=voters,
        controllers=controllers(1, 2, 3, 4, 5),
    )
    finding = next(candidate for candidate in found(facts).findings if candidate.code is Code.FEATURE_BLOCKED)
    assert [command.split()[1] for command in finding.commands] == ["metadata-quorum", "cluster", "features"]
    assert "Start controller 5 with newer software" in (finding.advice or "")


def test_one_node_has_one_finding_for_all_features() -> None:
    outlooks = (
        FeatureOutlook(feature="metadata.version", finalized=29, target=30, reachable=29, blockers=(GHOST,)),
        FeatureOutlook(
            feature="streams.version",
            finalized=0,
            target=1,
            reachable=0,
            blockers=(replace(GHOST, lowest=0, highest=0),),
        ),
    )
    finding = only(healthy(outlooks=outlooks, features=features(29)))
    assert finding.message == "Ghost controller 99 blocks metadata.version 30 (4.3-IV0), streams.version 1"
    assert "metadata.version 7 to 27, no streams.version" in finding.evidence


def test_an_idle_ghost_is_a_note() -> None:
    facts = healthy(controllers=controllers(1, 2, 3, 99))
    assert (only(facts).severity, only(facts).code, only(facts).commands) == (
        Severity.NOTE,
        Code.GHOST_CONTROLLER,
        (),
    )
    newer = replace(facts, features=features(33))
    assert only(newer).commands == (f"quorate cluster unregister-controller {BOOTSTRAP} --controller-id 99",)


@pytest.mark.parametrize(
    ("observers", "presence"),
    [
        ([], Presence.GONE),
        ([replica(99)], Presence.ALIVE),
        ([replica(99, NOW_MS - 5_000)], Presence.ALIVE),
        ([replica(99, NOW_MS - 5_001)], Presence.GONE),
        ([replica(99, LONG_AGO_MS), replica(99)], Presence.ALIVE),
    ],
)
def test_who_is_a_ghost(observers: list[ReplicaDescription], presence: Presence) -> None:
    """An observer that fetches is alive, with whichever directory."""
    facts = healthy(quorum=quorum(replica(1), replica(2), replica(3), observers=observers))
    assert judge(facts).presence_of(99) is presence


@pytest.mark.parametrize(
    ("since_ms", "voter", "presence"),
    [
        (None, replica(3), Presence.UNKNOWN),
        (NOW_MS - 5_000, replica(3), Presence.UNKNOWN),
        (NOW_MS - 5_001, replica(3), Presence.GONE),
        (None, replica(3, NOW_MS - 5_000), Presence.UNKNOWN),
        (None, replica(3, NOW_MS - 5_001), Presence.GONE),
    ],
)
def test_a_new_leader_calls_nobody_a_ghost(
    since_ms: int | None, voter: ReplicaDescription, presence: Presence
) -> None:
    """No controller is a ghost because an election made the leader forget it."""
    facts = healthy(
        quorum=quorum(replica(1), replica(2, None, None), voter),
        leader_since_ms=since_ms,
        controllers=controllers(1, 2, 3, 99),
    )
    assert judge(facts).presence_of(99) is presence
    assert judge(facts).ghosts == ((99,) if presence is Presence.GONE else ())
    is_known = presence is Presence.GONE
    assert judge(facts).presence_of(2) is (Presence.SILENT_VOTER if is_known else Presence.UNKNOWN)
    assert (Code.GHOST_CONTROLLER in codes(facts)) is is_known


def test_without_a_leader_nobody_is_called_a_ghost() -> None:
    assert judge(healthy(quorum=None)).presence_of(99) is Presence.UNKNOWN
    assert codes(healthy(quorum=None, controllers=controllers(1, 2, 3, 99))) == [Code.NO_LEADER]


@pytest.mark.parametrize(
    ("observers", "advice", "commands"),
    [([], "Start broker 10", 1), ([replica(10)], None, 1)],
)
def test_fenced_brokers(observers: Sequence[ReplicaDescription], advice: str | None, commands: int) -> None:
    facts = healthy(
        brokers={10: RegisteredNode(kind=NodeKind.BROKER, node_id=10, fenced=True)},
        quorum=quorum(replica(1), replica(2), replica(3), observers=observers),
    )
    finding = only(facts)
    assert (finding.severity, finding.code) == (Severity.WARNING, Code.BROKER_FENCED)
    assert (finding.advice or "").startswith(advice or "")
    assert len(finding.commands) == commands


@pytest.mark.parametrize(
    ("finalized", "reachable", "level"), [(30, 33, 33), (27, 29, 29), (33, 34, None), (33, 33, None)]
)
def test_a_metadata_version_that_could_be_newer_is_a_note(
    finalized: int, reachable: int, level: int | None
) -> None:
    outlook = FeatureOutlook(feature="metadata.version", finalized=finalized, target=34, reachable=reachable)
    facts = healthy(outlooks=(outlook,), features=features(finalized))
    if level is None:
        assert codes(facts) == []
    else:
        assert only(facts).commands == (
            f"quorate features {BOOTSTRAP} upgrade --feature metadata.version={level}",
        )


def test_what_can_not_be_known_is_reported() -> None:
    finding = only(healthy(outlooks=(), outlook_problem="CLUSTER_AUTHORIZATION_FAILED"))
    assert (finding.code, finding.severity) == (Code.FEATURE_UNKNOWN, Severity.WARNING)


def test_commands_without_a_bootstrap_have_a_place_for_it() -> None:
    assert "--bootstrap-controller HOST:PORT" in diagnose(blocked(GHOST)).findings[0].commands[0]
