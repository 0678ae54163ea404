"""A cluster of kind with the images and the chart of this project, shared by all tests."""

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack

import pytest
from kit.local_kubernetes.docker_host import DockerHost, docker_host
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.images import BROKER, QUORATE, build_images
from kit.local_kubernetes.kind_cluster import ZONES, Family, KindCluster
from kit.operators.installation import Installation
from kit.requirements import missing

_LOG = logging.getLogger(__name__)


def _progress(text: str) -> None:
    _LOG.info(text)


@pytest.fixture(scope="session")
def kind_docker() -> Iterator[DockerHost]:
    """A Docker that has our images. Skips where it is missing or not required."""
    if "kind" not in os.environ.get("QUORATE_REQUIRE", "").split(","):
        pytest.skip("takes some ten minutes and a Docker daemon: QUORATE_REQUIRE=kind runs it")
    with ExitStack() as stack:
        try:
            docker = docker_host(os.environ)
            stack.callback(docker.close)
            build_images(docker, os.environ, _progress)
        except LocalKubernetesError as error:
            missing("kind", f"{error}")
        yield docker


@pytest.fixture(scope="session")
def kind_cluster(kind_docker: DockerHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KindCluster]:
    """One control plane and two workers that have our images."""
    with ExitStack() as stack:
        yield _cluster(stack, kind_docker, tmp_path_factory, (None, None))


@pytest.fixture(scope="module")
def cluster_in_zones(
    kind_docker: DockerHost, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KindCluster]:
    """One control plane, and three workers in the zones a, b and c that have our images; it goes with the file."""
    with ExitStack() as stack:
        yield _cluster(stack, kind_docker, tmp_path_factory, ZONES)


@pytest.fixture(scope="module")
def ipv6_cluster(kind_docker: DockerHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KindCluster]:
    """One control plane and two workers with addresses of IPv6 alone, that have our images; it goes with the file."""
    with ExitStack() as stack:
        yield _cluster(stack, kind_docker, tmp_path_factory, (None, None), family="ipv6")


def _cluster(
    stack: ExitStack,
    docker: DockerHost,
    directories: pytest.TempPathFactory,
    zones: Sequence[str | None],
    *,
    family: Family = "ipv4",
) -> KindCluster:
    try:
        cluster = KindCluster(docker, directories.mktemp("kind"), os.environ, _progress, zones, family=family)
        stack.enter_context(cluster)
        cluster.load(QUORATE, BROKER)
    except LocalKubernetesError as error:
        missing("kind", f"{error}")
    return cluster


@pytest.fixture(scope="module")
def story(kind_cluster: KindCluster) -> Iterator[Installation]:
    """The installation of a story, as the previous test left it. Its cluster is deleted at the end of the story."""
    installation = Installation(kind_cluster)
    yield installation
    installation.remove()


def _goes_on(item: pytest.Item) -> bool:
    """Whether each test of a file continues where the one before ended."""
    return item.nodeid.startswith("tests/kubernetes/kind/")


_FAILED = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember which test of a file failed."""
    report = yield
    assert item.parent is not None
    if report.failed and _goes_on(item):
        item.parent.stash.setdefault(_FAILED, item.name)
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test when one before it in its file failed."""
    assert item.parent is not None
    if not _goes_on(item):
        return
    if failed := item.parent.stash.get(_FAILED, None):
        pytest.skip(f"goes on where {failed} failed")
