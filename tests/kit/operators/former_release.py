"""The operator of a former commit: its chart and its image, to run beside the present one and to roll back to."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.golang import Progress
from kit.local_kubernetes.images import ROOT, build_former_image
from kit.local_kubernetes.kind_cluster import KindCluster
from kit.local_kubernetes.processes import run

COMMIT = "0472ffd2"
"""The first one whose operator ignores fields of newer definitions."""
IMAGE = f"quorate:{COMMIT}"
GIT_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class FormerRelease:
    """The chart of the former commit in a directory, and its image on the workers of a cluster."""

    chart: Path
    image: str = IMAGE

    def values(self) -> dict[str, str]:
        """Values of the chart, by their dotted names."""
        repository, tag = self.image.split(":")
        return {"image.repository": repository, "image.tag": tag, "crds.install": "false"}


def former_release(
    cluster: KindCluster, directory: Path, environment: Mapping[str, str], progress: Progress
) -> FormerRelease:
    """Build the former commit from the history of this repository. Raises LocalKubernetesError."""
    if shutil.which("git", path=environment.get("PATH")) is None:
        raise LocalKubernetesError("the operator of a former commit needs git: install it")
    archive = directory / "former.tar"
    try:
        # A clone that another user owns, as in a container of a workflow, is read all the same.
        git = ("git", "-c", f"safe.directory={ROOT}", "archive", f"--output={archive}", COMMIT)
        run(git, GIT_TIMEOUT_S, environment=environment, directory=ROOT)
    except LocalKubernetesError as error:
        raise LocalKubernetesError(
            f"{error}\nThe operator of a former commit needs the history: git fetch --unshallow"
        ) from error
    sources = directory / "sources"
    sources.mkdir()
    run(["tar", "--extract", f"--file={archive}", f"--directory={sources}"], GIT_TIMEOUT_S)
    build_former_image(IMAGE, sources, cluster.docker, environment, progress)
    cluster.load(IMAGE)
    return FormerRelease(sources / "charts" / "quorate")
