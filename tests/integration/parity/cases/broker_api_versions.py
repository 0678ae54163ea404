"""kafka-broker-api-versions."""

from parity.harness import Case, Ends

CASES = (
    Case(name="all", run="$at", reads=True),
    Case(name="all-as-process", run="$at", as_process=True),
    Case(name="with-client-properties", run="$at --command-config $client"),
    Case(name="without-cluster", run="", ends=Ends.USAGE),
    Case(name="with-unknown-option", run="$at --list", ends=Ends.USAGE),
    Case(name="help", run="--help", ends=Ends.HELP),
)
