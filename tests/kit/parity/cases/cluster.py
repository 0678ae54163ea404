"""kafka-cluster. Unregistering real brokers is in test_changes.py."""

from kit.parity.harness import Case, Ends, replaced
from kit.releases import IS_NEWEST

DEPRECATED = replaced(
    r"^Option --config has been deprecated.*\n", "", "ours tells on stderr that an option is deprecated"
)

SINCE_4_4 = (
    Case(name="api-versions", run="api-versions $at", reads=True),
    Case(name="api-versions-as-process", run="api-versions $at", as_process=True),
    Case(name="api-versions-without-cluster", run="api-versions", ends=Ends.USAGE),
    Case(
        name="unregister-a-controller-that-is-not-there",
        run=["unregister-controller $at --id 777", "unregister-controller $at -i 777"],
        ends=Ends.FAILED,
        says="777",
    ),
    Case(name="unregister-no-controller", run="unregister-controller $at", ends=Ends.USAGE),
)

CASES = (
    *(SINCE_4_4 if IS_NEWEST else ()),
    Case(name="cluster-id", run="cluster-id $at", reads=True),
    Case(name="cluster-id-as-process", run="cluster-id $at", as_process=True),
    Case(name="cluster-id-of-brokers-in-short", run="cluster-id -b $server", at=["server"]),
    Case(name="cluster-id-of-controllers-in-short", run="cluster-id -C $controller", at=["controller"]),
    Case(
        name="with-client-properties",
        run=["cluster-id $at --command-config $client", "cluster-id $at -c $client"],
    ),
    Case(name="with-old-option", run="cluster-id $at --config $client", normalise=[DEPRECATED]),
    Case(
        name="with-both-options",
        run="cluster-id $at --config $client --command-config $client",
        ends=Ends.USAGE,
    ),
    Case(name="endpoints", run="list-endpoints $at", reads=True),
    Case(
        name="endpoints-of-all", run="list-endpoints $at --include-fenced-brokers", at=["server"], reads=True
    ),
    Case(
        name="endpoints-of-fenced-controllers",
        run="list-endpoints $at --include-fenced-brokers",
        at=["controller"],
        ends=Ends.USAGE,
    ),
    Case(name="unregister-what-is-not-there", run="unregister $at --id 777", ends=Ends.FAILED, says="777"),
    Case(name="unregister-in-short", run="unregister $at -i 777", ends=Ends.FAILED, says="777"),
    Case(name="unregister-nothing", run="unregister $at", ends=Ends.USAGE),
    Case(name="without-cluster", run="cluster-id", ends=Ends.USAGE),
    Case(
        name="with-two-clusters",
        run="cluster-id --bootstrap-server $server --bootstrap-controller $controller",
        ends=Ends.USAGE,
        at=["server"],
    ),
    Case(name="nobody-there", run="cluster-id -C 127.0.0.1:1 -c $quick", ends=Ends.FAILED, at=["controller"]),
    Case(
        name="controllers-asked-as-brokers",
        run="cluster-id -b $controller -c $quick",
        ends=Ends.FAILED,
        at=["controller"],
    ),
    Case(name="help", run=["--help", "cluster-id -h"], ends=Ends.HELP, at=["server"]),
)
