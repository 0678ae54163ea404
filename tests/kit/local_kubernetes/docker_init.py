"""The first process of the namespaces that a Docker daemon of our own lives in; see `docker_host`.

Arguments: a directory for everything that the daemon keeps, the cgroup of its containers, and more of its options.
"""

import os
import subprocess
import sys


def main() -> int:
    """The exit code of the daemon."""
    directory, cgroup, *options = sys.argv[1:]
    # A mount namespace of its own is no use while what happens in it is seen outside.
    _run("mount", "--make-rprivate", "/")
    # Sockets and locks of the machine's own containerd, Docker and iptables are out of sight.
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    _run("ip", "link", "set", "lo", "up")
    daemon = subprocess.Popen(
        [
            *("dockerd", f"--data-root={directory}/data", f"--exec-root={directory}/exec"),
            *(f"--host=unix://{directory}/docker.sock", f"--pidfile={directory}/docker.pid"),
            *("--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{cgroup}"),
            *("--default-cgroupns-mode=private", "--oom-score-adjust=0", *options),
        ]
    )
    while True:  # the first process reaps what is orphaned
        pid, status = os.wait()
        if pid == daemon.pid:
            return os.waitstatus_to_exitcode(status)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
