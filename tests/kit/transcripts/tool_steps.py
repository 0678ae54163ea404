"""What the stock tools are asked to do, in chapters. Each chapter has names of its own in the clusters."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kit.parity.harness import Normalise, blocks_sorted, lines_sorted, replaced
from kit.transcripts.clusters import GONE, Side
from kit.transcripts.comparison import Action, Step
from quorate_admin.client import AdminClient
from quorate_admin.types.partitions import TopicPartition


def observers_sorted(why: str) -> Normalise:
    """The order of observers does not count."""

    def change(text: str) -> str:
        return re.sub(
            r"(?<=CurrentObservers:)(\s+)\[(.*)\]",
            lambda found: f"{found[1]}{sorted(found[2].split(', {'))}",
            text.replace("[{", "[, {"),
        )

    return Normalise(why, change)


TOPIC_ID: Final = replaced(r"(?<=TopicId: )\S{22}", "<topic id>", "ids of topics are random")
HASHED: Final = blocks_sorted("Java's controllers list ACLs in the order of hashes of random ids")
LINES: Final = lines_sorted("Java's controllers keep configs and quotas in hash maps")
EPOCH: Final = replaced(
    r"Epoch: \d+", "Epoch: <offset>", "an epoch of features is an offset, and logs grow by themselves"
)
TOKEN: Final = (
    replaced(r"[A-Za-z0-9_-]{22}(?=\s)", "<token id>", "each token has a random id"),
    replaced(r"[A-Za-z0-9+/]{86}==", "<hmac>", "each token has its own HMAC"),
    replaced(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "<minute>", "a minute may begin between two runs"),
    replaced(r"(?<=:)\d{13}\b", "<ms>", "times of tokens are in milliseconds"),
)
LEADER: Final = replaced(r"(?<=LeaderId: )\s*\d+", "<leader>", "elections are a matter of chance")
OFFSETS: Final = (
    observers_sorted("Java's controllers keep observers in a hash map"),
    replaced(r"(?<=LeaderEpoch: )\s*\d+", "<epoch>", "there may have been several elections"),
    replaced(r"(?<=HighWatermark: )\s*\d+", "<offset>", "logs grow by themselves"),
    replaced(r"(?<=MaxFollowerLag: )\s*\d+", "<lag>", "followers are behind by chance"),
    replaced(r"(?<=MaxFollowerLagTimeMs: )\s*-?\d+", "<ms>", "followers are behind by chance"),
)


VOTERS: Final = replaced(
    r"(?<=Cannot remove voter ).*", "<voter and voters>", "ours writes voters as ID-DIRECTORY, in order"
)
OF_THE_CODE: Final = replaced(
    r"Request <request> needs DESCRIBE permission\.",
    "Cluster authorization failed.",
    "to DescribeQuorum Java answers with the text of the code, ours names what is missing",
)


def _steps(tool: str, *rows: tuple[str, str] | Step, fails: bool = False) -> tuple[Step, ...]:
    return tuple(
        row if isinstance(row, Step) else Step(tool=tool, arguments=row[0], shows=row[1], fails=fails)
        for row in rows
    )


def _fail(tool: str, *rows: tuple[str, str] | Step) -> tuple[Step, ...]:
    return _steps(tool, *rows, fails=True)


def _add(tool: str, arguments: str, shows: str, **options: object) -> Step:
    return Step(tool=tool, arguments=arguments, shows=shows, **options)  # type: ignore[arg-type]


_DENIED = "authorization failed|not authorized"
_CREATE = "--create --topic"

TOPICS: Final = (
    *_steps(
        "topics",
        (
            f"$server {_CREATE} orders --partitions 2 --replication-factor 2 --config retention.ms=1000",
            "Created topic orders",
        ),
        (
            f"$server {_CREATE} given --replica-assignment 0:1,1:0 --config cleanup.policy=compact",
            "Created topic given",
        ),
        (f"$server {_CREATE} given --if-not-exists", "exit code 0"),
        (f"$server {_CREATE} or.ders", "collide"),
        (f"$server {_CREATE} partly-gone --replica-assignment 0:{GONE}", "Created topic"),
    ),
    *_fail(
        "topics",
        (f"$server {_CREATE} given", "already exists"),
        (f"$server {_CREATE} or_ders", "collides with existing"),
        (
            f"$server {_CREATE} wide --replication-factor 4",
            "target replication factor of 4 cannot be reached",
        ),
        (f"$server {_CREATE} wide --replication-factor 0", "replication factor"),
        (f"$server {_CREATE} none --partitions 0", "partitions"),
        (f"$server {_CREATE} many --partitions 10001", "Excessively large"),
        (f"$server {_CREATE} 'no such'", "is illegal|invalid"),
        (f"$server {_CREATE} ..", "is not allowed"),
        (f"$server {_CREATE} twice --replica-assignment 0:0", "duplicate"),
        (f"$server {_CREATE} far --replica-assignment 0:9", "9"),
        (f"$server {_CREATE} uneven --replica-assignment 0:1,0", "replication factor"),
        (f"$server {_CREATE} bad --config retention.ms=x", "invalid value x"),
        (f"$server {_CREATE} bad --config unknown.key=1", "unknown"),
        (f"$server {_CREATE} bad --config cleanup.policy=nothing", "cleanup.policy"),
        (f"$server {_CREATE} bad --config min.insync.replicas=0", "at least 1"),
        (
            f"$server {_CREATE} bad --config min.compaction.lag.ms=9 --config max.compaction.lag.ms=8",
            "conflict",
        ),
        (f"$server {_CREATE} bad --config remote.storage.enable=true", "tiered storage"),
    ),
    _add("topics", "$server --describe --topic given", "PartitionCount: 2", masks=[TOPIC_ID]),
    _add("topics", "$server --list", "orders", masks=[]),
    _add(
        "topics",
        "$server --alter --topic given --partitions 4 --replica-assignment 0:1,1:0,0:1,1:0",
        "exit code 0",
    ),
    _add("topics", "$server --describe --topic given", "PartitionCount: 4", masks=[TOPIC_ID]),
    *_fail(
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
        (f"$alice {_CREATE} hers", _DENIED),
        ("$alice --delete --topic given", "does not exist|not authorized"),
    ),
    _add("topics", "$server --delete --topic given", "exit code 0"),
    _add("topics", "$server --describe --topic given", "does not exist", fails=True),
    _add("topics", "$server --delete --topic or.ders", "exit code 0"),
)

_ALTER: Final = "--alter --add-config"
CONFIGS: Final = (
    _add("topics", f"$server {_CREATE} configured --replica-assignment 0:1", "Created"),
    *_steps(
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
    *_fail(
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
    _add("configs", "$server --topic configured --describe", "retention.ms=7", masks=[LINES]),
    _add("configs", "$server --broker-defaults --describe", "log.retention.ms=777", masks=[LINES]),
    _add("configs", "$controller --broker-defaults --describe", "log.retention.ms=777", masks=[LINES]),
    _add("configs", "$server --client-metrics sub --describe", "interval.ms=1000", masks=[LINES]),
    _add("configs", "$server --group g --describe", "consumer.session.timeout.ms=50000", masks=[LINES]),
    _add("client-metrics", "$server --describe", "interval.ms=1000", masks=[LINES]),
    _add(
        "client-metrics",
        "$server --alter --name second --interval 5000 --metrics a.b --match client_id=b",
        "Altered",
    ),
    _add("client-metrics", "$server --list", "second", masks=[LINES]),
    _add("client-metrics", "$server --delete --name second", "Deleted|exit code 0"),
    _add("streams-groups", "$server --list", "exit code 0"),
)

QUOTAS: Final = (
    *_steps(
        "configs",
        (f"$server --user alice {_ALTER} producer_byte_rate=1000,request_percentage=50.5", "Completed"),
        (f"$server --user alice --client app {_ALTER} consumer_byte_rate=7", "Completed"),
        (f"$server --user-defaults {_ALTER} controller_mutation_rate=1000000", "Completed"),
        (f"$server --client-defaults {_ALTER} producer_byte_rate=1e9", "Completed"),
        (f"$server --ip 10.0.0.1 {_ALTER} connection_creation_rate=5", "Completed"),
        (f"$server --ip-defaults {_ALTER} connection_creation_rate=500", "Completed"),
        ("$server --user alice --alter --delete-config request_percentage", "Completed"),
    ),
    *_fail(
        "configs",
        (f"$server --user alice {_ALTER} unknown_rate=1", "unknown"),
        (f"$server --user alice {_ALTER} producer_byte_rate=-1", "producer_byte_rate|positive|greater"),
        (f"$server --user alice {_ALTER} producer_byte_rate=0.5", "whole|long|integral|exit"),
        (
            f"$server --user alice {_ALTER} connection_creation_rate=5",
            "invalid|unknown|connection_creation_rate",
        ),
        (f"$server --ip 10.0.0.1 {_ALTER} producer_byte_rate=5", "invalid|unknown|producer_byte_rate"),
        (f"$server --ip 'no such host' {_ALTER} connection_creation_rate=5", "no such host"),
        (f"$alice --user bob {_ALTER} producer_byte_rate=5", "authoriz"),
    ),
    _add("configs", "$server --entity-type users --describe", "producer_byte_rate=1000", masks=[LINES]),
    _add("configs", "$server --entity-type clients --describe", "producer_byte_rate=1.0E9", masks=[LINES]),
    _add("configs", "$server --entity-type ips --describe", "connection_creation_rate=500", masks=[LINES]),
    _add(
        "configs",
        "$server --entity-type users --entity-type clients --describe",
        "consumer_byte_rate=7",
        masks=[LINES],
    ),
)

_SHA_256, _SHA_512 = "'SCRAM-SHA-256=[iterations=8192,password=a-secret]'", "'SCRAM-SHA-512=[password=b]'"
USERS: Final = (
    *_steps(
        "configs",
        (f"$server --user carol {_ALTER} {_SHA_256}", "Completed"),
        (f"$server --user carol {_ALTER} {_SHA_512}", "Completed"),
        ("$server --user carol --alter --delete-config SCRAM-SHA-512", "Completed"),
    ),
    *_fail(
        "configs",
        (f"$server --user carol {_ALTER} 'SCRAM-SHA-256=[iterations=5,password=a]'", "iterations"),
        (f"$server --user carol {_ALTER} 'SCRAM-SHA-256=[iterations=16385,password=a]'", "iterations"),
        ("$server --user carol --alter --delete-config SCRAM-SHA-512", "delete|exist"),
        (f"$alice --user eve {_ALTER} {_SHA_256}", "authoriz"),
    ),
    _add("configs", "$server --user carol --describe", "SCRAM-SHA-256=iterations=8192", masks=[LINES]),
)

_BOB = "--add --allow-principal User:bob --operation Read --operation Write --topic ledger"
_ALICES = "--add --allow-principal User:alice" + "".join(
    f" --operation {operation}" for operation in ("Create", "Describe", "Delete", "DescribeConfigs")
)
ACLS: Final = (
    *_steps(
        "acls",
        _add("acls", f"$server {_BOB}", "ledger", masks=[HASHED]),
        _add("acls", f"$server {_BOB}", "ledger", masks=[HASHED]),
        _add(
            "acls",
            "$controller --add --deny-principal User:eve --deny-host 10.0.0.1 --cluster",
            "User:eve",
            masks=[HASHED],
        ),
        _add(
            "acls",
            f"$controller {_ALICES} --topic hers --resource-pattern-type prefixed",
            "User:alice",
            masks=[HASHED],
        ),
        _add(
            "acls",
            "$server --add --allow-principal User:bob --producer --idempotent --topic ledger",
            "WRITE",
            masks=[HASHED],
        ),
        _add(
            "acls",
            "$server --add --allow-principal User:bob --consumer --topic ledger --group '*'",
            "READ",
            masks=[HASHED],
        ),
        _add(
            "acls",
            "$server --add --allow-principal User:bob --operation Describe --delegation-token t",
            "DESCRIBE",
            masks=[HASHED],
        ),
        _add(
            "acls",
            "$server --add --allow-principal User:bob --operation CreateTokens --user-principal User:eve",
            "CREATE_TOKENS",
            masks=[HASHED],
        ),
        _add("acls", "$server --list", "User:eve", masks=[HASHED]),
        _add("acls", "$controller --list", "User:eve", masks=[HASHED]),
        _add(
            "acls",
            "$server --list --topic hers-first --resource-pattern-type match",
            "User:alice",
            masks=[HASHED],
        ),
    ),
    *_fail(
        "acls",
        ("$alice --list", "authoriz"),
        ("$alice_controller --list", "authoriz"),
        (f"$alice {_ALICES} --topic more", "authoriz"),
        (f"$alice_controller {_ALICES} --topic more", "authoriz"),
        ("$alice --remove --force --topic ledger", "authoriz"),
        ("$server --add --allow-principal User:bob --operation Read --topic ''", "exit code 1"),
        (
            "$server --add --allow-principal User:bob --operation Alter --cluster --resource-pattern-type prefixed",
            "exit code 1",
        ),
    ),
    *_steps(
        "topics",
        (f"$alice {_CREATE} hers-first --replica-assignment 0:1", "Created"),
        _add("topics", "$alice --describe --topic hers-first", "PartitionCount: 1", masks=[TOPIC_ID]),
    ),
    *_fail(
        "topics",
        (f"$alice {_CREATE} not-hers", _DENIED),
        (
            f"$alice {_CREATE} hers-second --config retention.ms=1 --replication-factor 9",
            "replication factor|authoriz",
        ),
        ("$alice --alter --topic hers-first --partitions 3", "authoriz"),
        ("$alice --delete --topic ledger", "does not exist|authoriz"),
    ),
    _add("topics", "$alice --delete --topic hers-first", "exit code 0"),
    _add(
        "acls",
        "$server --remove --force --allow-principal User:bob --operation Write --topic ledger",
        "exit code 0",
        masks=[HASHED],
    ),
    _add("acls", "$controller --remove --force --cluster", "exit code 0", masks=[HASHED]),
    _add("acls", "$server --list", "ledger", masks=[HASHED]),
)

_TOKEN_OF_BOB = "$admin --create --max-life-time-period"
TOKENS: Final = (
    _add(
        "delegation-tokens",
        f"{_TOKEN_OF_BOB} 3600000 --renewer-principal User:bob",
        "TOKENID",
        masks=TOKEN,
        captures={"hmac": r"([A-Za-z0-9+/]{86}==)"},
    ),
    _add("delegation-tokens", "$admin --describe", "TOKENID|Total number", masks=TOKEN),
    _add(
        "delegation-tokens", "$admin --renew --hmac $hmac --renew-time-period 60000", "Completed", masks=TOKEN
    ),
    _add(
        "delegation-tokens", "$bob --renew --hmac $hmac --renew-time-period 120000", "Completed", masks=TOKEN
    ),
    _add(
        "delegation-tokens",
        "$alice --renew --hmac $hmac --renew-time-period 60000",
        "owner|exit code 1",
        masks=TOKEN,
        fails=True,
    ),
    _add(
        "delegation-tokens",
        "$alice --expire --hmac $hmac --expiry-time-period -1",
        "owner|exit code 1",
        masks=TOKEN,
        fails=True,
    ),
    _add(
        "delegation-tokens",
        "$alice --create --max-life-time-period -1 --owner-principal User:bob",
        "authoriz",
        masks=TOKEN,
        fails=True,
    ),
    _add(
        "delegation-tokens",
        "$admin --renew --hmac bm90aGluZw== --renew-time-period 60000",
        "not.?found",
        masks=TOKEN,
        fails=True,
    ),
    _add(
        "delegation-tokens",
        "$server --create --max-life-time-period -1",
        "allowed",
        masks=TOKEN,
        fails=True,
    ),
    _add(
        "delegation-tokens",
        "$admin --create --max-life-time-period -1 --owner-principal User:carol --renewer-principal User:x",
        "User:carol",
        masks=[*TOKEN, LINES],
    ),
    _add(
        "delegation-tokens", "$admin --expire --hmac $hmac --expiry-time-period -1", "Completed", masks=TOKEN
    ),
    _add(
        "delegation-tokens",
        "$admin --expire --hmac $hmac --expiry-time-period -1",
        "not.?found",
        masks=TOKEN,
        fails=True,
    ),
    _add(
        "delegation-tokens",
        "$alice --create --max-life-time-period 100000000000000",
        "User:alice",
        masks=TOKEN,
    ),
    _add(
        "delegation-tokens",
        "$admin --describe --owner-principal User:carol --owner-principal User:alice",
        "User:carol",
        masks=[*TOKEN, LINES],
    ),
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
    _add("topics", f"$server {_CREATE} moved --replica-assignment 0:1,1:0", "Created"),
    *_steps(
        "reassign-partitions",
        (f"$server --execute {_FILE}/swap.json --throttle 7000", "Successfully started"),
    ),
    _add(
        "configs",
        "$server --topic moved --describe",
        "follower.replication.throttled.replicas",
        masks=[LINES],
    ),
    _add(
        "configs", "$server --broker 0 --describe", "follower.replication.throttled.rate=7000", masks=[LINES]
    ),
    *_steps(
        "reassign-partitions",
        (f"$server --verify {_FILE}/swap.json", "is completed.*Clearing"),
        ("$server --list", "No partition reassignments"),
    ),
    move_to_the_one_that_is_gone,
    *_steps(
        "reassign-partitions",
        (f"$server --verify {_FILE}/stuck.json --preserve-throttles", "still in progress"),
        ("$server --list", f"adding: {GONE}"),
        ("$controller --list", f"adding: {GONE}"),
    ),
    _add("topics", "$server --describe --topic moved", f"adding\\S* ?replicas: {GONE}", masks=[TOPIC_ID]),
    *_fail(
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
    *_steps(
        "reassign-partitions",
        (
            f"$server --cancel {_FILE}/stuck.json --preserve-throttles",
            "cancelled partition reassignments for: moved-0,moved-1",
        ),
        ("$server --list", "No partition reassignments"),
        (f"$server --cancel {_FILE}/stuck.json --preserve-throttles", "None of the specified"),
        (f"$controller --cancel {_FILE}/other.json --preserve-throttles", "exit code 0"),
    ),
    _add("topics", "$server --describe --topic moved", "PartitionCount: 2", masks=[TOPIC_ID]),
    _add("configs", "$server --topic moved --describe", "exit code 0", masks=[LINES]),
)

_ELECT = "$server --election-type"
ELECTIONS: Final = (
    _add("topics", f"$server {_CREATE} elected --replica-assignment 0:1,1:0", "Created"),
    _add("reassign-partitions", f"$server --execute {_FILE}/leaders.json", "Successfully started"),
    _add("reassign-partitions", f"$server --verify {_FILE}/leaders.json", "is completed"),
    *_steps(
        "leader-election",
        (
            f"{_ELECT} preferred --path-to-json-file $dir/elected.json",
            "Successfully completed.*elected-0",
        ),
        (f"{_ELECT} preferred --topic elected --partition 0", "Valid replica already elected"),
        (f"{_ELECT} unclean --topic elected --partition 0", "Valid replica already elected"),
        (f"{_ELECT} preferred --all-topic-partitions", "exit code 0"),
    ),
    *_fail(
        "leader-election",
        (f"{_ELECT} preferred --path-to-json-file $dir/not-elected.json", "absent"),
        (f"{_ELECT} unclean --topic elected --partition 9", "elected-9"),
        ("$alice --election-type preferred --topic elected --partition 0", "authoriz"),
    ),
    _add("topics", "$server --describe --topic elected", "PartitionCount: 2", masks=[TOPIC_ID]),
)

FEATURES: Final = (
    _add("features", "$server describe", "metadata.version", masks=[EPOCH]),
    _add("features", "$controller describe", "metadata.version", masks=[EPOCH]),
    *_steps(
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
    *_fail(
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
    _add("features", "$server describe", "metadata.version", masks=[EPOCH]),
)

_REMOVE = "remove-controller --controller-id"
QUORUM: Final = (
    _add("cluster", "cluster-id $server", "<cluster id>"),
    _add("cluster", "cluster-id $controller", "<cluster id>"),
    _add("cluster", "list-endpoints $server", "127.0.0.1"),
    _add("cluster", "list-endpoints $server --include-fenced-brokers", f"^{GONE}\\s"),
    _add("cluster", "list-endpoints $controller", "controller"),
    *_fail(
        "cluster",
        ("unregister $server --id 77", "77"),
        ("unregister $controller --id 77", "77"),
        ("unregister ${alice} --id 7", "authoriz"),
    ),
    _add(
        "metadata-quorum", "$server describe --status", "ClusterId: +<cluster id>", masks=[LEADER, *OFFSETS]
    ),
    _add(
        "metadata-quorum",
        "$controller describe --status",
        "ClusterId: +<cluster id>",
        masks=[LEADER, *OFFSETS],
    ),
    *_fail(
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
    _add("cluster", f"unregister $controller --id {GONE}", "no longer registered"),
    _add("cluster", "list-endpoints $server --include-fenced-brokers", "127.0.0.1"),
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
