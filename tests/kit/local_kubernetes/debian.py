"""Root file systems of Debian with chosen packages, as tar files in the cache, made by mmdebstrap."""

import hashlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.golang import Progress, cache, locked
from kit.local_kubernetes.processes import run

SUITE = "bookworm"  # its systemd still accepts cgroup v1
TIMEOUT_S = 900
# Documentation and the like, which a container does not need.
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*/*", "/usr/share/locale/*", "/usr/share/info/*")


def root_file_system(
    name: str, packages: Sequence[str], environment: Mapping[str, str], progress: Progress
) -> Path:
    """The tar file of a minimal Debian with these packages. Raises LocalKubernetesError."""
    digest = hashlib.sha256(f"{SUITE} {packages} {_LEFT_OUT}".encode()).hexdigest()[:12]
    target = cache(environment) / "debian" / f"{name}-{digest}.tar"
    if target.is_file():
        return target
    with locked(target.with_suffix(".lock")):
        if not target.is_file():
            _make(name, packages, target, environment, progress)
    return target


def _make(
    name: str, packages: Sequence[str], target: Path, environment: Mapping[str, str], progress: Progress
) -> None:
    mmdebstrap = shutil.which("mmdebstrap", path=environment.get("PATH", os.defpath))
    if mmdebstrap is None or os.geteuid() != 0:
        raise LocalKubernetesError(
            "images without a registry are made of Debian's packages, which needs root and mmdebstrap "
            "(on Debian: apt-get install mmdebstrap); or start Docker, which then takes published images"
        )
    progress(f"installing Debian with {len(packages)} packages for {name}, once")
    started = time.monotonic()
    half_done = target.with_suffix(f".{os.getpid()}")
    command = [
        *(mmdebstrap, "--mode=root", "--variant=minbase", "--format=tar", f"--include={','.join(packages)}"),
        *(f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT),
        *(SUITE, f"{half_done}"),
    ]
    try:
        run(command, TIMEOUT_S, environment=environment)
        half_done.rename(target)
    finally:
        half_done.unlink(missing_ok=True)
    progress(f"installed Debian for {name} in {time.monotonic() - started:.0f} s")
