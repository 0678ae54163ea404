"""The identity of a cluster, in the status of its KafkaController: settled once, by one writer."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from quorate_protocol.uuids import random_uuid, uuid_to_text

from quorate_operator.models.status import FormationStatus, InitialVoter
from quorate_operator.planning.cluster import Formation, Role
from quorate_operator.planning.steps import StepError
from quorate_operator.runtime.kubernetes.api import CONTROLLERS, KubernetesApi, Object
from quorate_operator.runtime.kubernetes.observation import (
    ANNOTATION_CLUSTER_ID,
    ANNOTATION_DIRECTORY_ID,
    NodeObjects,
    annotation,
)


def formation_of(quorum: Object) -> Formation | None:
    """Returns the identity that the status of a KafkaController stores, or None."""
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
    )


def formation_on_disks(nodes: Iterable[NodeObjects], *, is_static: bool) -> Formation | None:
    """Returns the identity on the claims of an earlier KafkaController of this name, whose cluster continues.

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


def new_formation(node_ids: Iterable[int], cluster_id: str | None, *, is_static: bool) -> Formation:
    return Formation(
        cluster_id=cluster_id or uuid_to_text(random_uuid()),
        initial_voters={node_id: uuid_to_text(random_uuid()) for node_id in node_ids},
        is_formed=False,
        is_static=is_static,
    )


async def write_formation(
    api: KubernetesApi,
    namespace: str,
    name: str,
    change: Callable[[Formation | None], Formation],
) -> Object:
    """Changes the stored identity as it is at this moment; returns the KafkaController.

    Raises ApiError, a conflict if it was written meanwhile, and what `change` raises.
    """
    quorum = await api.get(CONTROLLERS, namespace, name)
    if quorum is None:
        raise StepError(f"KafkaController {name} is gone")
    before = formation_of(quorum)
    after = change(before)
    if after == before:
        return quorum
    stored = FormationStatus(
        initial_voters=tuple(
            InitialVoter(node_id=node_id, directory_id=directory_id)
            for node_id, directory_id in sorted(after.initial_voters.items())
        ),
        is_formed=after.is_formed,
        is_static=after.is_static,
        is_rebuilt=after.is_rebuilt,
    )
    status = {
        **(quorum.get("status") or {}),
        "clusterId": after.cluster_id,
        "formation": stored.model_dump(by_alias=True),
    }
    return await api.replace(CONTROLLERS, namespace, {**quorum, "status": status}, subresource="status")


def with_leader(formation: Formation | None, kraft_version: int) -> Formation:
    """Returns the identity after a leader was seen."""
    if formation is None:
        raise StepError("a cluster that was not formed has no leader")
    return replace(formation, is_formed=True, is_static=formation.is_static and kraft_version == 0)
