"""The folders of clusters: `cluster_id=<id>`, as Spark names them."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote

UNKNOWN_CLUSTER: Final = "unknown"
"""The cluster id of directories without one."""
FOLDER: Final = "cluster_id="
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f")


def folder_name(cluster_id: str) -> str:
    """The name of a cluster's folder, as Spark writes it (ExternalCatalogUtils.escapePathName)."""
    return FOLDER + "".join(
        f"%{ord(one):02X}" if one in _ESCAPED or ord(one) < ord(" ") else one for one in cluster_id
    )


def folders(where: Path) -> dict[str, Path]:
    """The clusters' folders below a path, by cluster id."""
    if not where.is_dir():
        return {}
    return {
        unquote(path.name.removeprefix(FOLDER)): path
        for path in sorted(where.iterdir())
        if path.name.startswith(FOLDER)
    }
