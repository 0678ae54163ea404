"""Builds into the cache what tests of Kubernetes need, unless it is there, and prints the path.

`control-plane`: etcd, kube-apiserver, kubectl, helm and actionlint; tests look there, or where KUBEBUILDER_ASSETS
says.
`node-image`: the node image of kind, made without a registry.
Exits with 1, and says what is missing, when that can't be built.
"""

import argparse
import os
import sys

from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.golang import programs
from kit.local_kubernetes.node_image import node_image

PROGRAMS = ("etcd", "kube-apiserver", "kubectl", "helm", "actionlint")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="kit.local_kubernetes", description=__doc__)
    parser.add_argument("what", choices=("control-plane", "node-image"))
    try:
        if parser.parse_args().what == "control-plane":
            path = programs(PROGRAMS, os.environ, _progress)["etcd"].parent
        else:
            path = node_image(os.environ, _progress)
    except LocalKubernetesError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{path}\n")
    return 0


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
