"""kafka-features. Real upgrades are in test_changes.py.

The clusters of ours may be at a level that the stock tools have no name for: what names one is asked of Java's.
Levels that the stock tools do not know are in tests/integration/tools/test_features.py.
"""

from kit.parity.harness import Case, Ends, replaced
from kit.releases import IS_NEWEST, LEVEL, NEWEST_LEVEL

EPOCH = replaced(r"Epoch: \d+", "Epoch: <offset>", "the log grows by a record every half second")
NEWEST = replaced(r"(UNKNOWN 33|4\.4-IV\d) *", "<33> ", "Kafka 4.3.1 has no name for metadata.version 33")
LEVELS = (EPOCH,) if IS_NEWEST else (EPOCH, NEWEST)
DEPRECATED = replaced(
    r"^ `metadata` flag is deprecated.*\n", "", "ours tells on stderr that an option is deprecated"
)
HELP = replaced(r"(?s).*", "", "each has its own help")

CASES = (
    Case(name="describe", run="$at describe", normalise=LEVELS, reads=True),
    Case(name="describe-as-process", run="$at describe", normalise=LEVELS, as_process=True),
    Case(
        name="describe-broker", run="$at describe --node-id $b0", normalise=LEVELS, at=["server"], reads=True
    ),
    Case(
        name="describe-controller", run="$at describe --node-id $voter", normalise=LEVELS, at=["controller"]
    ),
    Case(name="describe-a-negative-node", run="$at describe --node-id -1", ends=Ends.USAGE),
    Case(
        name="describe-an-unknown-node",
        run="$at --command-config $quick describe --node-id 777",
        ends=Ends.FAILED,
    ),
    *(
        Case(
            name=f"version-mapping-{version}",
            run=f"version-mapping --release-version {version}",
            at=["server"],
            clusters=["java"],
        )
        for version in ("3.3-IV3", "3.7", "3.9-IV0", "4.0", "4.1-IV1", "4.2", "4.3-IV0", LEVEL)
    ),
    Case(
        name="version-mapping-of-an-unknown",
        run="version-mapping --release-version 9.9",
        ends=Ends.FAILED,
        says="9.9",
        at=["server"],
    ),
    Case(
        name="version-mapping-below-the-first",
        run="version-mapping --release-version 2.8",
        ends=Ends.FAILED,
        says="2.8",
        at=["server"],
    ),
    Case(
        name="dependencies",
        run=[
            "feature-dependencies --feature metadata.version=20 --feature transaction.version=2",
            "feature-dependencies --feature kraft.version=1",
            "feature-dependencies --feature group.version=1 --feature share.version=1",
            "feature-dependencies --feature streams.version=1 --feature eligible.leader.replicas.version=1",
        ],
        at=["server"],
        reads=True,
    ),
    Case(
        name="dependencies-of-an-unknown",
        run="feature-dependencies --feature no.version=1",
        ends=Ends.FAILED,
        says="no.version",
        at=["server"],
    ),
    Case(
        name="dependencies-of-an-unknown-level",
        run=[
            "feature-dependencies --feature metadata.version=999",
            "feature-dependencies --feature kraft.version=9",
        ],
        ends=Ends.FAILED,
        says="9",
        at=["server"],
    ),
    Case(
        name="dependencies-without-level",
        run="feature-dependencies --feature a",
        ends=Ends.USAGE,
        at=["server"],
    ),
    Case(name="dependencies-of-nothing", run="feature-dependencies", ends=Ends.USAGE, at=["server"]),
    Case(name="upgrade-dry", run="$at upgrade --feature transaction.version=2 --dry-run"),
    Case(
        name="upgrade-to-the-same",
        run=[
            f"$at upgrade --release-version {LEVEL} --dry-run",
            f"$at upgrade --feature metadata.version={NEWEST_LEVEL} --dry-run",
        ],
        clusters=["java"],
    ),
    Case(
        name="upgrade-by-old-option",
        run=f"$at upgrade --metadata {LEVEL} --dry-run",
        normalise=[DEPRECATED],
        clusters=["java"],
    ),
    Case(
        name="upgrade-to-an-unknown-level",
        run="$at upgrade --feature share.version=99 --dry-run",
        ends=Ends.FAILED,
        says="share.version",
    ),
    Case(
        name="upgrade-an-unknown-feature",
        run="$at upgrade --feature no.version=1 --dry-run",
        ends=Ends.FAILED,
        says="no.version",
    ),
    Case(
        name="upgrade-to-an-unknown-release",
        run="$at upgrade --release-version 9.9",
        ends=Ends.FAILED,
        says="9.9",
    ),
    Case(name="upgrade-to-less", run="$at upgrade --feature metadata.version=25 --dry-run", ends=Ends.FAILED),
    Case(
        name="upgrade-with-release-and-feature",
        run="$at upgrade --release-version 4.3 --feature share.version=1",
        ends=Ends.USAGE,
    ),
    Case(name="upgrade-nothing", run="$at upgrade", ends=Ends.USAGE),
    Case(name="upgrade-without-level", run="$at upgrade --feature share.version", ends=Ends.USAGE),
    Case(
        name="upgrade-twice",
        run="$at upgrade --feature share.version=1 --feature share.version=1",
        ends=Ends.USAGE,
    ),
    Case(
        name="downgrade-dry",
        run=[
            "$at downgrade --feature group.version=0 --dry-run",
            "$at downgrade --feature transaction.version=0 --unsafe --dry-run",
        ],
    ),
    Case(
        name="downgrade-with-loss",
        normalise=[DEPRECATED],
        run="$at downgrade --metadata 3.9 --dry-run",
        ends=Ends.FAILED,
        says="metadata.version",
    ),
    Case(
        name="downgrade-with-loss-to-a-release",
        run="$at downgrade --release-version 3.9 --dry-run",
        ends=Ends.FAILED,
        says="version",
    ),
    Case(name="disable-dry", run="$at disable --feature group.version --dry-run"),
    Case(
        name="disable-unsafely",
        run="$at disable --feature metadata.version --unsafe --dry-run",
        ends=Ends.FAILED,
        says="metadata.version",
    ),
    Case(
        name="with-client-properties",
        run="$at --command-config $client describe",
        normalise=LEVELS,
        reads=True,
    ),
    Case(name="without-cluster", run="describe", ends=Ends.USAGE),
    Case(
        name="with-two-clusters",
        run="--bootstrap-server $server --bootstrap-controller $controller describe",
        ends=Ends.USAGE,
        at=["server"],
    ),
    Case(
        name="nobody-there",
        run="--bootstrap-controller 127.0.0.1:1 --command-config $quick describe",
        ends=Ends.FAILED,
    ),
    Case(
        name="help",
        run=[
            "--help",
            *(
                f"{command} -h"
                for command in (
                    *(
                        "describe",
                        "upgrade",
                        "downgrade",
                        "disable",
                        "version-mapping",
                        "feature-dependencies",
                    ),
                )
            ),
        ],
        normalise=[HELP],
        at=["server"],
    ),
)
