"""kafka-metadata-quorum. Adding and removing real voters is in test_changes.py."""

from kit.parity.harness import Case, Ends, columns_free, replaced
from kit.releases import IS_NEWEST

MOVES_ON = (
    replaced(r"^(HighWatermark: +)\d+", r"\1<offset>", "the log grows by a record every half second"),
    replaced(r"^(MaxFollowerLag(TimeMs)?: +)-?\d+", r"\1<lag>", "followers fetch all the time"),
)
REPLICATION_MOVES_ON = columns_free(
    *("LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp"),
    why="the log grows and is fetched all the time",
)
_BLANK = replaced(r"^(DRY RUN of removing|Removed)  ", r"\1 ", "4.3.1 prints two blanks, 4.4.0 one")
BLANKS = () if IS_NEWEST else (_BLANK,)
"""What differs in the text of remove-controller."""
UNREGISTER_SINCE_4_4 = (
    Case(
        name="remove-and-unregister-dry",
        run="$at remove-controller -i $voter -d $voter_directory --unregister --dry-run",
    ),
)
DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"

CASES = (
    Case(name="status", run="$at describe --status", normalise=MOVES_ON, reads=True),
    Case(name="status-as-process", run="$at describe --status", normalise=MOVES_ON, as_process=True),
    Case(name="replication", run="$at describe --replication", normalise=[REPLICATION_MOVES_ON], reads=True),
    Case(
        name="replication-for-people",
        run="$at describe --replication --human-readable",
        normalise=[REPLICATION_MOVES_ON],
        reads=True,
    ),
    Case(
        name="with-client-properties",
        run="$at --command-config $client describe --status",
        normalise=MOVES_ON,
        reads=True,
    ),
    Case(name="describe-nothing", run="$at describe", ends=Ends.USAGE),
    Case(name="describe-both", run="$at describe --status --replication", ends=Ends.USAGE),
    Case(name="status-for-people", run="$at describe --status --human-readable", ends=Ends.USAGE),
    Case(name="without-cluster", run="describe --status", ends=Ends.USAGE),
    Case(
        name="with-two-clusters",
        run="--bootstrap-server $server --bootstrap-controller $controller describe --status",
        ends=Ends.USAGE,
        at=["server"],
    ),
    Case(name="without-command", run="$at", ends=Ends.USAGE),
    Case(name="with-unknown-option", run="$at describe --stats", ends=Ends.USAGE),
    Case(
        name="nobody-there",
        run="--bootstrap-controller 127.0.0.1:1 --command-config $quick describe --status",
        ends=Ends.FAILED,
        at=["controller"],
    ),
    Case(
        name="without-file",
        run="$at --command-config /nowhere describe --status",
        ends=Ends.FAILED,
        says="/nowhere",
    ),
    Case(
        name="add-dry",
        run="$at --command-config $controller_properties add-controller --dry-run",
        clusters=["java"],
        reads=True,
    ),
    Case(name="add-without-file", run="$at add-controller --dry-run", ends=Ends.USAGE),
    Case(
        name="add-what-is-a-voter",
        run="$at --command-config $controller_properties add-controller",
        ends=Ends.FAILED,
        says="already part of the set of voters",
        clusters=["java"],
    ),
    Case(
        name="remove-dry",
        run="$at remove-controller --controller-id $voter --controller-directory-id $voter_directory --dry-run",
        normalise=BLANKS,
        reads=True,
    ),
    Case(
        name="remove-dry-in-short",
        run="$at remove-controller -i $voter -d $voter_directory --dry-run",
        normalise=BLANKS,
    ),
    *(UNREGISTER_SINCE_4_4 if IS_NEWEST else ()),
    Case(
        name="remove-what-is-no-voter",
        run=f"$at remove-controller -i 777 -d {DIRECTORY}",
        ends=Ends.FAILED,
        says="777",
    ),
    Case(
        name="remove-a-negative-id",
        run=f"$at remove-controller -i -1 -d {DIRECTORY} --dry-run",
        ends=Ends.USAGE,
    ),
    Case(name="remove-a-bad-directory", run="$at remove-controller -i 1 -d x --dry-run", ends=Ends.USAGE),
    Case(name="remove-without-directory", run="$at remove-controller -i 1 --dry-run", ends=Ends.USAGE),
    Case(
        name="help",
        run="--help",
        ends=Ends.DONE,
        normalise=[replaced(r"(?s).*", "", "each has its own help")],
    ),
    Case(
        name="help-of-commands",
        run=["$at describe --help", "$at add-controller -h", "$at remove-controller -h"],
        normalise=[replaced(r"(?s).*", "", "each has its own help")],
    ),
)
