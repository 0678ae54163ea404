"""Volumes that grow under a real API server, which decides by their StorageClass."""

import kubernetes.client
from kit.operators.operated import BROKERS, CONTROLLERS_FIRST, QUORUM, Operated

CLAIM = f"data-{QUORUM}-{CONTROLLERS_FIRST}"


def test_a_volume_grows_when_its_class_allows_it(operated: Operated) -> None:
    """`storage.size` grows the volume of a running node, and what can't grow is reported."""
    classes = kubernetes.client.StorageV1Api(operated.core.api_client)
    name = f"{operated.namespace}-disks"
    classes.create_storage_class({"metadata": {"name": name}, "provisioner": "example.com/disks"})
    operated.create(replicas=1, storage={"size": "1Gi", "className": name})
    operated.start_operator()
    operated.wait_settled(CONTROLLERS_FIRST)
    pod = operated.core.read_namespaced_pod(f"{QUORUM}-{CONTROLLERS_FIRST}", operated.namespace).metadata.uid
    _report(operated, capacity="1Gi")

    operated.patch(storage={"size": "2Gi"})
    operated.wait(lambda: bool(operated.refusals()), "the class to be reported")
    (reported,) = operated.refusals()
    assert reported["code"] == "VolumeCannotGrow"
    assert f"the StorageClass {name} has no allowVolumeExpansion" in reported["message"]
    assert operated.condition("Stalled")["reason"] == "VolumeCannotGrow"
    operated.wait(lambda: name in "".join(operated.events("VolumeCannotGrow")), "the Event")

    classes.patch_storage_class(name, {"allowVolumeExpansion": True})
    operated.wait(lambda: _requested(operated) == "2Gi", "the larger size to be requested")
    assert operated.events("GrowVolume")
    _report(operated, capacity="1Gi", condition="FileSystemResizePending")
    operated.wait(
        lambda: operated.condition("VolumesResizing").get("reason") == "FileSystemResizePending",
        "the resize to be reported",
    )
    _report(operated, capacity="2Gi")
    operated.wait_settled(CONTROLLERS_FIRST)
    assert operated.condition("VolumesResizing")["status"] == "False"

    body = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    operated.core.patch_namespaced_persistent_volume_claim(CLAIM, operated.namespace, body)
    operated.wait(lambda: bool(operated.refusals()), "the larger claim to be reported")
    assert [refusal["code"] for refusal in operated.refusals()] == ["VolumeCannotShrink"]
    operated.patch(storage={"size": "3Gi"})
    operated.wait(lambda: not operated.refusals(), "both to agree")
    after = operated.core.read_namespaced_pod(f"{QUORUM}-{CONTROLLERS_FIRST}", operated.namespace)
    assert after.metadata.uid == pod


def test_a_history_that_can_not_grow_holds_up_nothing(operated: Operated) -> None:
    """What the API server refuses is reported, and the rest of the cluster is reconciled."""
    classes = kubernetes.client.StorageV1Api(operated.core.api_client)
    name, claim = f"{operated.namespace}-slow", f"history-{QUORUM}"
    classes.create_storage_class({"metadata": {"name": name}, "provisioner": "example.com/disks"})
    operated.create(replicas=1, history={"storage": {"size": "1Gi", "className": name}})
    operated.start_operator()
    operated.wait_settled(CONTROLLERS_FIRST)
    _report(operated, claim=claim, capacity="1Gi")

    operated.patch(history={"storage": {"size": "2Gi"}})
    operated.wait(lambda: bool(operated.refusals()), "the refusal to be reported")
    (reported,) = operated.refusals()
    assert reported["code"] == operated.condition("Stalled")["reason"] == "ObjectRefused"
    assert reported["message"].startswith(f"PersistentVolumeClaim {claim} could not be applied")
    assert f"the StorageClass {name} has no allowVolumeExpansion" in reported["message"]
    pod = operated.core.read_namespaced_pod(f"{QUORUM}-{CONTROLLERS_FIRST}", operated.namespace).metadata.uid
    operated.patch(template={"labels": {"team": "a"}})
    operated.wait(lambda: operated.events("StopNode"), "a roll to begin all the same")
    operated.wait_settled(CONTROLLERS_FIRST)
    after = operated.core.read_namespaced_pod(f"{QUORUM}-{CONTROLLERS_FIRST}", operated.namespace)
    assert after.metadata.uid != pod

    classes.patch_storage_class(name, {"allowVolumeExpansion": True})
    operated.wait(lambda: _requested(operated, claim) == "2Gi", "the larger size to be requested")
    operated.wait(lambda: not operated.refusals(), "nothing to be wrong any more")


def test_volumes_of_brokers_come_and_are_taken_back(brokered: Operated) -> None:
    """A pool with `size` gets another volume by one restart, and a removal waits until the volume is empty."""
    operated = brokered
    operated.create(replicas=1)
    operated.create_brokers(storage={"size": "1Gi"})
    operated.start_operator()
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready")
    first, added = f"data-{BROKERS}-0", f"data-1-{BROKERS}-0"

    both = [{"id": 0, "size": "1Gi"}, {"id": 1, "size": "2Gi"}]
    operated.patch_brokers(storage={"size": None, "volumes": both})
    operated.wait(lambda: operated.events("CreateVolume"), "the volume to be created")
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready with it")
    assert {first, added} <= set(operated.claims())
    assert _requested(operated, added) == "2Gi"
    assert [note for note in operated.events("StopNode") if "storage.volumes: 0 -> 0,1" in note]
    assert (operated.agent.volume_of(added) / "data" / "meta.properties").is_file()
    pods = operated.pod_uids()

    operated.patch_brokers(storage={"volumes": both[:1]})
    operated.wait(
        lambda: operated.brokers_condition("VolumesEmptying").get("status") == "True", "the removal"
    )
    assert "0 (volume 1)" in operated.brokers_condition("VolumesEmptying")["message"]
    operated.patch_brokers(storage={"volumes": both})
    operated.wait(
        lambda: operated.brokers_condition("VolumesEmptying").get("status") == "False",
        "the removal to be undone",
    )
    assert added in operated.claims()
    assert operated.pod_uids() == pods


def _requested(operated: Operated, claim: str = CLAIM) -> str:
    found = operated.core.read_namespaced_persistent_volume_claim(claim, operated.namespace)
    return str(found.spec.resources.requests["storage"])


def _report(operated: Operated, *, capacity: str, condition: str | None = None, claim: str = CLAIM) -> None:
    """Bind the claim, with a volume of this capacity."""
    conditions = [{"type": condition, "status": "True", "message": "by kubelet"}] if condition else []
    status = {"phase": "Bound", "capacity": {"storage": capacity}, "conditions": conditions}
    operated.core.patch_namespaced_persistent_volume_claim_status(
        claim, operated.namespace, {"status": status}
    )
