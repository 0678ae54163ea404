"""Build the images; publish images, chart and files of a release, each with its signature.

`build` makes the images on this machine, with docker alone; they have the compiled codec if dist/native has a wheel
of it. `images` needs its wheels for all platforms there. `login` takes the token of --user from the variable
REGISTRY_TOKEN. The others need docker with buildx, cosign, helm and gh; cosign signs keyless, with the identity of
the workflow that runs it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dist import CHECKSUMS, TARGET, write_checksums
from quorate_operator.resources.facts import PUBLISHED
from quorate_protocol.kafka.releases import RELEASES
from version import version

ROOT = Path(__file__).parents[1]
PLATFORMS = ("linux/amd64", "linux/arm64")
WHEELS = ROOT / "dist" / "native"
REPOSITORY = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+")
_DIGEST = re.compile(r"^Digest: (sha256:[0-9a-f]{64})$", re.MULTILINE)


class PublishError(Exception):
    """Something can't be published; the text says what and why."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image of the project: its name, Dockerfile and tags, and the build arguments.

    `has_codec` says whether it has the compiled codec, if there is a wheel of it.
    """

    name: str
    dockerfile: str
    tags: tuple[str, ...]
    arguments: dict[str, str] = field(default_factory=dict)
    has_codec: bool = False

    @property
    def label(self) -> str:
        """Its name and first tag, as a part of a file's name."""
        return f"{self.name}-{self.tags[0]}"

    def options(self, registry: str) -> list[str]:
        """The options of each build."""
        arguments = [f"--build-arg={name}={value}" for name, value in self.arguments.items()]
        tags = [f"--tag={registry}/{self.name}:{tag}" for tag in self.tags]
        return [f"--file={self.dockerfile}", *arguments, *tags]


def images() -> list[Image]:
    """Every image: ours in the version of the distribution, brokers in each release of Kafka that is supported.

    The tag of a broker's image is the release, as charts ask for; the other one says which Quorate it came with, and
    does not move.
    """
    brokers = [
        Image(
            name="quorate-broker",
            dockerfile="docker/broker/Dockerfile",
            tags=(release, f"{release}-{version()}"),
            arguments={"KAFKA_VERSION": release},
        )
        for release in RELEASES
    ]
    return [
        Image(name="quorate", dockerfile="Dockerfile", tags=(version(),), has_codec=True),
        Image(name="quorate-lake", dockerfile="docker/lake/Dockerfile", tags=(version(),), has_codec=True),
        *brokers,
    ]


def build(image: Image, registry: str) -> None:
    """Build an image for the platform of this machine. Raises PublishError."""
    if image.has_codec and not any(WHEELS.glob("*.whl")):
        print(f"{image.name} runs the codec in Python: dist/native has no wheel", file=sys.stderr)
    _run("docker", "build", *image.options(registry), ".")


def publish_image(image: Image, registry: str, target: Path) -> None:
    """Build and push an image for all platforms, sign it, and write its bill of materials. Raises PublishError."""
    metadata = target / f"{image.label}.metadata.json"
    # A platform without a wheel would be published with the slower codec, and nothing would say so.
    required = ["--build-arg=NATIVE=required"] if image.has_codec else []
    _run(
        "docker",
        "buildx",
        "build",
        f"--platform={','.join(PLATFORMS)}",
        "--sbom=true",
        "--provenance=mode=max",
        "--push",
        f"--metadata-file={metadata}",
        *image.options(registry),
        *required,
        ".",
    )
    digest = json.loads(metadata.read_text())["containerimage.digest"]
    metadata.unlink()
    published = f"{registry}/{image.name}@{digest}"
    _run("cosign", "sign", "--yes", published)
    bill = _run("docker", "buildx", "imagetools", "inspect", published, "--format", "{{ json .SBOM }}")
    (target / f"{image.label}.sbom.json").write_text(bill)


def publish_chart(chart: Path, registry: str) -> None:
    """Push the chart as an OCI artifact, and sign it. Raises PublishError."""
    printed = _run("helm", "push", f"{chart}", f"oci://{registry}/charts")
    found = _DIGEST.search(printed)
    if found is None:
        raise PublishError(f"helm push printed no digest: {printed!r}")
    _run("cosign", "sign", "--yes", f"{registry}/charts/quorate@{found[1]}")


def log_in(registry: str, user: str, token: str) -> None:
    """Log docker, which cosign follows, and helm in at the host of a registry. Raises PublishError."""
    host = registry.partition("/")[0]
    for program in (["docker", "login"], ["helm", "registry", "login"]):
        _run(*program, host, f"--username={user}", "--password-stdin", stdin=token)


def publish_files(directory: Path, tag: str, notes: Path) -> None:
    """Sign the checksums of all files of a directory, and make a release of GitHub with them. Raises PublishError."""
    write_checksums(directory)
    bundle = directory / f"{CHECKSUMS}.sigstore.json"
    _run("cosign", "sign-blob", "--yes", f"--bundle={bundle}", f"{directory / CHECKSUMS}")
    files = [str(path) for path in sorted(directory.iterdir())]
    _run("gh", "release", "create", tag, "--verify-tag", f"--title={tag}", f"--notes-file={notes}", *files)


def _run(*command: str, stdin: str | None = None) -> str:
    """What a program prints on stdout and stderr; helm prints a digest on either, depending on its version."""
    print("+", " ".join(command), file=sys.stderr, flush=True)
    try:
        ran = subprocess.run(
            command,
            cwd=ROOT,
            input=stdin,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except OSError as error:
        raise PublishError(f"{command[0]} does not run: {error}") from error
    if ran.returncode:
        raise PublishError(f"{command[0]} failed with exit code {ran.returncode}: {ran.stdout}")
    return ran.stdout


def _chosen(only: str | None) -> Sequence[Image]:
    chosen = [image for image in images() if only in (None, image.name)]
    if not chosen:
        known = ", ".join(sorted({image.name for image in images()}))
        raise PublishError(f"there is no image {only!r}; there are: {known}")
    return chosen


def _perform(given: argparse.Namespace) -> None:
    if not REPOSITORY.fullmatch(given.registry):
        raise PublishError(
            f"--registry: {given.registry!r}: must be a host and a path in small letters, like {PUBLISHED}"
        )
    if given.what == "build":
        for image in _chosen(given.only):
            build(image, given.registry)
    elif given.what == "login":
        token = os.environ.get("REGISTRY_TOKEN", "")
        if not given.user or not token:
            raise PublishError("login needs --user and the variable REGISTRY_TOKEN")
        log_in(given.registry, given.user, token)
    elif given.what == "images":
        given.directory.mkdir(parents=True, exist_ok=True)
        for image in _chosen(given.only):
            publish_image(image, given.registry, given.directory)
    elif given.what == "chart":
        publish_chart(given.directory / f"quorate-chart-{version()}.tgz", given.registry)
    else:
        publish_files(given.directory, f"v{version()}", given.notes)


def main(arguments: Iterable[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("build", "login", "images", "chart", "files"))
    parser.add_argument("--registry", default=PUBLISHED, help="of images and chart; default: %(default)s")
    parser.add_argument("--user", metavar="NAME", help="of `login`")
    parser.add_argument("--only", metavar="IMAGE", help="default: all images")
    parser.add_argument("--directory", type=Path, default=TARGET, help="of files; default: dist/release")
    parser.add_argument(
        "--notes", type=Path, default=ROOT / "dist" / "notes.md", help="of `files`: the text of the release"
    )
    try:
        _perform(parser.parse_args(None if arguments is None else list(arguments)))
    except (PublishError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
