"""kafka-acls, on Java's controllers, which these clusters give an authorizer and TLS."""

from collections.abc import Sequence

from kit.parity.harness import Case, Ends, Normalise, blocks_sorted

ADD = "acls --bootstrap-server $server --add"
LIST = "acls --bootstrap-server $server --list"
ANY_ORDER: Sequence[Normalise] = (
    blocks_sorted("Java prints the entries of hash sets of enums, whose hashes vary"),
)
JAVA = ("java",)


def adds(name: str, arguments: str, resource: str) -> Case:
    """Add, list, and remove again."""
    return Case(
        name=name,
        run=[
            f"$at --add {arguments}",
            f"$at --add {arguments}",
            f"$at --list {resource}",
            f"$at --remove --force {arguments}",
            f"$at --list {resource}",
        ],
        normalise=ANY_ORDER,
        clusters=JAVA,
    )


CASES = (
    adds(
        "topic",
        "--allow-principal User:bob --operation Read --operation Write --topic $twin",
        "--topic $twin",
    ),
    adds(
        "hosts",
        "--allow-principal User:bob --allow-host 10.0.0.1 --allow-host 10.0.0.2 --deny-principal User:eve "
        "--deny-host 10.0.0.3 --operation All --topic $twin --group $twin",
        "--topic $twin --group $twin",
    ),
    adds("denied-everywhere", "--deny-principal User:eve --topic $twin", "--topic $twin"),
    adds(
        "prefixed",
        "--allow-principal User:bob --operation Describe --topic $twin --resource-pattern-type prefixed",
        "--topic $twin --resource-pattern-type prefixed",
    ),
    adds("producer", "--allow-principal User:bob --producer --topic $twin", "--topic $twin"),
    adds(
        "idempotent-producer",
        "--allow-principal User:$twin --producer --idempotent --topic $twin --transactional-id $twin",
        "--topic $twin --transactional-id $twin",
    ),
    adds(
        "consumer",
        "--allow-principal User:bob --consumer --topic $twin --group $twin",
        "--topic $twin --group $twin",
    ),
    adds(
        "producer-and-consumer",
        "--allow-principal User:bob --producer --consumer --topic $twin --group $twin",
        "--topic $twin --group $twin",
    ),
    adds("cluster", "--allow-principal User:$twin --operation Alter --cluster", "--cluster"),
    adds(
        "delegation-token",
        "--allow-principal User:bob --operation Describe --delegation-token $twin",
        "--delegation-token $twin",
    ),
    adds(
        "user",
        "--allow-principal User:bob --operation CreateTokens --operation DescribeTokens --user-principal User:$twin",
        "--user-principal User:$twin",
    ),
    adds("words", "--allow-principal User:$twin,x=y --operation IdempotentWrite --cluster", "--cluster"),
    Case(
        name="list-all",
        before=[
            f"{ADD} --allow-principal User:bob --topic $own",
            f"{ADD} --deny-principal User:eve --group $own",
        ],
        run="$at --list",
        normalise=ANY_ORDER,
        clusters=JAVA,
        reads=True,
    ),
    Case(
        name="list-as-process",
        before=[f"{ADD} --allow-principal User:bob --topic $own"],
        run="$at --list --topic $own",
        clusters=JAVA,
        as_process=True,
    ),
    Case(
        name="list-of-principals",
        before=[
            f"{ADD} --allow-principal User:bob --allow-principal User:eve --operation Read --topic $own",
            f"{ADD} --allow-principal User:mallory --operation Read --topic $own",
        ],
        run=[
            "$at --list --topic $own --principal User:bob",
            "$at --list --topic $own --principal User:eve --principal User:mallory",
        ],
        normalise=ANY_ORDER,
        clusters=JAVA,
        reads=True,
    ),
    Case(
        name="list-of-what-matches",
        before=[
            f"{ADD} --allow-principal User:bob --topic $own-long",
            f"{ADD} --allow-principal User:bob --topic $own --resource-pattern-type prefixed",
        ],
        run=[
            "$at --list --topic $own-long --resource-pattern-type match",
            "$at --list --topic $own --resource-pattern-type any",
        ],
        normalise=ANY_ORDER,
        clusters=JAVA,
        reads=True,
    ),
    Case(
        name="remove-all-of-a-resource",
        before=[
            f"{ADD} --allow-principal User:bob --topic $twin",
            f"{ADD} --deny-principal User:eve --topic $twin",
        ],
        run="$at --remove --force --topic $twin",
        state=[f"{LIST} --topic $twin"],
        clusters=JAVA,
    ),
    Case(
        name="remove-some",
        before=[f"{ADD} --allow-principal User:bob --operation Read --operation Write --topic $twin"],
        run="$at --remove --force --allow-principal User:bob --operation Read --topic $twin",
        state=[f"{LIST} --topic $twin"],
        clusters=JAVA,
    ),
    Case(
        name="with-client-properties",
        run="$at --list --topic $own --command-config $client",
        clusters=JAVA,
        reads=True,
    ),
    Case(
        name="add-without-resource",
        run="$at --add --allow-principal User:bob",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(name="add-without-principal", run="$at --add --topic $own", ends=Ends.USAGE, clusters=JAVA),
    Case(
        name="add-a-host-without-principal",
        run="$at --add --topic $own --allow-host 10.0.0.1",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(
        name="add-what-the-resource-has-not",
        run="$at --add --allow-principal User:bob --operation ClusterAction --topic $own",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(
        name="add-an-unknown-operation",
        run="$at --add --allow-principal User:bob --operation Sing --topic $own",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(
        name="add-a-bad-principal",
        run="$at --add --allow-principal bob --topic $own",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(
        name="add-to-any",
        run="$at --add --allow-principal User:bob --topic $own --resource-pattern-type any",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(
        name="idempotent-without-producer",
        run="$at --add --allow-principal User:bob --idempotent --topic $own",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(
        name="producer-without-topic",
        run="$at --add --allow-principal User:bob --producer --group $own",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(
        name="consumer-without-group",
        run="$at --add --allow-principal User:bob --consumer --topic $own",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(
        name="producer-with-operation",
        run="$at --add --allow-principal User:bob --producer --operation Read --topic $own",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(name="without-action", run="$at --topic $own", ends=Ends.USAGE, clusters=JAVA),
    Case(name="with-two-actions", run="$at --list --add --topic $own", ends=Ends.USAGE, clusters=JAVA),
    Case(name="without-cluster", run="--list", ends=Ends.USAGE, clusters=JAVA, at=["server"]),
    Case(
        name="with-two-clusters",
        run="--bootstrap-server $server --bootstrap-controller $controller --list",
        ends=Ends.USAGE,
        clusters=JAVA,
        at=["server"],
    ),
    Case(
        name="nobody-there",
        run="--bootstrap-server 127.0.0.1:1 --list --command-config $quick",
        ends=Ends.FAILED,
        clusters=JAVA,
        at=["server"],
    ),
    Case(name="without-authorizer", run="$at --list", ends=Ends.FAILED, clusters=["python"], at=["server"]),
    Case(name="help", run="--help", ends=Ends.HELP, clusters=JAVA, at=["server"]),
)
