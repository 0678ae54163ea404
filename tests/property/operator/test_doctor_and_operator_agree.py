"""Doctor and operator give the same answers about the same cluster.

Each example is a description of the quorum and a metadata image, as a leader and its log would give them. Both sides
read them in their own way: the doctor by `examination` and `diagnosis`, the operator by `gateway.facts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from quorate_admin.diagnosis import ClusterFacts, Code, Examination, diagnose, registered_outlooks
from quorate_admin.diagnosis import judge as judge_examined
from quorate_admin.examination import brokers_of, controllers_of
from quorate_admin.types.cluster import FeatureDescription, QuorumDescription, ReplicaDescription
from quorate_operator.gateway import facts as gateway
from quorate_operator.handlers.statuses import controller_status
from quorate_operator.planning.cluster import DesiredCluster, KafkaFacts, ObservedCluster
from quorate_operator.planning.registrations import judge as judge_observed
from quorate_operator.planning.registrations import plan_registrations
from quorate_operator.planning.safety import view_quorum
from quorate_operator.planning.steps import Plan
from quorate_operator.view.cluster import view_of
from quorate_protocol.image import MetadataImage
from quorate_protocol.records.generated import (
    BrokerFeature,
    ControllerFeature,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

LEADER_MS, OPERATOR_MS = 1_700_000_000_000, 1_700_000_042_000
CONTROLLERS, BROKERS = range(3000, 3006), range(3)
FEATURES = {"metadata.version": (7, 31), "share.version": (0, 2)}
DESIRED = DesiredCluster(name="c", cluster_id=None, metadata_version=None, dynamic_quorum=True, nodes=())


@dataclass(frozen=True)
class Cluster:
    """What a leader and its log say."""

    quorum: QuorumDescription
    image: MetadataImage
    levels: Mapping[str, int]
    kraft_version: int
    leader_since_ms: int | None


ages_ms = st.one_of(st.none(), st.sampled_from((0, 400, 4_999, 5_000, 5_001, 9_999, 10_000, 10_001, 60_000)))


@st.composite
def replicas(draw: st.DrawFn, node_id: int, directory: int = 0) -> ReplicaDescription:
    """A replica of the log, from fresh to silent."""
    fetched_ms, caught_up_ms = draw(ages_ms), draw(ages_ms)
    return ReplicaDescription(
        node_id=node_id,
        directory_id=UUID(int=node_id + directory * 10_000),
        log_end_offset=draw(st.integers(-1, 12)),
        last_fetch_ms=None if fetched_ms is None else LEADER_MS - fetched_ms,
        last_caught_up_ms=None if caught_up_ms is None else LEADER_MS - caught_up_ms,
    )


@st.composite
def ranges(draw: st.DrawFn) -> dict[str, tuple[int, int]]:
    """The levels that a node registered with; it may lack a feature."""
    named = draw(st.sets(st.sampled_from(sorted(FEATURES))))
    return {
        name: (FEATURES[name][0], draw(st.integers(FEATURES[name][0], FEATURES[name][1]))) for name in named
    }


@st.composite
def images(draw: st.DrawFn, levels: Mapping[str, int]) -> MetadataImage:
    """Registrations of controllers and brokers, and finalized levels."""
    image = MetadataImage()
    records: list[object] = [
        FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()
    ]
    for node_id in sorted(draw(st.sets(st.sampled_from(CONTROLLERS)))):
        features = tuple(
            ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in draw(ranges()).items()
        )
        records.append(
            RegisterControllerRecord(
                controller_id=node_id,
                incarnation_id=UUID(int=1),
                zk_migration_ready=False,
                end_points=(),
                features=features,
            )
        )
    records += [
        RegisterBrokerRecord(
            broker_id=node_id,
            broker_epoch=9,
            incarnation_id=UUID(int=1),
            end_points=(),
            features=tuple(
                BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in draw(ranges()).items()
            ),
            rack=None,
            fenced=draw(st.booleans()),
            in_controlled_shutdown=False,
            log_dirs=(),
        )
        for node_id in sorted(draw(st.sets(st.sampled_from(BROKERS))))
    ]
    image.replay_batch(records, base_offset=0, epoch=1, timestamp_ms=0)
    return image


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A quorum with a leader, observers among controllers and brokers, also with a second directory."""
    voter_ids = sorted(draw(st.sets(st.sampled_from(CONTROLLERS), min_size=1)))
    leader_id = draw(st.sampled_from(voter_ids))
    voters = [draw(replicas(node_id)) for node_id in voter_ids if node_id != leader_id]
    leader = ReplicaDescription(
        node_id=leader_id,
        directory_id=UUID(int=leader_id),
        log_end_offset=12,
        last_fetch_ms=LEADER_MS,
        last_caught_up_ms=LEADER_MS,
    )
    observers = [
        draw(replicas(node_id, directory=1))
        for node_id in sorted(draw(st.sets(st.sampled_from((*CONTROLLERS, *BROKERS)))))
    ]
    levels = {"metadata.version": draw(st.sampled_from((14, 15, 27, 30))), "share.version": 1}
    return Cluster(
        quorum=QuorumDescription(
            leader_id=leader_id,
            leader_epoch=3,
            high_watermark=draw(st.integers(-1, 12)),
            voters=(leader, *voters),
            observers=tuple(observers),
        ),
        image=draw(images(levels)),
        levels=levels,
        kraft_version=draw(st.integers(0, 1)),
        leader_since_ms=draw(st.sampled_from((None, LEADER_MS - 5_000, LEADER_MS - 5_001))),
    )


def examined(cluster: Cluster) -> Examination:
    """What the doctor finds out."""
    finalized = {**cluster.levels, "kraft.version": cluster.kraft_version}
    facts = Examination(
        quorum=cluster.quorum,
        leader_since_ms=cluster.leader_since_ms,
        features=FeatureDescription(finalized=finalized, finalized_epoch=1, supported={}),
        controllers=controllers_of(cluster.image),
        brokers=brokers_of(cluster.image),
        is_log_read=True,
    )
    judged = judge_examined(facts)
    return Examination(
        quorum=facts.quorum,
        leader_since_ms=facts.leader_since_ms,
        features=facts.features,
        controllers=facts.controllers,
        brokers=facts.brokers,
        is_log_read=True,
        outlooks=registered_outlooks(finalized, _highest(judged), judged.registrations, judged.voter_ids),
    )


def observed(cluster: Cluster) -> ObservedCluster:
    """What the operator observes, with a clock of its own; no node of it runs here."""
    quorum = gateway.observed_quorum(
        cluster.quorum,
        cluster.kraft_version,
        brokers=cluster.image.cluster.brokers,
        now_ms=OPERATOR_MS,
        leader_since_ms=cluster.leader_since_ms,
    )
    kafka = KafkaFacts(
        quorum=quorum,
        cluster_id="c",
        registrations=gateway.registrations(cluster.image),
        features=cluster.levels,
    )
    return ObservedCluster(nodes={}, quorum=quorum, kafka=kafka)


def _highest(judged: ClusterFacts) -> dict[str, int]:
    """The highest level of each feature that any node runs, which the doctor asks the nodes for."""
    found: dict[str, int] = {}
    for registration in judged.registrations:
        for name, (_, high) in (registration.features or {}).items():
            found[name] = max(high, found.get(name, 0))
    return found


@given(clusters())
def test_the_judgement_is_the_same(cluster: Cluster) -> None:
    """One judgement of nodes that follow, are caught up, are ghosts, or block a level."""
    doctor, operator = judge_examined(examined(cluster)), judge_observed(observed(cluster))
    assert doctor.ghosts == operator.ghosts
    assert not (operator.is_leader_new and operator.ghosts)
    assert doctor.caught_up_voters == operator.caught_up_voters
    assert doctor.spare_voters == operator.spare_voters
    assert doctor.unregistered == operator.unregistered
    assert doctor.possible_voters == operator.possible_voters
    assert not {*doctor.possible_voters} & {*doctor.ghosts, *doctor.unregistered}
    for node_id in CONTROLLERS:
        assert doctor.follows(node_id) == operator.follows(node_id)
        assert doctor.presence_of(node_id) == operator.presence_of(node_id)
    for feature, (lowest, highest) in FEATURES.items():
        for level in range(lowest, highest + 1):
            assert set(doctor.blockers(feature, level)) == set(operator.blockers(feature, level))
    assert doctor.outlooks() == operator.outlooks()


@given(clusters())
def test_every_surface_shows_the_judgement(cluster: Cluster) -> None:
    """Findings, the resource's status, the page and the planner say the same."""
    facts, seen = examined(cluster), observed(cluster)
    judged, view = judge_observed(seen), view_of("c", DESIRED, seen, Plan(steps=()))
    findings = diagnose(facts).findings
    assert len({finding.finding_id for finding in findings}) == len(findings)
    assert {finding.node_id for finding in findings if finding.code is Code.OBSERVER_NOT_REGISTERED} == {
        *judged.unregistered
    }
    assert {finding.node_id for finding in findings if finding.code is Code.CONTROLLER_COULD_VOTE} == {
        *judged.possible_voters
    }
    status = controller_status(view, generation=1)
    assert {
        registration["nodeId"] for registration in status["registrations"] if registration["ghost"]
    } == set(judged.ghosts)
    assert view.registrations is not None
    assert {
        registration.registration.node_id for registration in view.registrations if registration.is_ghost
    } == set(judged.ghosts)
    blocking = {finding.node_id for finding in findings if finding.code is Code.FEATURE_BLOCKED}
    idle = {finding.node_id for finding in findings if finding.code is Code.GHOST_CONTROLLER}
    assert (blocking | idle) & {*judged.ghosts} == {*judged.ghosts}
    assert idle <= {*judged.ghosts}
    shown = {registration["nodeId"] for registration in status["registrations"] if registration.get("blocks")}
    assert shown == blocking & {*judged.ghosts}
    assert {voter["nodeId"] for voter in status["voters"] if voter["caughtUp"]} == judged.caught_up_voters
    planned = view_quorum(seen)
    assert view.quorum is not None
    assert planned is not None
    assert view.quorum.spare == judged.spare_voters
    assert planned.alive == judged.caught_up_voters
    silent = {
        finding.node_id for finding in findings if finding.code in (Code.VOTER_SILENT, Code.VOTER_LAGGING)
    }
    assert silent == judged.voter_ids - judged.caught_up_voters
    steps = plan_registrations(DESIRED, seen, target=31).due
    assert {step.node_id for step in steps} <= {*judged.ghosts}
