"""The commands that findings propose, complete with the option that leads to the cluster."""

import shlex
import uuid
from collections.abc import Sequence
from typing import Self

from quorate_protocol.plain_data import dataclass
from quorate_protocol.uuids import uuid_to_text

from quorate_admin.diagnosis.facts import Examination

PLACE_OF_BOOTSTRAP = "--bootstrap-controller HOST:PORT"
PLACE_OF_BROKERS = "--bootstrap-server HOST:PORT"
ADDRESSES_MAX = 3
"""The number of brokers that a command bootstraps from."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Writes command lines; `bootstrap` is the option with its addresses, as the user gave it.

    `bootstrap_controllers` is the option for commands that only controllers answer, `bootstrap_servers` that for
    those that only brokers answer. `config` is the user's file of client properties; it is not proposed for addresses
    that the user did not give, whose listeners may differ in security.
    """

    bootstrap: str = PLACE_OF_BOOTSTRAP
    bootstrap_controllers: str = PLACE_OF_BOOTSTRAP
    bootstrap_servers: str = PLACE_OF_BROKERS
    config: str | None = None

    @classmethod
    def through(cls, bootstrap: str, facts: Examination, config: str | None = None) -> Self:
        """Commands with the user's bootstrap option.

        If it leads to brokers, some commands need the voters' addresses.
        """
        if bootstrap.startswith("--bootstrap-controller"):
            return cls(bootstrap, bootstrap, _servers(facts), config)
        nodes = {} if facts.quorum is None else facts.quorum.nodes
        addresses = [
            f"{endpoint.host}:{endpoint.port}"
            for _, endpoints in sorted(nodes.items())
            for endpoint in endpoints[:1]
        ]
        if not addresses:
            return cls(bootstrap, bootstrap_servers=bootstrap, config=config)
        return cls(bootstrap, f"--bootstrap-controller {','.join(addresses)}", bootstrap, config)

    def _at(self, option: str) -> str:
        """A bootstrap option, with the file of properties that belongs to it."""
        if self.config is None or option != self.bootstrap:
            return option
        return f"{option} --command-config {shlex.quote(self.config)}"

    def upgrade(self, feature: str, level: int) -> str:
        """Raise a feature level."""
        return f"quorate features {self._at(self.bootstrap)} upgrade --feature {feature}={level}"

    def refresh_controller(self, controller_id: int, *, is_listed: bool = True) -> str:
        """Give a stopped controller a registration that supports all feature levels of the cluster.

        `is_listed` is false for a registration without endpoints, because it was refreshed before.
        """
        at = self._at(self.bootstrap_controllers)
        command = f"quorate cluster refresh-controller {at} --controller-id {controller_id}"
        return command if is_listed else f"{command} --allow-unlisted"

    def unregister_controller(self, controller_id: int) -> str:
        """Remove the registration of a stopped controller (KIP-1312)."""
        return f"quorate cluster unregister-controller {self._at(self.bootstrap)} --controller-id {controller_id}"

    def unregister_broker(self, broker_id: int) -> str:
        """Remove the registration of a stopped broker."""
        return f"quorate cluster unregister {self._at(self.bootstrap)} --id {broker_id}"

    def remove_voter(self, node_id: int, directory_id: uuid.UUID | None) -> str:
        """Remove a voter from the quorum."""
        return (
            f"quorate metadata-quorum {self._at(self.bootstrap)} remove-controller --controller-id {node_id} "
            f"--controller-directory-id {uuid_to_text(directory_id)}"
        )

    def add_voter(self) -> str:
        """Make a running controller a voter."""
        return (
            f"quorate metadata-quorum {self.bootstrap} --command-config controller.properties add-controller"
        )

    def describe_status(self) -> str:
        """Show the state of the quorum."""
        return f"quorate metadata-quorum {self._at(self.bootstrap)} describe --status"

    def describe_replication(self) -> str:
        """Show the log end offset and the lag of each replica of the log."""
        return f"quorate metadata-quorum {self._at(self.bootstrap)} describe --replication --human-readable"

    def describe_partitions(self, which: str) -> str:
        """List partitions in some state; `which` is the option that selects them."""
        return f"quorate topics {self._at(self.bootstrap_servers)} --describe {which}"

    def propose_reassignment(self) -> str:
        """Propose new places for the replicas of topics."""
        return (
            f"quorate reassign-partitions {self._at(self.bootstrap_servers)} --topics-to-move-json-file topics.json "
            "--broker-list IDS --generate"
        )

    def doctor(self) -> str:
        """Run the diagnosis again."""
        return f"quorate doctor {self._at(self.bootstrap)}"

    def doctor_of_clients(self, urls: Sequence[str]) -> str:
        """Run the diagnosis again, with the clients that the metrics at these URLs have."""
        return f"{self.doctor()} --clients {shlex.quote(','.join(urls))}"

    def doctor_of_controllers(self) -> str:
        """Run the diagnosis through controllers."""
        return f"quorate doctor {self._at(self.bootstrap_controllers)}"


def _servers(facts: Examination) -> str:
    """The first listeners of some brokers that are not fenced; which of them clients may use is unknown."""
    live = (
        broker
        for _, broker in sorted((facts.brokers or {}).items())
        if not broker.fenced and broker.endpoints
    )
    addresses = [f"{host}:{port}" for host, port in (broker.endpoints[0] for broker in live)][:ADDRESSES_MAX]
    return f"--bootstrap-server {','.join(addresses)}" if addresses else PLACE_OF_BROKERS
