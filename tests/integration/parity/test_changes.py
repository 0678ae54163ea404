"""Our tools beside Kafka's where they change a cluster, or where brokers are missing: a cluster of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools, Ran
from kit.parity.cases.broker_api_versions import WITHOUT_NEWER
from kit.parity.cases.metadata_quorum import BLANKS
from kit.parity.cases.reassign_partitions import reassignment
from kit.parity.harness import TOOLS, Case, Comparison, Ends, Site, lines_sorted, replaced, run_here, site_of
from kit.releases import LEVEL
from kit.waiting import eventually

TIMEOUT_S = 60
STAYS, GONE, ALSO_GONE = 0, 1, 2
"""Ids of brokers."""
STUCK = ("stuckk", "stuckq", "stuckx")
"""Topics whose only replica is gone, so that a reassignment of them never ends."""
MOVE = {"to.json": reassignment(f'"topic": "$stuck", "partition": 0, "replicas": [{STAYS}]')}
MOVE_OTHER = {"first.json": reassignment(f'"topic": "{STUCK[2]}", "partition": 0, "replicas": [{STAYS}]')}
ANY_ORDER = lines_sorted("Java describes topics in the order of a hash set")
EXECUTE = "reassign-partitions --bootstrap-server $server --execute --reassignment-json-file"


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path, java_tool: JavaTools
) -> Iterator[JavaCluster]:
    """Three controllers and three brokers, whose controllers go and come."""
    directory = tmp_path_factory.mktemp("changing") / "cluster"
    cluster = JavaCluster.prepared(directory, kafka_jars, java_tool, controllers=3, brokers=3)
    try:
        cluster.start(*cluster.controllers)
        cluster.await_quorum()
        yield cluster.start_all()
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def site(cluster: JavaCluster) -> Site:
    """The cluster, seen from a broker that stays."""
    return site_of("changing", cluster, "server", {})


@pytest.fixture(scope="module")
def without_brokers(cluster: JavaCluster, site: Site, java_tool: JavaTools) -> Site:
    """The cluster when two of its brokers have been killed, and topics with replicas on them."""
    topics = {
        "half": f"{GONE}:{STAYS}",
        "gone": f"{GONE}",
        "both": f"{ALSO_GONE}:{GONE}",
        **dict.fromkeys(STUCK, f"{GONE}"),
    }
    for name, replicas in topics.items():
        arguments = ("--create", "--topic", name, "--replica-assignment", replicas)
        java_tool(TOOLS["topics"].main_class, *site.words["at"].split(), *arguments).succeeded()
    cluster.kill(GONE, ALSO_GONE)

    def fenced() -> bool:
        described = cluster.describe_brokers(via=STAYS)
        return described is not None and {node.node_id for node in described.nodes if not node.fenced} == {
            STAYS
        }

    eventually(fenced, TIMEOUT_S, "the brokers to be fenced")
    return site


def compare(
    case: Case, command: str, site: Site, java: JavaTools, path: Path, **twins: tuple[str, str]
) -> None:
    """Run a case."""
    Comparison(case, TOOLS[command], site, java, path, twins=twins).run()


def test_features_go_down_and_up(site: Site, java_tool: JavaTools) -> None:
    steps = [
        "downgrade --feature share.version=0",
        "upgrade --feature share.version=1 --feature group.version=1",
        "disable --feature streams.version --unsafe",
        f"upgrade --release-version {LEVEL}",
    ]
    at = site.words["at"].split()
    outputs: list[list[Ran]] = [
        [java_tool(TOOLS["features"].main_class, *at, *step.split()) for step in steps],
        [run_here("features", *at, *step.split()) for step in steps],
    ]
    for step, theirs, ours in zip(steps, *outputs, strict=True):
        assert (theirs.exit_code, theirs.stdout) == (ours.exit_code, ours.stdout), step


def test_voters_leave_and_come(
    cluster: JavaCluster, site: Site, java_tool: JavaTools, tmp_path: Path
) -> None:
    quorum = cluster.await_quorum()
    directories = {
        node_id: next(
            line.removeprefix("directory.id=")
            for line in (cluster.data(node_id) / "meta.properties").read_text().splitlines()
            if line.startswith("directory.id=")
        )
        for node_id in cluster.controllers
    }
    first, second = (node_id for node_id in cluster.controllers if node_id != quorum.leader_id)
    files = [str(cluster.layout.config_file(cluster.layout.node(node_id))) for node_id in (first, second)]
    port = replaced(r"127\.0\.0\.1:\d+", "<address>", "each controller has its own ports")
    case = Case(
        name="voters",
        run=[
            "$at remove-controller --controller-id $node --controller-directory-id $directory",
            "$at --command-config $file add-controller",
        ],
        normalise=[port, *BLANKS],
    )
    compare(
        *(case, "metadata-quorum", site, java_tool, tmp_path),
        node=(str(first), str(second)),
        directory=(directories[first], directories[second]),
        file=(files[0], files[1]),
    )
    cluster.await_quorum()


@pytest.mark.parametrize(
    ("command", "case"),
    [
        pytest.param(command, case, id=f"{command}-{case.name}")
        for command, case in (
            (
                "topics",
                Case(
                    name="under-replicated",
                    run="$at --describe --under-replicated-partitions",
                    normalise=[ANY_ORDER],
                ),
            ),
            (
                "topics",
                Case(
                    name="unavailable", run="$at --describe --unavailable-partitions", normalise=[ANY_ORDER]
                ),
            ),
            (
                "topics",
                Case(name="under-min-isr", run="$at --describe --under-min-isr-partitions --topic half,gone"),
            ),
            ("topics", Case(name="at-min-isr", run="$at --describe --at-min-isr-partitions --topic half")),
            ("topics", Case(name="leaderless", run="$at --describe --topic gone")),
            ("cluster", Case(name="endpoints", run="list-endpoints $at")),
            ("cluster", Case(name="endpoints-of-all", run="list-endpoints $at --include-fenced-brokers")),
            (
                "leader-election",
                Case(
                    name="impossible",
                    run="$at --election-type unclean --topic gone --partition 0",
                    ends=Ends.FAILED,
                    says="1 replica\\(s\\) could not be elected",
                ),
            ),
            (
                "reassign-partitions",
                Case(
                    name="going-on",
                    files=MOVE,
                    run=[
                        "$at --execute --reassignment-json-file $dir/to.json --additional",
                        "$at --verify --reassignment-json-file $dir/to.json",
                        "$at --list",
                    ],
                ),
            ),
            (
                "reassign-partitions",
                Case(
                    name="cancel-what-is-unclean",
                    files=MOVE,
                    before=[f"{EXECUTE} $dir/to.json --additional"],
                    run="$at --cancel --reassignment-json-file $dir/to.json --preserve-throttles",
                    ends=Ends.FAILED,
                    says="unclean leader election",
                ),
            ),
            (
                "reassign-partitions",
                Case(
                    name="in-the-way",
                    files={**MOVE, **MOVE_OTHER},
                    before=[f"{EXECUTE} $dir/first.json --additional"],
                    run="$at --execute --reassignment-json-file $dir/to.json",
                    ends=Ends.FAILED,
                    says="--additional",
                ),
            ),
            ("reassign-partitions", Case(name="list-some", run="$at --list")),
            ("broker-api-versions", Case(name="of-what-is-left", run="$at", normalise=WITHOUT_NEWER)),
        )
    ],
)
def test_brokers_are_missing(
    command: str, case: Case, without_brokers: Site, java_tool: JavaTools, tmp_path: Path
) -> None:
    compare(case, command, without_brokers, java_tool, tmp_path, stuck=(STUCK[0], STUCK[1]))


def test_brokers_are_unregistered(without_brokers: Site, java_tool: JavaTools, tmp_path: Path) -> None:
    case = Case(
        name="unregister",
        run="unregister $at --id $node",
        state=["cluster list-endpoints --bootstrap-server $server --include-fenced-brokers"],
    )
    compare(case, "cluster", without_brokers, java_tool, tmp_path, node=(str(GONE), str(ALSO_GONE)))
