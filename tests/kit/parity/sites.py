"""The clusters that tools are compared on, as the templates of cases see them."""

import shutil
from pathlib import Path

import pytest
from kit.cluster import Cluster
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools
from kit.parity.harness import TOOLS, Site, site_of
from quorate_controller.storage.bootstrap import read_bootstrap_records
from quorate_controller.storage.os_filesystem import OsFileSystem

_FIXTURES = {"java": "java_cluster", "python": "shared_cluster", "shell": "shell_cluster"}
QUICK = "default.api.timeout.ms=1500\nrequest.timeout.ms=1000\n"


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Client properties: what is allowed anywhere, and what gives up soon."""
    directory = tmp_path_factory.mktemp("parity")
    (directory / "client.properties").write_text("client.id=parity\nrequest.timeout.ms=20000\n")
    (directory / "quick.properties").write_text(QUICK)
    return {"client": str(directory / "client.properties"), "quick": str(directory / "quick.properties")}


@pytest.fixture(scope="session")
def sites() -> dict[tuple[str, str], Site]:
    """The sites that have been looked at."""
    return {}


@pytest.fixture
def site(
    request: pytest.FixtureRequest,
    sites: dict[tuple[str, str], Site],
    files: dict[str, str],
    cluster: str,
    at: str,
) -> Site:
    """The cluster that a parameter set asks for; it is started when it is first needed."""
    if (cluster, at) not in sites:
        sites[cluster, at] = _new_site(request, files, cluster, at)
    return sites[cluster, at]


def _new_site(request: pytest.FixtureRequest, files: dict[str, str], cluster: str, at: str) -> Site:
    running: Cluster = request.getfixturevalue(_FIXTURES[cluster])
    tools: JavaTools = request.getfixturevalue("java_tool")
    directory: Path = request.getfixturevalue("tmp_path_factory").mktemp(f"parity-{cluster}")
    values = {**files, **_metadata(running, tools, directory)}
    if isinstance(running, JavaCluster):
        controller = running.layout.node(running.controllers[0])
        values |= {
            "controller_properties": str(running.layout.config_file(controller)),
            "admin": str(running.client_config("parity-admin", running.sasl_properties("admin"))),
            "sasl_server": running.sasl_servers.split(",")[0],
        }
    return site_of(cluster, running, at, values)


def _metadata(cluster: Cluster, tools: JavaTools, directory: Path) -> dict[str, str]:
    """Copy a controller's log, with a few topics in it, and the checkpoint that it began with."""
    topic = f"{directory.name}-topic"
    where = ("--bootstrap-server", cluster.address(cluster.brokers[0]))
    tools(TOOLS["topics"].main_class, *where, "--create", "--topic", topic, "--partitions", "2").succeeded()
    config = ("--alter", "--topic", topic, "--add-config", "flush.ms=77")
    tools(TOOLS["configs"].main_class, *where, *config).succeeded()
    began_with = read_bootstrap_records(OsFileSystem(), cluster.data(cluster.controllers[0])).path
    assert began_with is not None
    files = {
        "log": min(cluster.metadata(cluster.await_quorum().leader_id).glob("*.log")),
        "checkpoint": began_with,
    }
    copies = directory / "data" / "copies"  # Kafka's shell locks the directory above the one of the file
    copies.mkdir(parents=True)
    return {name: str(shutil.copy(file, copies / file.name)) for name, file in files.items()}
