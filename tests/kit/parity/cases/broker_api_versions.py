"""kafka-broker-api-versions."""

from kit.parity.harness import Case, Ends, groups_sorted, replaced
from kit.releases import IS_NEWEST

_NEWER = "ApiVersions|TxnOffsetCommit|DeleteGroups|StreamsGroupHeartbeat|StreamsGroupDescribe"
_ALL_NEWER = (
    replaced(
        rf"((?:{_NEWER})\(\d+\): 0 to \d) \[usable: \d\]", r"\1", "4.4 has versions that 4.3.1's tool lacks"
    ),
    replaced(
        r",\n\t\w+\((93|94)\): (0 \[usable: 0\]|0|UNSUPPORTED)",
        "",
        "4.4 has requests that 4.3.1's tool lacks",
    ),
)
WITHOUT_NEWER = () if IS_NEWEST else _ALL_NEWER
ANY_ORDER = (
    groups_sorted(r"127\.0\.0\.1:", "Java lists brokers in the order of a hash map"),
    *WITHOUT_NEWER,
)

CASES = (
    Case(name="all", run="$at", normalise=ANY_ORDER, reads=True),
    Case(name="all-as-process", run="$at", normalise=ANY_ORDER, as_process=True),
    Case(name="with-client-properties", run="$at --command-config $client", normalise=ANY_ORDER),
    Case(name="without-cluster", run="", ends=Ends.USAGE),
    Case(name="with-unknown-option", run="$at --list", ends=Ends.USAGE),
    Case(name="help", run="--help", ends=Ends.HELP),
)
