"""The node image of kind, made without a registry: Debian, kind's own base files, and Kubernetes from its modules.

Its parts are those of kind's own image, with three differences: it has no kindnetd, whose place `kind_cluster`
takes; storage comes from local-path-provisioner, as there, in an image of ours; and containerd and systemd are
Debian's, configured without what small test machines refuse (see `_adapt`).
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kit.local_kubernetes.debian import root_file_system
from kit.local_kubernetes.golang import Progress, cache, locked, module_directory, programs
from kit.local_kubernetes.oci import Image
from kit.local_kubernetes.processes import Service, run
from kit.local_kubernetes.versions import KIND, KUBERNETES

NAME = f"quorate-kind-node:v{KUBERNETES}"
MANIFESTS = Path(__file__).with_name("manifests")
COMMAND_TIMEOUT_S = 300
CONTAINERD_TIMEOUT_S = 30
# What kind's Dockerfile installs, and what it builds from source.
_PACKAGES = (
    *("bash", "ca-certificates", "conntrack", "curl", "dbus", "e2fsprogs", "ethtool", "iproute2", "iptables"),
    *(
        "jq",
        "kmod",
        "libseccomp2",
        "mount",
        "nfs-common",
        "nftables",
        "pigz",
        "procps",
        "systemd",
        "util-linux",
    ),
    *("busybox-static", "containerd", "containernetworking-plugins", "runc"),
)
_PROGRAMS = (
    *("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"),
    *("kubeadm", "kubectl", "kubelet", "etcd", "coredns", "local-path-provisioner", "pause"),
)
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_SHELL_TOOLS = ("sh", "mkdir", "rm", "ls", "cat", "echo", "sleep", "nslookup", "wget", "nc", "ip")


def node_image(environment: Mapping[str, str], progress: Progress) -> Path:
    """The image as a tar file for `docker import`, made once. Raises LocalKubernetesError."""
    here = Path(__file__)
    sources = [
        here,
        *map(here.with_name, ("debian.py", "oci.py", "versions.py")),
        *sorted(MANIFESTS.iterdir()),
    ]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    target = cache(environment) / "node-image" / f"{digest}.tar"
    if target.is_file():
        return target
    built = programs(_PROGRAMS, environment, progress)
    debian = root_file_system("a node of kind", _PACKAGES, environment, progress)
    with locked(target.parent / "lock"):
        if not target.is_file():
            progress("making the node image of kind, once")
            started = time.monotonic()
            _make(target, built, debian, environment)
            for outdated in target.parent.glob("*.tar"):
                if outdated != target:
                    outdated.unlink()
            progress(f"made the node image of kind in {time.monotonic() - started:.0f} s")
    return target


def _make(target: Path, built: Mapping[str, Path], debian: Path, environment: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix=".node-", dir=target.parent) as scratch:
        root, archives = Path(scratch) / "root", Path(scratch) / "images"
        root.mkdir()
        archives.mkdir()
        _run(["tar", "--extract", "--preserve-permissions", "--numeric-owner", f"--file={debian}"], cwd=root)
        _add_kind(root, module_directory(f"sigs.k8s.io/kind@v{KIND}", environment) / "images/base/files")
        for name in ("kubeadm", "kubectl", "kubelet"):
            shutil.copy(built[name], root / "usr/bin" / name)
        names = _names(built["kubeadm"])
        _adapt(root, names["pause"])
        for number, image in enumerate(_images(names, built, root)):
            image.write(archives / f"{number}.tar")
        _preload(root, archives, Path(scratch))
        whole = Path(scratch) / "whole.tar"
        _run(["tar", "--create", "--numeric-owner", f"--file={whole}", "."], cwd=root)
        whole.rename(target)


def _add_kind(root: Path, files: Path) -> None:
    """What the first stage of kind's Dockerfile does."""
    for source in files.rglob("*"):
        if source.is_file():
            target = root / source.relative_to(files)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755 if target.parent.name == "bin" else 0o644)
    units = root / "lib/systemd/system"
    unwanted = [
        *(root / "etc/systemd/system").glob("*.wants/*"),
        *units.glob("multi-user.target.wants/*"),
        *units.glob("local-fs.target.wants/*"),
        *units.glob("basic.target.wants/*"),
        *units.glob("sockets.target.wants/*udev*"),
        *units.glob("sockets.target.wants/*initctl*"),
        *units.glob("sysinit.target.wants/systemd-tmpfiles-setup.service"),
    ]
    for unit in unwanted:
        unit.unlink()
    with (root / "etc/systemd/journald.conf").open("a") as config:
        config.write("ReadKMsg=no\n")
    _link(root / "sbin/init", "/lib/systemd/systemd")
    for directory in ("etc/kubernetes/manifests", "kind/manifests", "etc/cni/net.d", "opt/cni"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "kind/version").write_text(f"v{KUBERNETES}")
    shutil.copy(MANIFESTS / "local-path-storage.yaml", root / "kind/manifests/default-storage.yaml")
    # Debian's containerd brings a unit of its own, at another path.
    (units / "containerd.service").unlink()
    _link(root / "usr/local/bin/containerd", "/usr/bin/containerd")
    _link(root / "opt/cni/bin", "/usr/lib/cni")
    _run(["chroot", f"{root}", "systemctl", "enable", "kubelet", "containerd", "undo-mount-hacks"])
    _run(["chroot", f"{root}", "systemctl", "mask", "systemd-binfmt"])


def _adapt(root: Path, pause: str) -> None:
    """Manage without CAP_SYS_RESOURCE, which lowering oom scores and raising limits would need."""
    _edit(
        root / "etc/containerd/config.toml",
        lambda text: re.sub(
            r'sandbox_image = ".*"',
            f'sandbox_image = "{pause}"',
            text.replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true").replace(
                # The images are preloaded: with nothing to pull them from again, their layers are kept.
                "discard_unpacked_layers = true",
                "discard_unpacked_layers = false",
            ),
        ),
    )
    _edit(
        root / "etc/systemd/system/containerd.service",
        lambda text: re.sub(r"(?m)^(OOMScoreAdjust|LimitNPROC|LimitNOFILE|LimitCORE)=.*\n", "", text),
    )
    spec = json.loads(_run(["chroot", f"{root}", "ctr", "oci", "spec"]))
    spec["process"].pop("rlimits", None)
    hooks = spec.setdefault("hooks", {}).setdefault("createContainer", [])
    hooks.append({"path": "/kind/bin/mount-product-files.sh"})
    (root / "etc/containerd/cri-base.json").write_text(json.dumps(spec))


def _names(kubeadm: Path) -> dict[str, str]:
    """By which name kubeadm asks for each image."""
    listed = _run([f"{kubeadm}", "config", "images", "list", "--kubernetes-version", f"v{KUBERNETES}"])
    return {name.rsplit("/", 1)[-1].partition(":")[0]: name for name in listed.split()}


def _images(names: Mapping[str, str], built: Mapping[str, Path], root: Path) -> list[Image]:
    plain = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
    busybox = root / "usr/bin/busybox"
    if not busybox.is_file():
        busybox = root / "bin/busybox"
    return [
        *(
            Image(name=names[name], files={f"/usr/local/bin/{name}": built[name]}, entrypoint=[name])
            for name in plain
        ),
        Image(name=names["coredns"], files={"/coredns": built["coredns"]}, entrypoint=["/coredns"]),
        Image(
            name=names["pause"], files={"/pause": built["pause"]}, entrypoint=["/pause"], user="65535:65535"
        ),
        _kube_proxy(names["kube-proxy"], built["kube-proxy"], root, busybox),
        Image(
            name="quorate.local/local-path-provisioner:1",
            files={"/local-path-provisioner": built["local-path-provisioner"]},
            entrypoint=["/local-path-provisioner"],
        ),
        Image(
            name="quorate.local/busybox:1",
            files={"/bin/busybox": busybox},
            links={f"/bin/{tool}": "busybox" for tool in _SHELL_TOOLS},
            entrypoint=["/bin/busybox"],
        ),
    ]


def _kube_proxy(name: str, program: Path, root: Path, busybox: Path) -> Image:
    """kube-proxy calls iptables, nft and conntrack: they come with their extensions and libraries."""
    called = ["/usr/sbin/xtables-nft-multi", "/usr/sbin/nft", "/usr/sbin/conntrack"]
    extensions = sorted((root / _LIBRARIES / "xtables").glob("*.so"))
    objects = [*called, *(f"/{path.relative_to(root)}" for path in extensions if not path.is_symlink())]
    listed = _run(["chroot", f"{root}", "ldd", *objects])
    libraries = {path for path in re.findall(r"(/lib\S*\.so\S*)", listed) if not path.endswith(":")}
    aliases = [f"{kind}tables{verb}" for kind in ("ip", "ip6") for verb in ("", "-save", "-restore")]
    return Image(
        name=name,
        files={
            "/usr/local/bin/kube-proxy": program,
            "/bin/busybox": busybox,
            **{path: (root / path.strip("/")) for path in objects},
            **{path: Path(os.path.realpath(root / path.strip("/"))) for path in libraries},
        },
        links={
            "/bin/sh": "busybox",
            **{f"/usr/sbin/{alias}": "xtables-nft-multi" for alias in aliases},
            **{
                f"/{path.relative_to(root)}": f"{path.readlink()}" for path in extensions if path.is_symlink()
            },
        },
    )


def _preload(root: Path, archives: Path, scratch: Path) -> None:
    """Unpack the images where the node's containerd looks for them."""
    socket, config = scratch / "containerd.sock", scratch / "containerd.toml"
    lines = [
        "version = 2",
        f'root = "{root}/var/lib/containerd"',
        f'state = "{scratch}/state"',
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]',
        f'grpc = {{ address = "{socket}" }}',
        f'[plugins."io.containerd.internal.v1.opt"]\npath = "{scratch}/opt"',
    ]
    config.write_text("\n".join(lines) + "\n")
    # In a mount namespace of its own: what it mounts while it unpacks is gone with it.
    command = ["unshare", "--mount", "--fork", "--kill-child", "containerd", "--config", f"{config}"]
    service = Service("containerd", command, scratch / "containerd.log", os.environ)
    client = ["ctr", f"--address={socket}", "--namespace=k8s.io"]
    try:
        service.wait_until(lambda: _succeeds([*client, "version"]), CONTAINERD_TIMEOUT_S)
        for archive in sorted(archives.iterdir()):
            _run([*client, "images", "import", f"{archive}"])
    finally:
        service.stop()


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text()))


def _succeeds(command: Sequence[str]) -> bool:
    return (
        subprocess.run(command, capture_output=True, check=False, timeout=COMMAND_TIMEOUT_S).returncode == 0
    )


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    return run(command, COMMAND_TIMEOUT_S, directory=cwd)
