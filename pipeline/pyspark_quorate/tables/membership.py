"""Table `membership`: voters over time, with their directories."""

from typing import Final

from pyspark.sql.types import IntegerType, ShortType, StringType

from pyspark_quorate.rows import CLUSTER_ID, column, list_of, schema
from pyspark_quorate.tables.contract import Cluster, Fold, Line, Table
from pyspark_quorate.tables.controller_registrations import (
    ADDRESS,
)
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, IntervalList, Key, State

VOTERS_RECORD: Final = "VotersRecord"

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("voter_id", IntegerType(), "node.id of the voter"),
    column("directory_id", StringType(), "id of its metadata log directory: 22 characters of base64"),
    column("endpoints", list_of(*ADDRESS), "its advertised listeners"),
    column("kraft_version_min", ShortType(), "lowest kraft.version that it supports"),
    column("kraft_version_max", ShortType(), "highest kraft.version that it supports"),
    *INTERVAL_COLUMNS,
)


_VERSIONS: Final = ("minSupportedVersion", "maxSupportedVersion")


class VoterIntervals(IntervalList):
    """The intervals of voters.

    Key: node id and directory id. State: endpoints, and lowest and highest kraft.version.
    """

    TYPES = (VOTERS_RECORD,)

    def step(self, line: Line) -> None:
        """Apply a VotersRecord. It has all voters: a node that it lacks is not a voter."""
        voters: dict[Key, State] = {}
        for voter in line.fields["voters"]:
            endpoints = sorted((each["name"], each["host"], each["port"]) for each in voter["endpoints"])
            # Records of tests and of old versions may lack it.
            versions = voter.get("kRaftVersionFeature") or {}
            state = (tuple(endpoints), *(versions.get(name) for name in _VERSIONS))
            voters[voter["voterId"], voter["voterDirectoryId"]] = state
        for key in self.intervals.known():
            if key not in voters:
                self.intervals.set_state(key, None, line)
        for key, state in voters.items():
            self.intervals.set_state(key, state, line)
        self.intervals.complete()


class Membership(Fold):
    """The state of the table: a row per interval in which a voter had the same endpoints and versions."""

    NEEDS = (VoterIntervals,)

    def __init__(self, cluster: Cluster, voters: VoterIntervals) -> None:
        super().__init__(cluster)
        self._voters = voters

    def finish(self) -> None:
        """Add all rows."""
        self.rows.extend((*interval.key, *interval.state, *interval.span) for interval in self._voters.ended)


TABLE: Final = Table(
    name="membership",
    fold=Membership,
    doc=(
        "Voters of the quorum, from the VotersRecords of a dynamic quorum (KIP-853). The voters of a static quorum "
        "(kraft.version 0) are configured in controller.quorum.voters and not recorded in the log: such a cluster "
        "has no rows here. A voter that returns with another directory has another row."
    ),
    schema=SCHEMA,
    key=("cluster_id", "voter_id", "directory_id", "from_offset"),
)
