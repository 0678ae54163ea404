"""The steps of the stock tools, in chapters. Each chapter uses its own names in the clusters."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kit.transcripts.clusters import GONE, Side
from kit.transcripts.comparison import Action, Step
from kit.transcripts.rows import (
    CREATE,
    DENIED,
    EPOCH,
    LEADER,
    LINES,
    OF_THE_CODE,
    OFFSETS,
    TOPIC_ID,
    VOTERS,
    failing,
    step,
    steps,
)
from kit.transcripts.security_steps import ACLS, QUOTAS, TOKENS, USERS
from quorate_admin.client import AdminClient
from quorate_admin.types.partitions import TopicPartition

TOPICS: Final = (
    *steps(
        "topics",
        (
            f"$server {CREATE} orders --partitions 2 --replication-factor 2 --config retention.ms=1000",
            "Created topic orders",
        ),
        (
            f"$server {CREATE} given --replica-assignment 0:1,1:0 --config cleanup.policy=compact",
            "Created topic given",
        ),
        (f"$server {CREATE} given --if-not-exists", "exit code 0"),
        (f"$server {CREATE} or.ders", "collide"),
        (f"$server {CREATE} partly-gone --replica-assignment 0:{GONE}", "Created topic"),
    ),
    *failing(
        "topics",
        (f"$server {CREATE} given", "already exists"),
        (f"$server {CREATE} or_ders", "collides with existing"),
        (
            f"$server {CREATE} wide --replication-factor 4",
            "target replication factor of 4 cannot be reached",
        ),
        (f"$server {CREATE} wide --replication-factor 0", "replication factor"),
        (f"$server {CREATE} none --partitions 0", "partitions"),
        (f"$server {CREATE} many --partitions 10001", "Excessively large"),
        (f"$server {CREATE} 'no such'", "is illegal|invalid"),
        (f"$server {CREATE} ..", "is not allowed"),
        (f"$server {CREATE} twice --replica-assignment 0:0", "duplicate"),
        (f"$server {CREATE} far --replica-assignment 0:9", "9"),
        (f"$server {CREATE} uneven --replica-assignment 0:1,0", "replication factor"),
        (f"$server {CREATE} bad --config retention.ms=x", "invalid value x"),
        (f"$server {CREATE} bad --config unknown.key=1", "unknown"),
        (f"$server {CREATE} bad --config cleanup.policy=nothing", "cleanup.policy"),
        (f"$server {CREATE} bad --config min.insync.replicas=0", "at least 1"),
        (
            f"$server {CREATE} bad --config min.compaction.lag.ms=9 --config max.compaction.lag.ms=8",
            "conflict",
        ),
        (f"$server {CREATE} bad --config remote.storage.enable=true", "tiered storage"),
    ),
    step("topics", "$server --describe --topic given", "PartitionCount: 2", masks=[TOPIC_ID]),
    step("topics", "$server --list", "orders", masks=[]),
    step(
        "topics",
        "$server --alter --topic given --partitions 4 --replica-assignment 0:1,1:0,0:1,1:0",
        "exit code 0",
    ),
    step("topics", "$server --describe --topic given", "PartitionCount: 4", masks=[TOPIC_ID]),
    *failing(
        "topics",
        ("$server --alter --topic given --partitions 4", "already has 4|currently has 4"),
        ("$server --alter --topic given --partitions 1", "currently has 4"),
        ("$server --alter --topic given --partitions 5 --replica-assignment 0:1,1:0,0:1,1:0,0:9", "9"),
        (
            "$server --alter --topic given --partitions 5 --replica-assignment 0:1,1:0,0:1,1:0,0",
            "replica",
        ),
        ("$server --alter --topic absent --partitions 5", "does not exist"),
        ("$server --delete --topic absent", "does not exist"),
        (f"$alice {CREATE} hers", DENIED),
        ("$alice --delete --topic given", "does not exist|not authorized"),
    ),
    step("topics", "$server --delete --topic given", "exit code 0"),
    step("topics", "$server --describe --topic given", "does not exist", fails=True),
    step("topics", "$server --delete --topic or.ders", "exit code 0"),
)

_ALTER: Final = "--alter --add-config"
CONFIGS: Final = (
    step("topics", f"$server {CREATE} configured --replica-assignment 0:1", "Created"),
    *steps(
        "configs",
        (f"$server --topic configured {_ALTER} retention.ms=7,cleanup.policy=[compact,delete]", "Completed"),
        ("$server --topic configured --alter --delete-config cleanup.policy", "Completed"),
        (f"$server --broker-defaults {_ALTER} log.retention.ms=777,min.insync.replicas=1", "Completed"),
        (f"$server --broker 0 {_ALTER} log.cleaner.threads=2", "Completed"),
        (f"$controller --broker-defaults {_ALTER} log.cleaner.threads=1", "Completed"),
        ("$server --broker 0 --alter --delete-config log.cleaner.threads", "Completed"),
        (
            f"$server --client-metrics sub {_ALTER} interval.ms=1000,metrics=[org.apache,a.b],match=[client_id=a.*]",
            "Completed",
        ),
        (
            f"$server --group g {_ALTER} consumer.session.timeout.ms=50000,streams.num.standby.replicas=1",
            "Completed",
        ),
        (f"$controller --broker 3000 {_ALTER} log.cleaner.threads=2", "Completed|exit code"),
    ),
    *failing(
        "configs",
        (f"$server --topic configured {_ALTER} retention.ms=x", "invalid value x"),
        (f"$server --topic configured {_ALTER} unknown.key=1", "unknown"),
        (f"$server --topic configured {_ALTER} min.insync.replicas=0", "at least 1"),
        (
            f"$server --topic configured {_ALTER} max.compaction.lag.ms=1,min.compaction.lag.ms=2",
            "conflict",
        ),
        (f"$server --topic absent {_ALTER} retention.ms=1", "absent"),
        (f"$server --broker 0 {_ALTER} log.cleaner.threads=x", "invalid value x"),
        (f"$server --broker 0 {_ALTER} node.id=7", "cannot update|not.*dynamic|Cannot"),
        (f"$server --broker-defaults {_ALTER} min.insync.replicas=0", "at least 1"),
        (f"$server --client-metrics sub {_ALTER} interval.ms=1", "interval.ms"),
        (f"$server --client-metrics sub {_ALTER} nothing=1", "unknown"),
        (f"$server --client-metrics sub {_ALTER} match=[nothing=a]", "illegal|invalid|match"),
        (f"$server --group g {_ALTER} consumer.session.timeout.ms=1", "consumer.session.timeout.ms"),
        (f"$server --group g {_ALTER} nothing=1", "unknown"),
        (f"$alice --topic configured {_ALTER} retention.ms=1", "authoriz"),
        (f"$alice --broker-defaults {_ALTER} log.cleaner.threads=1", "authoriz"),
        (f"$alice_controller --broker-defaults {_ALTER} log.cleaner.threads=1", "authoriz"),
        (f"$alice --group g {_ALTER} consumer.session.timeout.ms=50000", "authoriz"),
        (f"$alice --client-metrics sub {_ALTER} interval.ms=1000", "authoriz"),
    ),
    step("configs", "$server --topic configured --describe", "retention.ms=7", masks=[LINES]),
    step("configs", "$server --broker-defaults --describe", "log.retention.ms=777", masks=[LINES]),
    step("configs", "$controller --broker-defaults --describe", "log.retention.ms=777", masks=[LINES]),
    step("configs", "$server --client-metrics sub --describe", "interval.ms=1000", masks=[LINES]),
    step("configs", "$server --group g --describe", "consumer.session.timeout.ms=50000", masks=[LINES]),
    step("client-metrics", "$server --describe", "interval.ms=1000", masks=[LINES]),
    step(
        "client-metrics",
        "$server --alter --name second --interval 5000 --metrics a.b --match client_id=b",
        "Altered",
    ),
    step("client-metrics", "$server --list", "second", masks=[LINES]),
    step("client-metrics", "$server --delete --name second", "Deleted|exit code 0"),
    step("streams-groups", "$server --list", "exit code 0"),
)


def reassignment(*rows: tuple[str, int, Sequence[int]]) -> str:
    """The file that says where replicas should be."""
    partitions = ", ".join(
        f'{{"topic": "{topic}", "partition": {partition}, "replicas": {list(replicas)}}}'
        for topic, partition, replicas in rows
    )
    return f'{{"version": 1, "partitions": [{partitions}]}}'


def move_to_the_one_that_is_gone(side: Side) -> None:
    """Begin reassignments that cannot end: the tool refuses brokers that are fenced, controllers do not."""
    targets = {
        TopicPartition("moved", 0): (1, GONE),
        TopicPartition("moved", 1): (GONE,),
    }

    async def move(admin: AdminClient) -> Any:
        return await admin.alter_partition_reassignments(targets)

    results = side.cluster.ask(move, brokers=side.cluster.brokers)
    assert results is not None
    assert not results.errors, results


FILES: Final[Mapping[str, str]] = {
    "swap.json": reassignment(("moved", 0, (1, 0)), ("moved", 1, (0,))),
    "stuck.json": reassignment(("moved", 0, (1, GONE)), ("moved", 1, (GONE,))),
    "other.json": reassignment(("moved", 1, (1,))),
    "absent.json": reassignment(("absent", 0, (0,))),
    "no-partition.json": reassignment(("moved", 9, (0,))),
    "nowhere.json": reassignment(("moved", 0, (0, 77))),
    "twice.json": reassignment(("moved", 0, (0, 0))),
    "nothing.json": reassignment(("moved", 0, ())),
    "leaders.json": reassignment(("elected", 0, (1, 0))),
    "elected.json": '{"partitions": [{"topic": "elected", "partition": 0}, {"topic": "elected", "partition": 1}]}',
    "not-elected.json": '{"partitions": [{"topic": "elected", "partition": 9}, {"topic": "absent", "partition": 0}]}',
}
"""Files in $dir."""
_FILE = "--reassignment-json-file $dir"
REASSIGNMENTS: Final[Sequence[Step | Action]] = (
    step("topics", f"$server {CREATE} moved --replica-assignment 0:1,1:0", "Created"),
    *steps(
        "reassign-partitions",
        (f"$server --execute {_FILE}/swap.json --throttle 7000", "Successfully started"),
    ),
    step(
        "configs",
        "$server --topic moved --describe",
        "follower.replication.throttled.replicas",
        masks=[LINES],
    ),
    step(
        "configs", "$server --broker 0 --describe", "follower.replication.throttled.rate=7000", masks=[LINES]
    ),
    *steps(
        "reassign-partitions",
        (f"$server --verify {_FILE}/swap.json", "is completed.*Clearing"),
        ("$server --list", "No partition reassignments"),
    ),
    move_to_the_one_that_is_gone,
    *steps(
        "reassign-partitions",
        (f"$server --verify {_FILE}/stuck.json --preserve-throttles", "still in progress"),
        ("$server --list", f"adding: {GONE}"),
        ("$controller --list", f"adding: {GONE}"),
    ),
    step("topics", "$server --describe --topic moved", f"adding\\S* ?replicas: {GONE}", masks=[TOPIC_ID]),
    *failing(
        "reassign-partitions",
        (f"$server --execute {_FILE}/other.json", "--additional"),
        (f"$server --execute {_FILE}/absent.json --additional", "absent"),
        (f"$server --execute {_FILE}/no-partition.json --additional", "moved-9|9"),
        (f"$server --execute {_FILE}/nowhere.json --additional", "77"),
        (f"$server --execute {_FILE}/twice.json --additional", "duplicate|twice"),
        (f"$server --execute {_FILE}/nothing.json --additional", "empty|exit code 1"),
        (f"$alice --execute {_FILE}/other.json --additional", "exit code 1"),
        ("$alice --list", "authoriz"),
        ("$alice_controller --list", "authoriz"),
        (f"$alice_controller --cancel {_FILE}/stuck.json --preserve-throttles", "authoriz"),
    ),
    *steps(
        "reassign-partitions",
        (
            f"$server --cancel {_FILE}/stuck.json --preserve-throttles",
            "cancelled partition reassignments for: moved-0,moved-1",
        ),
        ("$server --list", "No partition reassignments"),
        (f"$server --cancel {_FILE}/stuck.json --preserve-throttles", "None of the specified"),
        (f"$controller --cancel {_FILE}/other.json --preserve-throttles", "exit code 0"),
    ),
    step("topics", "$server --describe --topic moved", "PartitionCount: 2", masks=[TOPIC_ID]),
    step("configs", "$server --topic moved --describe", "exit code 0", masks=[LINES]),
)

_ELECT = "$server --election-type"
ELECTIONS: Final = (
    step("topics", f"$server {CREATE} elected --replica-assignment 0:1,1:0", "Created"),
    step("reassign-partitions", f"$server --execute {_FILE}/leaders.json", "Successfully started"),
    step("reassign-partitions", f"$server --verify {_FILE}/leaders.json", "is completed"),
    *steps(
        "leader-election",
        (
            f"{_ELECT} preferred --path-to-json-file $dir/elected.json",
            "Successfully completed.*elected-0",
        ),
        (f"{_ELECT} preferred --topic elected --partition 0", "Valid replica already elected"),
        (f"{_ELECT} unclean --topic elected --partition 0", "Valid replica already elected"),
        (f"{_ELECT} preferred --all-topic-partitions", "exit code 0"),
    ),
    *failing(
        "leader-election",
        (f"{_ELECT} preferred --path-to-json-file $dir/not-elected.json", "absent"),
        (f"{_ELECT} unclean --topic elected --partition 9", "elected-9"),
        ("$alice --election-type preferred --topic elected --partition 0", "authoriz"),
    ),
    step("topics", "$server --describe --topic elected", "PartitionCount: 2", masks=[TOPIC_ID]),
)

FEATURES: Final = (
    step("features", "$server describe", "metadata.version", masks=[EPOCH]),
    step("features", "$controller describe", "metadata.version", masks=[EPOCH]),
    *steps(
        "features",
        ("$server downgrade --feature share.version=0", "was downgraded"),
        ("$controller upgrade --feature share.version=1 --feature group.version=1", "exit code 0|upgraded"),
        ("$server upgrade --feature transaction.version=2 --dry-run", "exit code"),
        ("$server downgrade --feature group.version=1", "downgraded to 1"),
        ("$server disable --feature streams.version", "was disabled|disabled"),
        ("$controller upgrade --release-version 4.3", "was upgraded|upgraded"),
        ("$server downgrade --feature eligible.leader.replicas.version=0", "downgraded"),
        ("$server upgrade --feature eligible.leader.replicas.version=1", "upgraded"),
    ),
    *failing(
        "features",
        ("$server downgrade --metadata 4.2-IV1 --dry-run", "Unsupported metadata.version downgrade"),
        ("$server upgrade --feature metadata.version=99", "99"),
        ("$controller upgrade --feature metadata.version=99", "99"),
        ("$server upgrade --feature group.version=0", "upgradeType"),
        ("$server downgrade --feature group.version=7", "group.version"),
        ("$server upgrade --feature unknown.version=1", "unknown.version"),
        ("$server downgrade --feature metadata.version=6", "6"),
        ("$server downgrade --feature metadata.version=8", "unsafe|8"),
        ("$server upgrade --feature kraft.version=2", "kraft.version"),
        ("$server downgrade --feature kraft.version=0", "kraft.version"),
        ("$alice upgrade --feature group.version=1", "needs ALTER"),
        ("$alice_controller downgrade --feature group.version=0", "needs ALTER"),
    ),
    step("features", "$server describe", "metadata.version", masks=[EPOCH]),
)

_REMOVE = "remove-controller --controller-id"
QUORUM: Final = (
    step("cluster", "cluster-id $server", "<cluster id>"),
    step("cluster", "cluster-id $controller", "<cluster id>"),
    step("cluster", "list-endpoints $server", "127.0.0.1"),
    step("cluster", "list-endpoints $server --include-fenced-brokers", f"^{GONE}\\s"),
    step("cluster", "list-endpoints $controller", "controller"),
    *failing(
        "cluster",
        ("unregister $server --id 77", "77"),
        ("unregister $controller --id 77", "77"),
        ("unregister ${alice} --id 7", "authoriz"),
    ),
    step(
        "metadata-quorum", "$server describe --status", "ClusterId: +<cluster id>", masks=[LEADER, *OFFSETS]
    ),
    step(
        "metadata-quorum",
        "$controller describe --status",
        "ClusterId: +<cluster id>",
        masks=[LEADER, *OFFSETS],
    ),
    *failing(
        "metadata-quorum",
        Step(
            tool="metadata-quorum",
            arguments=f"$server {_REMOVE} 3999 --controller-directory-id $directory_of_3000",
            shows="Cannot remove voter",
            fails=True,
            masks=[VOTERS],
        ),
        Step(
            tool="metadata-quorum",
            arguments=f"$controller {_REMOVE} 3000 --controller-directory-id $directory_of_3001",
            shows="Cannot remove voter",
            fails=True,
            masks=[VOTERS],
        ),
        Step(
            tool="metadata-quorum",
            arguments="$alice describe --status",
            shows="cluster authorization failed",
            fails=True,
            masks=[OF_THE_CODE],
        ),
        ("$alice_controller describe --status", "authoriz"),
        (f"$alice_controller {_REMOVE} 3000 --controller-directory-id $directory_of_3000", "authoriz"),
    ),
    step("cluster", f"unregister $controller --id {GONE}", "no longer registered"),
    step("cluster", "list-endpoints $server --include-fenced-brokers", "127.0.0.1"),
)

CHAPTERS: Final[Mapping[str, Sequence[Step | Action]]] = {
    "topics": TOPICS,
    "configs": CONFIGS,
    "quotas": QUOTAS,
    "users": USERS,
    "acls": ACLS,
    "tokens": TOKENS,
    "reassignments": REASSIGNMENTS,
    "elections": ELECTIONS,
    "features": FEATURES,
    "quorum": QUORUM,
}
"""In this order: the last one unregisters a broker that the others need."""
