"""kafka-broker-api-versions."""

from kit.parity.harness import Case, Ends, groups_sorted

ANY_ORDER = (groups_sorted(r"127\.0\.0\.1:", "Java lists brokers in the order of a hash map"),)

CASES = (
    Case(name="all", run="$at", normalise=ANY_ORDER, reads=True),
    Case(name="all-as-process", run="$at", normalise=ANY_ORDER, as_process=True),
    Case(name="with-client-properties", run="$at --command-config $client", normalise=ANY_ORDER),
    Case(name="without-cluster", run="", ends=Ends.USAGE),
    Case(name="with-unknown-option", run="$at --list", ends=Ends.USAGE),
    Case(name="help", run="--help", ends=Ends.HELP),
)
