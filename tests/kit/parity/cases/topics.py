"""kafka-topics."""

from kit.parity.harness import Case, Ends, Step, replaced

CREATE = "topics --bootstrap-server $server --create --topic"
DESCRIBE = "topics --bootstrap-server $server --describe --topic"
TOPIC_ID = replaced(r"TopicId: \S{22}", "TopicId: <id>", "each topic has a random id")
PLACED = (
    replaced(r"(Leader|Replicas|Isr): [\d,]+", r"\1: <brokers>", "brokers are chosen at random"),
    TOPIC_ID,
)

CASES = (
    Case(
        name="create",
        run="$at --create --topic $twin --partitions 3 --replication-factor 1",
        state=[f"{DESCRIBE} $twin"],
        normalise=PLACED,
    ),
    Case(
        name="create-with-defaults",
        run="$at --create --topic $twin",
        state=[f"{DESCRIBE} $twin"],
        normalise=PLACED,
    ),
    Case(
        name="create-with-configs",
        run="$at --create --topic $twin --config retention.ms=100000 --config cleanup.policy=compact,delete",
        state=[f"{DESCRIBE} $twin"],
        normalise=PLACED,
    ),
    Case(
        name="create-with-replicas",
        run="$at --create --topic $twin --replica-assignment $b0:$b1,$b1:$b0",
        state=[f"{DESCRIBE} $twin"],
        normalise=[TOPIC_ID],
        brokers=2,
    ),
    Case(
        name="create-warns-of-names-that-collide",
        run="$at --create --topic $twin.with_both",
        state=[f"{DESCRIBE} $twin.with_both"],
        normalise=PLACED,
    ),
    Case(
        name="create-if-not-exists",
        run=["$at --create --topic $twin --if-not-exists", "$at --create --topic $twin --if-not-exists"],
    ),
    Case(
        name="create-what-exists",
        before=[f"{CREATE} $own"],
        run="$at --create --topic $own",
        ends=Ends.FAILED,
        says="Topic 'p.*' already exists",
    ),
    Case(
        name="create-with-too-many-replicas",
        run="$at --create --topic $twin --replication-factor 99",
        ends=Ends.FAILED,
        says="replication factor",
    ),
    Case(
        name="create-without-partitions",
        run="$at --create --topic $twin --partitions 0",
        ends=Ends.USAGE,
        says="must be greater than 0",
    ),
    Case(
        name="create-with-an-impossible-factor",
        run="$at --create --topic $twin --replication-factor 32768",
        ends=Ends.USAGE,
        says="must be between 1 and 32767",
    ),
    Case(
        name="create-with-an-unknown-config",
        run="$at --create --topic $twin --config no.such.config=1",
        ends=Ends.FAILED,
        says="no.such.config",
    ),
    Case(
        name="create-with-a-bad-value",
        run="$at --create --topic $twin --config retention.ms=soon",
        ends=Ends.FAILED,
        says="retention.ms",
    ),
    Case(
        name="create-with-a-bad-name",
        run="$at --create --topic a/b",
        ends=Ends.FAILED,
        says="a/b",
    ),
    Case(name="create-without-name", run="$at --create", ends=Ends.USAGE),
    Case(
        name="create-with-factor-and-replicas",
        run="$at --create --topic $twin --replication-factor 1 --replica-assignment 0",
        ends=Ends.USAGE,
    ),
    Case(name="list", before=[f"{CREATE} $own"], run="$at --list", reads=True),
    Case(
        name="list-some",
        before=[f"{CREATE} $own.one", f"{CREATE} $own.two", f"{CREATE} $own-three"],
        run=[
            "$at --list --topic $own\\\\..*",
            "$at --list --topic $own-three,$own.one",
            "$at --list --topic nothing",
        ],
        reads=True,
    ),
    Case(
        name="list-without-internal",
        before=[f"{CREATE} $own"],
        run="$at --list --exclude-internal",
        as_process=True,
        reads=True,
    ),
    Case(
        name="describe",
        before=[f"{CREATE} $own --partitions 4"],
        run="$at --describe --topic $own",
        reads=True,
    ),
    Case(
        name="describe-some",
        before=[
            f"{CREATE} $own.a",
            f"{CREATE} $own.b --partitions 2",
            f"{CREATE} $own.c --config flush.ms=7",
        ],
        run="$at --describe --topic $own.*",
        reads=True,
    ),
    Case(
        name="describe-by-id",
        before=[f"{CREATE} $own", Step(f"{DESCRIBE} $own", {"topic_id": r"TopicId: (\S+)"})],
        run="$at --describe --topic-id $topic_id",
        reads=True,
    ),
    Case(
        name="describe-an-unknown-id",
        run="$at --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ",
        ends=Ends.FAILED,
        says="AAAAAAAAAAAAAAAAAAAAAQ",
    ),
    Case(
        name="describe-page-by-page",
        before=[f"{CREATE} $own --partitions 7"],
        run="$at --describe --topic $own --partition-size-limit-per-response 2",
        reads=True,
    ),
    Case(
        name="describe-with-overrides",
        before=[
            f"{CREATE} $own.plain",
            f"{CREATE} $own.set --config retention.ms=5 --config segment.bytes=1048576",
        ],
        run="$at --describe --topics-with-overrides --topic $own.*",
        reads=True,
    ),
    Case(
        name="describe-with-too-few-in-sync",
        before=[f"{CREATE} $own --partitions 2 --replication-factor 1 --config min.insync.replicas=2"],
        run=[
            "$at --describe --topic $own --under-min-isr-partitions",
            "$at --describe --topic $own --at-min-isr-partitions",
            "$at --describe --topic $own --under-replicated-partitions",
            "$at --describe --topic $own --unavailable-partitions",
        ],
        reads=True,
    ),
    Case(
        name="describe-with-just-enough-in-sync",
        before=[f"{CREATE} $own --partitions 2 --replication-factor 1"],
        run="$at --describe --topic $own --at-min-isr-partitions --exclude-internal",
        reads=True,
    ),
    Case(
        name="describe-what-is-not-there",
        run="$at --describe --topic $own",
        ends=Ends.FAILED,
        says="Topic 'p.*' does not exist as expected",
    ),
    Case(name="describe-if-exists", run="$at --describe --topic $own --if-exists", reads=True),
    Case(
        name="alter",
        before=[f"{CREATE} $twin --partitions 1"],
        run="$at --alter --topic $twin --partitions 3",
        state=[f"{DESCRIBE} $twin"],
        normalise=PLACED,
    ),
    Case(
        name="alter-with-replicas",
        before=[f"{CREATE} $twin --replica-assignment $$b0".replace("$$", "$")],
        run="$at --alter --topic $twin --partitions 2 --replica-assignment $b0,$b0",
        state=[f"{DESCRIBE} $twin"],
        normalise=[TOPIC_ID],
    ),
    Case(
        name="alter-to-fewer",
        before=[f"{CREATE} $own --partitions 3"],
        run="$at --alter --topic $own --partitions 2",
        ends=Ends.FAILED,
        says="currently has 3 partition",
    ),
    Case(
        name="alter-what-is-not-there",
        run="$at --alter --topic $own --partitions 2",
        ends=Ends.FAILED,
        says="Topic 'p.*' does not exist as expected",
    ),
    Case(name="alter-if-exists", run="$at --alter --topic $own --partitions 2 --if-exists"),
    Case(name="alter-configs", run="$at --alter --topic $own --config flush.ms=1", ends=Ends.USAGE),
    Case(name="delete-configs", run="$at --alter --topic $own --delete-config flush.ms", ends=Ends.USAGE),
    Case(
        name="delete",
        before=[f"{CREATE} $twin.a", f"{CREATE} $twin.b"],
        run="$at --delete --topic $twin.*",
        state=["topics --bootstrap-server $server --list --topic $twin.*"],
    ),
    Case(
        name="delete-what-is-not-there",
        run="$at --delete --topic $own",
        ends=Ends.FAILED,
        says="Topic 'p.*' does not exist as expected",
    ),
    Case(name="delete-if-exists", run="$at --delete --topic $own --if-exists"),
    Case(name="with-client-properties", run="$at --list --command-config $client", reads=True),
    Case(name="without-action", run="$at", ends=Ends.USAGE),
    Case(name="with-two-actions", run="$at --list --describe", ends=Ends.USAGE),
    Case(name="without-cluster", run="--list", ends=Ends.USAGE),
    Case(name="with-unknown-option", run="$at --list --no-such-option", ends=Ends.USAGE),
    Case(
        name="with-two-filters",
        run="$at --describe --topics-with-overrides --unavailable-partitions",
        ends=Ends.USAGE,
    ),
    Case(
        name="with-a-word-for-a-number", run="$at --create --topic $twin --partitions many", ends=Ends.USAGE
    ),
    Case(
        name="nobody-there",
        run="--bootstrap-server 127.0.0.1:1 --list --command-config $quick",
        ends=Ends.FAILED,
    ),
    Case(name="help", run="--help", ends=Ends.HELP),
)
