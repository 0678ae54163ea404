"""A cluster whose voters change: controllers are added, removed, and lose their disks, with Quorate's own tools."""

import asyncio
import shutil
import signal
import subprocess
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Self

from kit.cluster import START_TIMEOUT_S, TOOL_TIMEOUT_S, Cluster
from kit.ledger import ContinuousTopics
from kit.metadata import assert_same_images, assert_snapshots_hold, end_offset
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.types.cluster import ControllerListener, ControllerRegistration, QuorumDescription
from quorate_operator.planning.cluster import DesiredNode, Role
from quorate_operator.properties import initial_controllers
from quorate_operator.runtime.local.identity import quorum_facts
from quorate_operator.runtime.local.layout import QUORATE
from quorate_protocol.uuids import uuid_to_text

HANDOVERS_MAX = 12
PROGRESS_TIMEOUT_S = 40
RANGE_OF_4_1 = (7, 27)
"""The levels of metadata.version that controllers of Kafka 4.1 know."""
FEATURES_OF_4_1 = {
    "metadata.version": RANGE_OF_4_1,
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
}


def quorate(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the `quorate` command to its end."""
    return subprocess.run(
        [*QUORATE, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
        env=environment,
    )


def succeeded(ran: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a command. Fails if its exit code is not 0."""
    assert ran.returncode == 0, f"{ran.args[-6:]} ended with {ran.returncode}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def refused(ran: subprocess.CompletedProcess[str]) -> str:
    """Return the error output of a command. Fails if its exit code is 0, or if there is a traceback."""
    assert ran.returncode == 1, f"{ran.args[-6:]} ended with {ran.returncode}: {ran.stdout}{ran.stderr}"
    assert "Traceback" not in ran.stderr
    return ran.stdout + ran.stderr


class Membership(Cluster):
    """A dynamic quorum of which only the founders are voters at first. Close it."""

    founders: tuple[int, ...] = ()
    _founded = False

    @classmethod
    def found(cls, directory: Path, jars: Path | None, manifest: str, *, founders: int) -> Self:
        """Settle a place for every controller of the manifest, and format the first ones and the brokers."""
        cluster = cls.settle(directory, jars, manifest)
        cluster.founders = cluster.controllers[:founders]
        cluster.format(*cluster.founders, *cluster.nodes(Role.BROKER))
        cluster._founded = True
        return cluster

    def start_founders(self) -> Self:
        """Start the voters and the brokers, and wait until the cluster serves."""
        return self.start_with(*self.founders)

    # The quorum

    def voters(self) -> dict[int, str]:
        """The voters as the leader describes them: directory id by node id."""
        quorum = eventually(self.quorum, START_TIMEOUT_S, "the quorum", lambda: self.describe("no leader"))
        return {voter.node_id: uuid_to_text(voter.directory_id) for voter in quorum.voters}

    def await_voters(self, *node_ids: int) -> QuorumDescription:
        """Wait until exactly these are voters, with the directories that they have, and caught up."""
        expected = {node_id: self.directory_id(node_id) for node_id in node_ids}
        eventually(
            lambda: self.voters() == expected,
            START_TIMEOUT_S,
            f"the voters {expected}",
            lambda: self.describe(self.voters()),
        )
        return self.await_quorum(*node_ids)

    def asks(self) -> str:
        """The addresses of the controllers that run, for --bootstrap-controller."""
        return ",".join(self.address(controller) for controller in self.controllers if self.runs(controller))

    # Steps

    def observe(self, node_id: int) -> None:
        """Format a controller that is no voter yet, start it, and wait until it has caught up."""
        if not self.data(node_id).exists():
            self.format(node_id)
        self.start(node_id)
        self.await_observer(node_id)

    def await_observer(self, node_id: int) -> None:
        """Wait until the leader sees a node, with the directory that it has, fetch the end of the log."""
        directory_id = self.directory_id(node_id)

        def has_fetched() -> bool:
            assert self.runs(node_id), self.describe(f"{node_id} ended")
            quorum = self.quorum()
            return quorum is not None and any(
                (observer.node_id, uuid_to_text(observer.directory_id)) == (node_id, directory_id)
                and observer.log_end_offset >= quorum.high_watermark >= 0
                for observer in quorum.observers
            )

        eventually(has_fetched, START_TIMEOUT_S, f"{node_id} to follow", lambda: self.describe(self.quorum()))

    def metadata_quorum(
        self, *arguments: str, config: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `quorate metadata-quorum` against the controllers."""
        options = [] if config is None else ["--command-config", str(config)]
        return quorate("metadata-quorum", "--bootstrap-controller", self.asks(), *options, *arguments)

    def add(self, node_id: int) -> None:
        """Make an observer that has caught up a voter."""
        printed = succeeded(self.metadata_quorum("add-controller", config=self.config_file(node_id)))
        assert f"Added controller {node_id} with directory id {self.directory_id(node_id)}" in printed

    def join(self, *node_ids: int) -> None:
        """Bring controllers in, one by one, each from an empty directory to a voter."""
        for node_id in node_ids:
            self.observe(node_id)
            self.add(node_id)

    def remove(self, node_id: int, directory_id: str, *flags: str) -> None:
        """Remove a voter, whether it runs or not."""
        printed = succeeded(self.try_to_remove(node_id, directory_id, *flags))
        assert f"KRaft controller {node_id} with directory id {directory_id}" in printed

    def try_to_remove(self, node_id: int, directory_id: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """Try to remove a voter."""
        return self.metadata_quorum(
            "remove-controller",
            "--controller-id",
            str(node_id),
            f"--controller-directory-id={directory_id}",  # it may begin with a hyphen
            *flags,
        )

    def dismiss(self, *node_ids: int) -> None:
        """Remove voters that run, stop them, and take their directories away."""
        for node_id in node_ids:
            self.remove(node_id, self.directory_id(node_id))
            self.terminate(node_id)
            shutil.rmtree(self.data(node_id))

    def lose_disk(self, node_id: int) -> str:
        """Kill a node, and start it as an observer on a new directory; the id of the lost one."""
        lost = self.directory_id(node_id)
        self.kill(node_id)
        shutil.rmtree(self.data(node_id))
        self.observe(node_id)
        assert self.directory_id(node_id) != lost
        return lost

    def forget_static_voters(self, node_id: int) -> None:
        """Restart a node with a configuration that says where to look for the quorum, and not who votes."""
        self.configure(
            node_id,
            {"controller.quorum.bootstrap.servers": self.bootstrap_controllers},
            removed=["controller.quorum.voters"],
        )
        self.terminate(node_id)
        self.start(node_id)

    def leave_ghost(self, node_id: int) -> None:
        """Register a controller of Kafka 4.1 that does not exist, as one that was there and is gone for good."""
        registration = ControllerRegistration(
            controller_id=node_id,
            incarnation_id=uuid.uuid4(),
            listeners=(ControllerListener(name="CONTROLLER", host="127.0.0.1", port=1, security_protocol=0),),
            features=FEATURES_OF_4_1,
        )

        async def register() -> None:
            async with AdminClient(bootstrap_controllers=self.asks().split(",")) as client:
                await client.register_controller(registration)

        asyncio.run(register())

    def bring_to(self, *node_ids: int) -> Self:
        """Have exactly these as voters, whatever a test left."""
        self.start(*self.founders, *self.brokers)
        self.await_leader()
        voters = self.voters()
        self.join(*(node_id for node_id in node_ids if node_id not in voters))
        for node_id in voters.keys() - set(node_ids):
            self.remove(node_id, voters[node_id])
        self.await_voters(*node_ids)
        return self

    def _format_command(self, node: DesiredNode) -> list[str]:
        command = super()._format_command(node)
        if node.role is Role.BROKER:
            return command
        place = command.index("--initial-controllers") if "--initial-controllers" in command else len(command)
        others = [*command[:place], *command[place + 2 :]]
        if self._founded:
            return [*others, "--no-initial-controllers"]
        return (
            [*others, "--initial-controllers", self.founding_voters()]
            if len(others) < len(command)
            else others
        )

    def founding_voters(self) -> str:
        """The argument of --initial-controllers."""
        facts = quorum_facts(self.layout.desired, self.layout.identity)
        return initial_controllers([voter for voter in facts.voters if voter.node_id in self.founders])


def lead_with(cluster: Cluster, implementation: str, voters: Collection[int] = ()) -> int:
    """Have leaders resign until one of an implementation leads; its id. `voters`: by default all controllers."""
    for _ in range(HANDOVERS_MAX):
        leader = cluster.await_quorum(*voters).leader_id
        if cluster.implementation(leader) == implementation:
            return leader
        others = [voter for voter in voters or cluster.controllers if voter != leader]
        _resign(
            cluster, leader, [other for other in others if cluster.implementation(other) != implementation]
        )
        cluster.await_leader(other_than=leader)
        cluster.start(leader)
    raise AssertionError(cluster.describe(f"{HANDOVERS_MAX} handovers, and none to {implementation}"))


def _resign(cluster: Cluster, leader: int, rivals: Collection[int]) -> None:
    """Have a leader hand over, but not to `rivals`.

    It names its successors by how far they have fetched (KIP-595), and the first nearly always wins: the
    rivals are suspended until they are behind, and continue once the leader has resigned.
    """

    def are_behind() -> bool:
        quorum = cluster.quorum(leader)
        assert quorum is not None, cluster.describe(f"{leader} does not lead any more")
        ends = {voter.node_id: voter.log_end_offset for voter in quorum.voters}
        behind = max((ends[rival] for rival in rivals), default=-1)
        return all(end > behind for node_id, end in ends.items() if node_id not in rivals)

    with cluster.frozen(rivals):
        eventually(are_behind, PROGRESS_TIMEOUT_S, f"{rivals} to be behind")
        cluster.signal(leader, signal.SIGTERM)
        eventually(lambda: cluster.quorum(leader) is None, PROGRESS_TIMEOUT_S, f"{leader} to resign")
    cluster.await_exit(leader)


def await_progress(cluster: Cluster, topics: ContinuousTopics) -> None:
    """Wait until two more topics are acknowledged: one that was asked for from now on is among them."""
    count = len(topics.acknowledged) + 2
    eventually(
        lambda: len(topics.acknowledged) >= count,
        PROGRESS_TIMEOUT_S,
        "another topic",
        lambda: cluster.describe(topics.failures[-3:]),
    )


def assert_same_everywhere(
    cluster: Cluster, acknowledged: Sequence[str], controllers: Collection[int] = ()
) -> None:
    """Assert that controllers, by default all, have the same batches and image, with every acknowledged topic.

    Topics may still be created: those count that were acknowledged before the quorum was asked how far it is.
    """
    promised = tuple(acknowledged)
    quorum = cluster.await_quorum(*controllers)
    with cluster.frozen():
        partitions = [cluster.metadata(controller) for controller in controllers or cluster.controllers]
        assert min(end_offset(partition) for partition in partitions) >= quorum.high_watermark
        image = assert_same_images(partitions)
        assert_snapshots_hold(partitions)
    assert promised, "no topic was created"
    lost = [name for name in promised if name not in image.topics.by_name]
    assert lost == [], f"{len(lost)} of {len(promised)} acknowledged topics are lost"
