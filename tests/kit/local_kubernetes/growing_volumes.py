"""Volumes of kind that grow while they are used, since those of local-path-provisioner can't.

The provisioner and the resizer of Kubernetes ask a driver of ours (`modules/growing-volumes`), whose volumes are in
the memory of the machine.
"""

from collections.abc import Mapping
from pathlib import Path

from kit.local_kubernetes.golang import Progress, programs
from kit.local_kubernetes.kind_cluster import READY_TIMEOUT, KindCluster
from kit.local_kubernetes.oci import Image

CLASS = "growing"
_MANIFEST = Path(__file__).with_name("manifests") / "growing-volumes.yaml"
_IMAGE = "quorate.local/growing-volumes:1"
_PROGRAMS = ("growing-volumes", "csi-provisioner", "csi-resizer")


def install(cluster: KindCluster, environment: Mapping[str, str], progress: Progress) -> None:
    """Run the driver on each worker, and make their class. Raises LocalKubernetesError."""
    built = programs(_PROGRAMS, environment, progress)
    archive = cluster.directory / "growing-volumes.tar"
    Image(name=_IMAGE, files={f"/{name}": path for name, path in built.items()}).write(archive)
    cluster.load_archive(archive)
    cluster.kubectl("apply", "--filename=-", stdin=_MANIFEST.read_text())
    wait = ("daemonset/driver", "--namespace=growing-volumes", f"--timeout={READY_TIMEOUT}")
    cluster.kubectl("rollout", "status", *wait)
