"""kafka-reassign-partitions. Reassignments that do not end, because a broker is away, are in test_changes.py."""

from kit.parity.harness import Case, Ends

TOPIC = "topics --bootstrap-server $server --create --topic"
DESCRIBE = "topics --bootstrap-server $server --describe --topic"
CONFIGS = "configs --bootstrap-server $server --describe"
TO_MOVE = '{"version": 1, "topics": [{"topic": "$twin"}]}'


def reassignment(*partitions: str) -> str:
    """The file that says where replicas should be."""
    return f'{{"version": 1, "partitions": [{", ".join(f"{{{partition}}}" for partition in partitions)}]}}'


SWAPPED = reassignment('"topic": "$twin", "partition": 0, "replicas": [$b1, $b0]')
SAME = reassignment('"topic": "$twin", "partition": 0, "replicas": [$b0]')
MORE = reassignment('"topic": "$twin", "partition": 0, "replicas": [$b0, $b1]')
UNKNOWN = reassignment('"topic": "no-such", "partition": 0, "replicas": [$b0]')
NOWHERE = reassignment('"topic": "$twin", "partition": 0, "replicas": [777]')
TWICE = reassignment(*['"topic": "a", "partition": 0, "replicas": [0]'] * 2)
IN_DIRECTORY = reassignment('"topic": "$twin", "partition": 0, "replicas": [$b0], "log_dirs": ["any"]')
FILE = "--reassignment-json-file $dir/to.json"

CASES = (
    Case(
        name="generate",
        before=[f"{TOPIC} $twin --replica-assignment $b0"],
        files={"move.json": TO_MOVE},
        run=[
            "$at --generate --topics-to-move-json-file $dir/move.json --broker-list $b0",
            "$at --generate --topics-to-move-json-file $dir/move.json --broker-list $b0 --disable-rack-aware",
        ],
        at=["server"],
        reads=True,
    ),
    Case(
        name="execute-and-verify",
        before=[f"{TOPIC} $twin --replica-assignment $b0:$b1"],
        files={"to.json": SWAPPED},
        run=[f"$at --execute {FILE}", f"$at --verify {FILE}"],
        at=["server"],
        brokers=2,
    ),
    Case(
        name="execute-what-is-so-already",
        before=[f"{TOPIC} $twin --replica-assignment $b0"],
        files={"to.json": SAME},
        run=[f"$at --execute {FILE}", f"$at --verify {FILE}", "$at --list"],
        clusters=["java"],
        at=["server"],
    ),
    Case(
        name="execute-with-throttle",
        before=[f"{TOPIC} $twin --replica-assignment $b0:$b1"],
        files={"to.json": SWAPPED},
        run=[
            f"$at --execute {FILE} --throttle 1000000 --replica-alter-log-dirs-throttle 2000000 --timeout 5000",
            f"$at --execute {FILE} --throttle 3000000 --additional",
            f"$at --verify {FILE} --preserve-throttles",
            f"$at --verify {FILE}",
        ],
        state=[f"{CONFIGS} --topic $twin", f"{CONFIGS} --broker $b0"],
        at=["server"],
        brokers=2,
    ),
    Case(
        name="execute-into-a-directory",
        before=[f"{TOPIC} $twin --replica-assignment $b0"],
        files={"to.json": IN_DIRECTORY},
        run=[f"$at --execute {FILE}", f"$at --verify {FILE}"],
        clusters=["java"],
        at=["server"],
    ),
    Case(
        name="execute-with-more-replicas",
        before=[f"{TOPIC} $twin --replica-assignment $b0"],
        files={"to.json": MORE},
        run=f"$at --execute {FILE} --disallow-replication-factor-change",
        ends=Ends.FAILED,
        says="replication factor",
        at=["server"],
        brokers=2,
    ),
    Case(
        name="execute-for-an-unknown-topic",
        files={"to.json": UNKNOWN},
        run=f"$at --execute {FILE}",
        ends=Ends.FAILED,
        says="no-such",
        at=["server"],
    ),
    Case(
        name="execute-to-an-unknown-broker",
        before=[f"{TOPIC} $twin --replica-assignment $b0"],
        files={"to.json": NOWHERE},
        run=f"$at --execute {FILE}",
        ends=Ends.FAILED,
        says="777",
        at=["server"],
    ),
    Case(
        name="execute-a-partition-twice",
        files={"to.json": TWICE},
        run=f"$at --execute {FILE}",
        ends=Ends.FAILED,
        says="(?i)duplicate",
        at=["server"],
    ),
    Case(
        name="execute-what-is-no-json",
        files={"to.json": "nothing"},
        run=f"$at --execute {FILE}",
        ends=Ends.FAILED,
        at=["server"],
    ),
    Case(
        name="execute-no-file", run=f"$at --execute {FILE}", ends=Ends.FAILED, says="to.json", at=["server"]
    ),
    Case(
        name="verify-what-is-elsewhere",
        before=[f"{TOPIC} $twin --replica-assignment $b0"],
        files={"to.json": MORE},
        run=f"$at --verify {FILE}",
        at=["server"],
        brokers=2,
        reads=True,
    ),
    Case(name="list", run="$at --list", reads=True),
    Case(name="list-as-process", run="$at --list", as_process=True),
    Case(
        name="cancel-nothing",
        before=[f"{TOPIC} $twin --replica-assignment $b0"],
        files={"to.json": SAME},
        run=[
            f"$at --cancel {FILE} --preserve-throttles",
            f"$at --cancel {FILE} --timeout 1000 --preserve-throttles",
        ],
    ),
    Case(
        name="cancel-nothing-with-throttles",
        before=[f"{TOPIC} $twin --replica-assignment $b0"],
        files={"to.json": SAME},
        run=f"$at --cancel {FILE}",
        at=["server"],
    ),
    Case(name="with-client-properties", run="$at --list --command-config $client"),
    Case(name="without-action", run="$at", ends=Ends.USAGE),
    Case(name="with-two-actions", run="$at --list --verify", ends=Ends.USAGE),
    Case(
        name="generate-without-brokers",
        run="$at --generate --topics-to-move-json-file a",
        ends=Ends.USAGE,
        at=["server"],
    ),
    Case(name="verify-without-file", run="$at --verify", ends=Ends.USAGE),
    Case(name="list-with-file", run=f"$at --list {FILE}", ends=Ends.USAGE),
    Case(
        name="execute-at-controllers",
        files={"to.json": SAME},
        run=f"$at --execute {FILE}",
        ends=Ends.USAGE,
        at=["controller"],
    ),
    Case(name="without-cluster", run="--list", ends=Ends.USAGE),
    Case(
        name="with-two-clusters",
        run="--bootstrap-server $server --bootstrap-controller $controller --list",
        ends=Ends.USAGE,
        at=["server"],
    ),
    Case(
        name="nobody-there",
        run="--bootstrap-server 127.0.0.1:1 --list --command-config $quick",
        ends=Ends.FAILED,
        at=["server"],
    ),
    Case(name="help", run="--help", ends=Ends.HELP, at=["server"]),
)
