"""Writes container images from files alone: one layer, no registry, no builder.

The archive is an OCI image layout and a Docker archive at once. Everything in it belongs to root and is from 1970,
so that the digest depends on the content only.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MEDIA = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What is in an image: `files` map a path in it to one here, `links` a path in it to what it points to.

    `user` is "uid:gid", or empty for root.
    """

    name: str
    entrypoint: Sequence[str] = ()
    user: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the archive."""
        layer = _layer(self.files, self.links)
        config = _json(
            {
                "architecture": "amd64",
                "os": "linux",
                "created": "1970-01-01T00:00:00Z",
                "config": {
                    "Env": [f"PATH={PATH}"],
                    "WorkingDir": "/",
                    "Entrypoint": [*self.entrypoint],
                    "User": self.user,
                },
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            }
        )
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": f"{_MEDIA}.manifest.v1+json",
                "config": _descriptor(f"{_MEDIA}.config.v1+json", config),
                "layers": [_descriptor(f"{_MEDIA}.layer.v1.tar", layer)],
            }
        )
        annotations = {
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rsplit(":", 1)[-1],
        }
        entry = {**_descriptor(f"{_MEDIA}.manifest.v1+json", manifest), "annotations": annotations}
        index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [entry]}
        docker = [{"Config": _blob(config), "RepoTags": [self.name], "Layers": [_blob(layer)]}]
        with tarfile.open(path, "w") as archive:
            _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            _add(archive, "index.json", _json(index))
            _add(archive, "manifest.json", _json(docker))
            for blob in (config, manifest, layer):
                _add(archive, _blob(blob), blob)


def _layer(files: Mapping[str, Path], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as layer:
        directories = {"tmp", "run"}
        for inside in (*files, *links):
            directories.update(str(parent).strip("/") for parent in PurePosixPath(inside).parents)
        for directory in sorted(directories - {""}):
            entry = _entry(directory, tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755)
            layer.addfile(entry)
        for inside, outside in sorted(files.items()):
            entry = _entry(inside, tarfile.REGTYPE, 0o755 if os.access(outside, os.X_OK) else 0o644)
            entry.size = outside.stat().st_size
            with outside.open("rb") as content:
                layer.addfile(entry, content)
        for inside, target in sorted(links.items()):
            entry = _entry(inside, tarfile.SYMTYPE, 0o777)
            entry.linkname = target
            layer.addfile(entry)
    return buffer.getvalue()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name.strip("/"))
    entry.type, entry.mode = kind, mode
    return entry


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = _entry(name, tarfile.REGTYPE, 0o644)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _blob(blob: bytes) -> str:
    return f"blobs/{_digest(blob).replace(':', '/')}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}
