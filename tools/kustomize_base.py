"""Write kustomize/base/operator.yaml: the chart with its defaults, without what only Helm reads. Helm is needed.

The definitions beside it come from tools/crds.py.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from generated import add_check, dump, settle

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "quorate"
TARGET = ROOT / "kustomize" / "base" / "operator.yaml"
NAMESPACE = "quorate-system"
KUBERNETES = "1.34.0"
HEADER = "# Rendered from charts/quorate by tools/kustomize_base.py; change the chart instead.\n"
MANAGED_BY = "app.kubernetes.io/managed-by"
OF_HELM = "helm.sh/"


def rendered(helm: str) -> str:
    """The text of the file. Raises CalledProcessError and OSError."""
    command = [
        helm,
        "template",
        "quorate",
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--kube-version",
        KUBERNETES,
    ]
    values = ("--set", "crds.install=false,tests.create=false")
    made = subprocess.run([*command, *values], check=True, capture_output=True, text=True).stdout
    objects = [document for document in yaml.safe_load_all(made) if document]
    for manifest in objects:
        _strip(manifest["metadata"])
        if manifest["kind"] == "Deployment":
            _strip(manifest["spec"]["template"]["metadata"])
    # Labels of the namespace are those of its pods, which are restricted.
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    return HEADER + dump(namespace, *objects)


def _strip(metadata: dict[str, Any]) -> None:
    labels = {name: value for name, value in metadata.get("labels", {}).items() if OF_HELM not in name}
    labels.pop(MANAGED_BY, None)
    metadata["labels"] = labels


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--helm", default="helm", metavar="FILE", help="default: that of the PATH")
    add_check(parser)
    arguments = parser.parse_args()
    try:
        text = rendered(arguments.helm)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"helm failed: {getattr(error, 'stderr', None) or error}", file=sys.stderr)
        return 1
    return settle({TARGET: text}, is_check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
