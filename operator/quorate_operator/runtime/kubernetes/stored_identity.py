"""The identity of a cluster, in the status of its KafkaController: chosen once, by one writer."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from quorate_protocol.uuids import random_uuid, uuid_to_text

from quorate_operator.models.status import FormationStatus, InitialVoter
from quorate_operator.planning.cluster import DesiredCluster, Formation, Role
from quorate_operator.planning.steps import StepError
from quorate_operator.runtime.kubernetes.api import CONTROLLERS, KubernetesApi, Object
from quorate_operator.runtime.kubernetes.objects import ClusterObjects
from quorate_operator.runtime.kubernetes.observation import (
    ANNOTATION_CLUSTER_ID,
    ANNOTATION_DIRECTORY_ID,
    NodeObjects,
    annotation,
)


class StoredIdentity:
    """The identity of one cluster: in the status of its KafkaController or, if that was recreated, on its claims.

    `quorum` returns the KafkaController as it was last seen; `store` stores it as a write returned it.
    """

    def __init__(
        self,
        api: KubernetesApi,
        objects: ClusterObjects,
        quorum: Callable[[], Object | None],
        store: Callable[[Object], object],
    ) -> None:
        self._api = api
        self._objects = objects
        self._quorum = quorum
        self._store = store

    def formation(self) -> Formation | None:
        """Return the stored identity, or None. Raises StepError if claims belong to several clusters."""
        quorum = self._quorum()
        stored = formation_of(quorum) if quorum is not None else None
        if stored is not None or quorum is None:
            return stored
        is_static = quorum["spec"].get("quorum") == "static"
        return formation_on_disks(self._objects.nodes().values(), is_static=is_static)

    def as_configured(self, desired: DesiredCluster) -> DesiredCluster:
        """Return the cluster with static voters in configurations as long as the quorum has them."""
        formation = self.formation()
        return desired if formation is None else replace(desired, dynamic_quorum=not formation.is_static)

    async def form(self, node_ids: Iterable[int], cluster_id: str | None, *, is_static: bool) -> None:
        """Store the initial voters of a new cluster. Raises StepError if it was formed already."""

        def change(stored: Formation | None) -> Formation:
            if stored is not None and stored.is_formed:
                raise StepError("the cluster was formed already, and is not formed again")
            if stored is not None and stored.initial_voters.keys() == set(node_ids):
                return stored
            # The id of a cluster never changes once it is stored.
            chosen = stored.cluster_id if stored else cluster_id
            return Formation(
                cluster_id=chosen or uuid_to_text(random_uuid()),
                initial_voters={node_id: uuid_to_text(random_uuid()) for node_id in node_ids},
                is_formed=False,
                is_static=is_static,
            )

        await self._write(change)

    async def note_leader(self, kraft_version: int, leader_epoch: int) -> None:
        """Store that a leader was seen."""
        found = self.formation()

        def change(stored: Formation | None) -> Formation:
            formation = stored or found
            if formation is None:
                raise StepError("a cluster that was not formed has no leader")
            return formation.with_leader(kraft_version, leader_epoch)

        await self._write(change)

    async def note_rebuilt(self, node_id: int, directory_id: str) -> None:
        """Store that the quorum was rebuilt from this controller."""

        def change(stored: Formation | None) -> Formation:
            if stored is None:
                raise StepError("the cluster was not formed")
            return stored.rebuilt_from(node_id, directory_id)

        await self._write(change)

    async def _write(self, change: Callable[[Formation | None], Formation]) -> None:
        """Change the identity as it is stored at this time.

        Raises ApiError, a conflict if it was written meanwhile, and what `change` raises.
        """
        namespace, name = self._objects.namespace, self._objects.cluster
        quorum = await self._api.get(CONTROLLERS, namespace, name)
        if quorum is None:
            raise StepError(f"KafkaController {name} is gone")
        before = formation_of(quorum)
        after = change(before)
        if after == before:
            self._store(quorum)
            return
        stored = FormationStatus(
            initial_voters=tuple(
                InitialVoter(node_id=node_id, directory_id=directory_id)
                for node_id, directory_id in sorted(after.initial_voters.items())
            ),
            is_formed=after.is_formed,
            is_static=after.is_static,
            is_rebuilt=after.is_rebuilt,
            leader_epoch=after.leader_epoch,
        )
        status = {
            **(quorum.get("status") or {}),
            "clusterId": after.cluster_id,
            "formation": stored.model_dump(by_alias=True),
        }
        body = {**quorum, "status": status}
        self._store(await self._api.replace(CONTROLLERS, namespace, body, subresource="status"))


def formation_of(quorum: Object) -> Formation | None:
    """Return the identity that the status of a KafkaController stores, or None."""
    status = quorum.get("status") or {}
    stored = status.get("formation")
    cluster_id = status.get("clusterId")
    if stored is None or cluster_id is None:
        return None
    formation = FormationStatus.model_validate(stored)
    return Formation(
        cluster_id=cluster_id,
        initial_voters={voter.node_id: voter.directory_id for voter in formation.initial_voters},
        is_formed=formation.is_formed,
        is_static=formation.is_static,
        is_rebuilt=formation.is_rebuilt,
        leader_epoch=formation.leader_epoch,
    )


def formation_on_disks(nodes: Iterable[NodeObjects], *, is_static: bool) -> Formation | None:
    """Return the identity on the claims of a deleted KafkaController of this name, whose cluster continues.

    Raises StepError if they belong to several clusters.
    """
    voters: dict[int, str] = {}
    cluster_ids: set[str] = set()
    for node in nodes:
        cluster_id = annotation(node.claim, ANNOTATION_CLUSTER_ID)
        directory_id = annotation(node.claim, ANNOTATION_DIRECTORY_ID)
        if cluster_id is None or directory_id is None:
            continue
        cluster_ids.add(cluster_id)
        if node.role is Role.CONTROLLER:
            voters[node.node_id] = directory_id
    if len(cluster_ids) > 1:
        raise StepError(f"the volumes are those of several clusters: {', '.join(sorted(cluster_ids))}")
    if not voters:
        return None
    return Formation(cluster_id=cluster_ids.pop(), initial_voters=voters, is_formed=True, is_static=is_static)
