"""kafka-configs."""

from collections.abc import Sequence

from kit.parity.harness import Case, Ends, Normalise, groups_sorted, lines_sorted

TOPIC = "topics --bootstrap-server $server --create --topic"
DESCRIBE = "configs --bootstrap-server $server --describe"
ANY_ORDER = lines_sorted("Java prints the entries of a hash map")
JAVA = ("java",)
"""Client metrics and groups: a broker answers alone."""


def changes(
    name: str,
    entity: str,
    configs: str,
    key: str,
    *,
    clusters: Sequence[str] = ("java", "python"),
    in_turn: bool = True,
) -> Case:
    """Set configs of an entity, look, delete one, look; `entity` may name the twin."""
    return Case(
        name=name,
        run=[
            f"$at --alter {entity} --add-config {configs}",
            f"$at --describe {entity}",
            f"$at --alter {entity} --delete-config {key}",
            f"$at --describe {entity}",
        ],
        state=[f"{DESCRIBE} {entity}"],
        clusters=clusters,
        at=["server"],
        in_turn=in_turn,
    )


def with_topic(case: Case, normalise: Sequence[Normalise] = ()) -> Case:
    """The case, on topics that are there."""
    return Case(
        name=case.name,
        run=case.run,
        before=[f"{TOPIC} $twin"],
        state=case.state,
        clusters=case.clusters,
        at=case.at,
        normalise=normalise,
    )


CASES = (
    Case(
        name="alter-topic",
        before=[f"{TOPIC} $twin"],
        run=[
            "$at --alter --topic $twin --add-config retention.ms=1000,flush.ms=7",
            "$at --alter --topic $twin --delete-config flush.ms",
        ],
        state=[f"{DESCRIBE} --topic $twin"],
    ),
    Case(
        name="what-controllers-do-not-describe",
        before=[f"{TOPIC} $own"],
        run=[
            "$at --describe --topic $own",
            "$at --describe --entity-type users",
            "$at --describe --group $own",
        ],
        ends=Ends.FAILED,
        at=["controller"],
        clusters=JAVA,
    ),
    with_topic(
        changes(
            "topic", "--entity-type topics --entity-name $twin", "retention.ms=1000,flush.ms=7", "flush.ms"
        )
    ),
    with_topic(
        changes("topic-in-short", "--topic $twin", "cleanup.policy=[compact,delete]", "cleanup.policy")
    ),
    Case(
        name="topic-set-and-deleted-at-once",
        before=[f"{TOPIC} $twin --config flush.ms=9"],
        run="$at --alter --topic $twin --add-config retention.ms=5 --delete-config flush.ms",
        state=[f"{DESCRIBE} --topic $twin"],
    ),
    Case(
        name="topic-from-file",
        before=[f"{TOPIC} $twin"],
        files={"added.properties": "retention.ms=12\nsegment.bytes=1048576\n# no more\n"},
        run="$at --alter --topic $twin --add-config-file $dir/added.properties",
        state=[f"{DESCRIBE} --topic $twin"],
    ),
    Case(
        name="topic-all",
        before=[f"{TOPIC} $own"],
        run="$at --describe --topic $own --all",
        at=["server"],
        reads=True,
    ),
    Case(
        name="all-topics",
        before=[f"{TOPIC} $own --config flush.ms=4"],
        run="$at --describe --entity-type topics",
        normalise=[groups_sorted("Dynamic configs for", "Java describes topics in the order of a hash set")],
        reads=True,
        at=["server"],
    ),
    Case(name="topic-that-is-not-there", run="$at --describe --topic $own", at=["server"]),
    Case(
        name="topic-with-an-unknown-config",
        before=[f"{TOPIC} $own"],
        run="$at --alter --topic $own --add-config no.such=1",
        ends=Ends.FAILED,
        says="no.such",
    ),
    Case(
        name="topic-with-a-bad-value",
        before=[f"{TOPIC} $own"],
        run="$at --alter --topic $own --add-config retention.ms=soon",
        ends=Ends.FAILED,
        says="retention.ms",
    ),
    Case(
        name="topic-delete-what-is-not-set",
        before=[f"{TOPIC} $own"],
        run="$at --alter --topic $own --delete-config retention.ms",
    ),
    Case(name="broker", run="$at --describe --broker $b0", reads=True),
    Case(name="broker-all", run="$at --describe --broker $b0 --all", reads=True, at=["server"]),
    Case(name="brokers", run="$at --describe --entity-type brokers", reads=True, at=["server"]),
    Case(
        name="broker-set",
        run=[
            "$at --alter --entity-type brokers --entity-name $b0 --add-config log.cleaner.threads=1",
            "$at --describe --entity-type brokers --entity-name $b0",
            "$at --alter --entity-type brokers --entity-name $b0 --delete-config log.cleaner.threads",
        ],
    ),
    Case(
        name="broker-defaults",
        run=[
            "$at --alter --entity-type brokers --entity-default --add-config log.cleaner.threads=1",
            "$at --describe --broker-defaults",
            "$at --alter --broker-defaults --delete-config log.cleaner.threads",
            "$at --describe --broker-defaults",
        ],
    ),
    Case(name="broker-that-is-no-number", run="$at --describe --broker one", ends=Ends.USAGE),
    Case(
        name="broker-with-a-static-config",
        run="$at --alter --broker $b0 --add-config node.id=7",
        ends=Ends.FAILED,
        says="node.id",
        at=["server"],
    ),
    Case(
        name="logger",
        run=[
            "$at --alter --broker-logger $b0 --add-config kafka.server.KafkaApis=ERROR",
            "$at --alter --entity-type broker-loggers --entity-name $b0 --delete-config kafka.server.KafkaApis",
        ],
        at=["server"],
    ),
    Case(name="loggers", run="$at --describe --broker-logger $b0", at=["server"], reads=True),
    Case(
        name="logger-that-is-not-there",
        run="$at --alter --broker-logger $b0 --add-config no.such=INFO",
        ends=Ends.FAILED,
        says="no.such",
        at=["server"],
    ),
    changes(
        "user-quota",
        "--user $twin",
        "producer_byte_rate=1024,request_percentage=12.5",
        "request_percentage",
    ),
    changes(
        "client-quota",
        "--entity-type clients --entity-name $twin",
        "consumer_byte_rate=2000",
        "consumer_byte_rate",
    ),
    changes(
        "client-quota-in-short",
        "--client $twin",
        "controller_mutation_rate=0.5",
        "controller_mutation_rate",
    ),
    changes(
        "user-and-client-quota",
        "--user $twin --client app",
        "producer_byte_rate=10",
        "producer_byte_rate",
    ),
    changes(
        "ip-quota",
        "--ip 10.0.0.1",
        "connection_creation_rate=7",
        "connection_creation_rate",
        in_turn=False,
    ),
    changes(
        "ip-defaults",
        "--ip-defaults",
        "connection_creation_rate=70",
        "connection_creation_rate",
        in_turn=False,
    ),
    changes(
        "user-defaults",
        "--user-defaults",
        "producer_byte_rate=99",
        "producer_byte_rate",
        in_turn=False,
    ),
    changes(
        "client-defaults",
        "--client-defaults",
        "producer_byte_rate=98",
        "producer_byte_rate",
        in_turn=False,
    ),
    changes(
        "user-and-default-client",
        "--entity-type users --entity-name $twin --entity-type clients --entity-default",
        "producer_byte_rate=3",
        "producer_byte_rate",
    ),
    Case(
        name="all-quotas-of-users",
        before=["configs --bootstrap-server $server --alter --user $own --add-config producer_byte_rate=5"],
        run=[
            "$at --describe --entity-type users",
            "$at --describe --entity-type clients",
            "$at --describe --entity-type users --entity-type clients",
        ],
        normalise=[ANY_ORDER],
        reads=True,
        at=["server"],
    ),
    Case(
        name="quota-that-is-not-set",
        run="$at --alter --user $own --delete-config producer_byte_rate",
        ends=Ends.FAILED,
        says="producer_byte_rate",
        at=["server"],
    ),
    Case(
        name="quota-that-is-unknown",
        run=[
            "$at --alter --client $own --add-config no.such=1",
            "$at --alter --user $own --add-config no.such=1",
            "$at --alter --ip 10.0.0.2 --add-config no.such=1",
        ],
        ends=Ends.USAGE,
    ),
    Case(
        name="scram",
        run=[
            "$at --alter --user $twin --add-config 'SCRAM-SHA-256=[iterations=8192,password=a-secret]'",
            "$at --describe --user $twin",
            "$at --alter --user $twin --add-config SCRAM-SHA-512=[password=b]",
            "$at --describe --entity-type users --entity-name $twin",
            "$at --alter --user $twin --delete-config SCRAM-SHA-256",
            "$at --describe --user $twin",
        ],
        at=["server"],
    ),
    Case(
        name="scram-with-too-few-iterations",
        run="$at --alter --user $own --add-config SCRAM-SHA-256=[iterations=5,password=a]",
        ends=Ends.USAGE,
    ),
    Case(
        name="scram-with-quota",
        run="$at --alter --user $own --add-config SCRAM-SHA-256=[password=a],producer_byte_rate=1",
        ends=Ends.USAGE,
    ),
    Case(
        name="scram-by-default",
        run="$at --alter --user-defaults --add-config SCRAM-SHA-256=[password=a]",
        ends=Ends.USAGE,
    ),
    changes(
        "client-metrics",
        "--client-metrics $twin",
        "interval.ms=60000,match=[client_id=a.*]",
        "match",
        clusters=JAVA,
    ),
    changes(
        "client-metrics-by-type",
        "--entity-type client-metrics --entity-name $twin",
        "metrics=[a.b,c.d]",
        "metrics",
        clusters=JAVA,
    ),
    changes(
        "group",
        "--group $twin",
        "consumer.session.timeout.ms=50000",
        "consumer.session.timeout.ms",
        clusters=JAVA,
    ),
    Case(name="group-all", run="$at --describe --group $own --all", clusters=JAVA, at=["server"], reads=True),
    Case(
        name="groups",
        before=[
            "configs --bootstrap-server $server --alter --group $own --add-config consumer.session.timeout.ms=46000"
        ],
        run=["$at --describe --entity-type groups", "$at --describe --entity-type client-metrics"],
        clusters=JAVA,
        at=["server"],
        reads=True,
        normalise=[groups_sorted("Dynamic configs for", "Java describes groups in the order of a hash set")],
    ),
    Case(
        name="with-client-properties",
        run="$at --describe --broker $b0 --command-config $client",
        at=["server"],
    ),
    Case(name="as-process", run="$at --describe --entity-type brokers --all", at=["server"], as_process=True),
    Case(name="without-action", run="$at --topic a", ends=Ends.USAGE),
    Case(name="with-two-actions", run="$at --describe --alter --topic a", ends=Ends.USAGE),
    Case(name="without-entity", run="$at --describe", ends=Ends.USAGE),
    Case(name="with-an-unknown-entity", run="$at --describe --entity-type cats", ends=Ends.USAGE),
    Case(name="with-entities-of-two-kinds", run="$at --describe --topic a --broker 1", ends=Ends.USAGE),
    Case(name="with-type-and-flag", run="$at --describe --entity-type topics --topic a", ends=Ends.USAGE),
    Case(name="describe-and-add", run="$at --describe --topic a --add-config b=c", ends=Ends.USAGE),
    Case(name="alter-nothing", run="$at --alter --topic a", ends=Ends.USAGE),
    Case(name="alter-nobody", run="$at --alter --entity-type topics --add-config a=b", ends=Ends.USAGE),
    Case(name="alter-without-value", run="$at --alter --topic a --add-config b", ends=Ends.USAGE),
    Case(name="without-cluster", run="--describe --topic a", ends=Ends.USAGE),
    Case(
        name="with-two-clusters",
        run="--bootstrap-server $server --bootstrap-controller $controller --describe --topic a",
        ends=Ends.USAGE,
        at=["server"],
    ),
    Case(
        name="nobody-there",
        run="--bootstrap-server 127.0.0.1:1 --describe --topic a --command-config $quick",
        ends=Ends.FAILED,
        at=["server"],
    ),
    Case(name="help", run="--help", ends=Ends.HELP, at=["server"]),
)
