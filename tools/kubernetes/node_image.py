"""Make the node image of kind without a registry, unless it is in the cache, and print its path.

Exits with 1, and says what is missing, when it can't be made.
"""

import os
import sys

from local_kubernetes.errors import LocalKubernetesError
from local_kubernetes.node_image import node_image


def main() -> int:
    """The exit code."""
    try:
        print(node_image(os.environ, lambda text: print(text, file=sys.stderr, flush=True)))
    except LocalKubernetesError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
