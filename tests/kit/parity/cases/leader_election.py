"""kafka-leader-election. Elections after a broker has left are in test_changes.py."""

from kit.parity.harness import Case, Ends, replaced

TOPIC = "topics --bootstrap-server $server --create --topic"
REASSIGN = "reassign-partitions --bootstrap-server $server --execute --reassignment-json-file"
DEPRECATED = replaced(
    r"^Option --admin.config has been deprecated.*\n", "", "ours tells on stderr that an option is deprecated"
)
PARTITIONS = '{"partitions": [{"topic": "$twin", "partition": 0}, {"topic": "$twin", "partition": 1}]}'
# The leader stays where it was; from then on another replica is preferred.
MOVED = '{"version": 1, "partitions": [{"topic": "$twin", "partition": 0, "replicas": [$b1, $b0]}]}'

CASES = (
    Case(
        name="preferred",
        before=[f"{TOPIC} $twin --replica-assignment $b0:$b1", f"{REASSIGN} $dir/moved.json"],
        files={"moved.json": MOVED},
        run=[
            "$at --election-type preferred --topic $twin --partition 0",
            "$at --election-type PREFERRED --topic $twin --partition 0",
        ],
        brokers=2,
    ),
    Case(
        name="preferred-from-file",
        before=[f"{TOPIC} $twin --partitions 2"],
        files={"partitions.json": PARTITIONS},
        run="$at --election-type preferred --path-to-json-file $dir/partitions.json",
        normalise=[replaced(r"<twin>-[01], <twin>-[01]", "<twin>-0, <twin>-1", "Java prints a hash set")],
    ),
    Case(
        name="unclean-where-none-is-needed",
        before=[f"{TOPIC} $twin"],
        run="$at --election-type unclean --topic $twin --partition 0",
    ),
    Case(
        name="all",
        before=[
            f"{TOPIC} $own",
            "leader-election --bootstrap-server $server --election-type preferred --all-topic-partitions",
        ],
        run="$at --election-type preferred --all-topic-partitions",
    ),
    Case(
        name="what-is-not-there",
        run="$at --election-type preferred --topic $own --partition 0",
        ends=Ends.FAILED,
        says="could not be elected",
    ),
    Case(
        name="with-old-option",
        before=[f"{TOPIC} $twin"],
        run="$at --election-type preferred --topic $twin --partition 0 --admin.config $client",
        normalise=[DEPRECATED],
    ),
    Case(
        name="with-client-properties",
        before=[f"{TOPIC} $twin"],
        run="$at --election-type preferred --topic $twin --partition 0 --command-config $client",
        as_process=True,
    ),
    Case(
        name="from-a-file-with-duplicates",
        files={
            "double.json": '{"partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 0}]}'
        },
        run="$at --election-type preferred --path-to-json-file $dir/double.json",
        ends=Ends.FAILED,
        says="a-0",
    ),
    Case(
        name="from-a-file-without-partitions",
        files={"none.json": "{}"},
        run="$at --election-type preferred --path-to-json-file $dir/none.json",
        ends=Ends.FAILED,
        says="partitions",
    ),
    Case(
        name="from-no-file",
        run="$at --election-type preferred --path-to-json-file $dir/none.json",
        ends=Ends.FAILED,
        says="none.json",
    ),
    Case(name="without-type", run="$at --all-topic-partitions", ends=Ends.USAGE),
    Case(name="with-an-unknown-type", run="$at --election-type fair --all-topic-partitions", ends=Ends.USAGE),
    Case(name="without-partitions", run="$at --election-type preferred", ends=Ends.USAGE),
    Case(name="without-partition", run="$at --election-type preferred --topic a", ends=Ends.USAGE),
    Case(
        name="without-topic",
        run="$at --election-type preferred --all-topic-partitions --partition 0",
        ends=Ends.USAGE,
    ),
    Case(
        name="with-two-kinds",
        run="$at --election-type preferred --all-topic-partitions --topic a --partition 0",
        ends=Ends.USAGE,
    ),
    Case(name="without-cluster", run="--election-type preferred --all-topic-partitions", ends=Ends.USAGE),
    Case(
        name="nobody-there",
        run="--bootstrap-server 127.0.0.1:1 --election-type preferred --all-topic-partitions --command-config $quick",
        ends=Ends.FAILED,
    ),
    Case(name="help", run="--help", ends=Ends.HELP),
)
