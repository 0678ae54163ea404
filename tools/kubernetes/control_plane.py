"""Build etcd, kube-apiserver, kubectl and helm into a cache, unless they are there, and print the directory.

Tests look there, or where KUBEBUILDER_ASSETS says. Exits with 1, and says what is missing, when they can't be built.
"""

import os
import sys

from local_kubernetes.errors import LocalKubernetesError
from local_kubernetes.golang import programs

PROGRAMS = ("etcd", "kube-apiserver", "kubectl", "helm")


def main() -> int:
    """The exit code."""
    try:
        paths = programs(PROGRAMS, os.environ, lambda text: print(text, file=sys.stderr, flush=True))
    except LocalKubernetesError as error:
        print(error, file=sys.stderr)
        return 1
    print(paths["etcd"].parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
