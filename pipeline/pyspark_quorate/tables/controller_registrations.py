"""Registrations of brokers and controllers as intervals, and the table `controller_registrations`."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pyspark.sql.types import BooleanType, IntegerType, ShortType, StringType
from quorate_protocol.kafka.enums import SecurityProtocol

from pyspark_quorate.rows import CLUSTER_ID, column, list_of, schema
from pyspark_quorate.tables.contract import Cluster, Fields, Fold, Line, Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, IntervalList

ADDRESS: Final = (
    column("name", StringType(), "listener"),
    column("host", StringType(), "advertised host"),
    column("port", IntegerType(), "advertised port"),
)
ENDPOINTS: Final = list_of(
    *ADDRESS,
    column("security_protocol", StringType(), ", ".join(protocol.name for protocol in SecurityProtocol)),
)
FEATURES: Final = list_of(
    column("name", StringType(), "feature"),
    column("min_level", ShortType(), "lowest level that the node supports"),
    column("max_level", ShortType(), "highest level that the node supports"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role of nodes: the record types that register and unregister them, and the field with the node id."""

    name: str
    register: str
    unregister: str
    node_id: str


BROKER: Final = Role(
    name="broker", register="RegisterBrokerRecord", unregister="UnregisterBrokerRecord", node_id="brokerId"
)
CONTROLLER: Final = Role(
    name="controller",
    register="RegisterControllerRecord",
    unregister="UnregisterControllerRecord",
    node_id="controllerId",
)


class Registrations(IntervalList):
    """Intervals of registrations of one role.

    States: incarnation_id, endpoints, features, zk_migration_ready or None.
    """

    ROLE: ClassVar[Role]

    def step(self, line: Line) -> None:
        """Apply a record that registers or unregisters a node."""
        fields = line.fields
        state = None
        if line.type == self.ROLE.register:
            features = sorted(
                (feature["name"], feature["minSupportedVersion"], feature["maxSupportedVersion"])
                for feature in fields["features"]
            )
            ready = fields.get("zkMigrationReady")
            state = (fields["incarnationId"], endpoints_of(fields), tuple(features), ready)
        self.intervals.set_state((fields[self.ROLE.node_id],), state, line)


class BrokerRegistrations(Registrations):
    """Intervals of registrations of brokers."""

    ROLE = BROKER
    TYPES = (BROKER.register, BROKER.unregister)


class ControllerRegistrations(Registrations):
    """Intervals of registrations of controllers."""

    ROLE = CONTROLLER
    TYPES = (CONTROLLER.register, CONTROLLER.unregister)


def endpoints_of(fields: Fields) -> tuple[tuple[Any, ...], ...]:
    """The listeners of a registration, as in `ENDPOINTS`. Sorted, because their order in snapshots is arbitrary."""
    protocols = {int(protocol): protocol.name for protocol in SecurityProtocol}
    return tuple(
        sorted(
            (
                endpoint["name"],
                endpoint["host"],
                endpoint["port"],
                protocols.get(endpoint["securityProtocol"]),
            )
            for endpoint in fields["endPoints"]
        )
    )


# The table

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("controller_id", IntegerType(), "node.id of the controller"),
    column("incarnation_id", StringType(), "id of the process, new at each start: 22 characters of base64"),
    column("endpoints", ENDPOINTS, "its advertised listeners"),
    column("features", FEATURES, "supported feature levels"),
    column("zk_migration_ready", BooleanType(), "whether it was ready for a migration from ZooKeeper"),
    *INTERVAL_COLUMNS,
)


class RegisteredControllers(Fold):
    """The state of the table: a row per registration, until the node's next one or until it is unregistered."""

    NEEDS = (ControllerRegistrations,)

    def __init__(self, cluster: Cluster, controllers: ControllerRegistrations) -> None:
        super().__init__(cluster)
        self._controllers = controllers

    def finish(self) -> None:
        """Add all rows."""
        self.rows.extend(
            (*interval.key, *interval.state, *interval.span) for interval in self._controllers.ended
        )


TABLE: Final = Table(
    name="controller_registrations",
    fold=RegisteredControllers,
    doc=(
        "Registrations of controllers (KIP-919), each until the node's next one or until it is unregistered "
        "(KIP-1312). A controller that was removed stays registered, and blocks levels that it does not support."
    ),
    schema=SCHEMA,
    key=("cluster_id", "controller_id", "from_offset"),
)
