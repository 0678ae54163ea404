"""Which test runs when, and beside which others: a pytest plugin that marks tests from the tables below.

| target | what it runs | expression |
|---|---|---|
| `make test` | unit, property, golden, simulation, and smoke tests on real parts | `quick` |
| `make test-rungs` | the other tests on real parts; `.ci/run` runs both | `not quick and not nightly` |
| `make nightly` | what takes longest or depends on timing | `nightly` |

A row of a table is a node id, or the beginning of one up to a `/`, `::`, `[` or a word. A row that matches no test of
a file that was collected whole fails the run, so that a renamed test does not leave its tier unnoticed.

With `--dist loadgroup`, tests that share a real part run in one process, and so do the tests of a file.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

FAST = ("tests/unit/", "tests/property/", "tests/golden/", "tests/simulation/")
"""Folders whose tests run in `make test` unless a table says otherwise."""

RUNGS = "not quick and not nightly"
"""What `make test-rungs` runs, as an expression of marks."""

_PARITY = "tests/integration/parity/test_parity.py::test_same_as_kafka"
_FORMATS = (
    "tests/integration/storage/test_foreign_directories.py"
    "::test_what_was_formatted_is_what_the_cluster_begins_with"
)
SMOKE = (
    # `quorate play`; stock broker, tools and clients; a killed leader
    "tests/integration/test_play.py::test_what_play_prints_works_and_survives_a_stop",
    "tests/integration/test_play.py::test_the_active_controller_is_replaced_and_comes_back",
    "tests/integration/test_client_libraries.py",
    "tests/integration/test_failures_of_nodes.py::test_killing_the_active_controller_loses_nothing",
    # what tools, doctor, play and operator say after a power cut
    "tests/integration/test_power_cut.py::test_what_is_said_is_true[smoke]",
    # Java and Python controllers in one quorum
    "tests/integration/test_mixed_quorums.py::test_leadership_passes_both_ways_by_resignation_and_by_death",
    # a directory that Kafka formatted
    f"{_FORMATS}[dynamic-4.4.0-at-4.4-Quorate]",
    # each tool beside Kafka's: on Python controllers, or where it takes an authorizer and SASL, on stock Kafka
    f"{_PARITY}[acls-topic-java-server]",
    f"{_PARITY}[delegation-tokens-life-of-a-token-java-server]",
    f"{_PARITY}[broker-api-versions-all-python-server]",
    f"{_PARITY}[cluster-endpoints-python-controller]",
    f"{_PARITY}[configs-alter-topic-python-server]",
    f"{_PARITY}[features-describe-python-server]",
    f"{_PARITY}[leader-election-preferred-from-file-python-server]",
    f"{_PARITY}[metadata-quorum-replication-python-server]",
    f"{_PARITY}[metadata-shell-tree_.image.topics-shell-server]",
    f"{_PARITY}[reassign-partitions-generate-python-server]",
    f"{_PARITY}[topics-create-with-configs-python-server]",
    # the lake
    "tests/pipeline/jobs/test_ingesting.py::test_a_directory_becomes_a_lake",
    # pages in Chromium
    "tests/browser/test_report.py::test_it_fits_and_says_nothing_on_the_console",
    "tests/browser/test_status_page.py::test_it_changes_while_the_cluster_does",
)
"""Tests on real parts that `make test` runs: one story or a few for each subsystem."""

_SIMULATION = "tests/simulation"
_OPERATOR = "tests/kubernetes/operator"
NIGHTLY = {
    f"{_SIMULATION}/test_simulation.py::test_seeds_keep_all_promises_and_try_everything": "200 seeds",
    f"{_SIMULATION}/test_membership.py::test_an_operator_gets_the_voters_that_it_wants_whatever_breaks": "200 seeds",
    f"{_OPERATOR}/test_operators_that_die.py": "kills an operator after each of its steps",
    f"{_OPERATOR}/test_operators_that_die_draining.py": "kills an operator after each of its steps",
    f"{_OPERATOR}/test_operators_that_die_rebalancing.py": "kills an operator after each of its steps",
    f"{_OPERATOR}/test_operators_that_die_recovering.py": "kills an operator after each of its steps",
    f"{_OPERATOR}/test_operators_that_die_renaming.py": "the same; failed once on a loaded machine",
    f"{_OPERATOR}/test_windows.py": "waits up to a minute and a half for a window to open",
    "tests/integration/parity/test_random_requests.py"
    "::test_same_answers_and_same_metadata_as_kafka[long]": "2,000 requests to each of two controllers",
    "tests/integration/parity/test_same_scripts.py": "ten nodes, seven of them JVMs; two to four minutes",
    "tests/integration/play/test_moved_to_tls.py"
    "::test_a_running_cluster_moves_from_plaintext_to_tls[python]": "the rolls of the mixed quorum once more",
    "tests/integration/play/test_release_upgrade.py": "three rolls of six nodes, four of them JVMs",
    "tests/integration/play/test_rotated_passwords.py"
    "::test_nodes_change_their_passwords_one_by_one[SCRAM-SHA-512]": "the rolls of PLAIN once more",
    "tests/integration/test_release.py"
    "::test_the_plugin_needs_nothing_but_its_archive": "installs forty packages from an index",
    "tests/integration/test_hostile_clients.py": "attackers take the processors; elections depend on time",
    "tests/integration/test_quotas_and_credentials.py"
    "::test_a_broker_that_starts_knows_the_users_that_were_not_deleted": "restarts a broker",
    "tests/integration/test_rotation_of_mixed_clusters.py": "23 restarts of five nodes, three of them JVMs",
    "tests/integration/test_soak.py": "needs root, and makes namespaces of the network",
    "tests/kubernetes/kind/": "kind: builds images, three machines, about an hour",
}
"""Tests that only `make nightly` runs, each with its reason."""

_INTEGRATION = "tests/integration"
SHARED = {
    "shared_cluster": (
        f"{_INTEGRATION}/admin/test_operations_python.py",
        f"{_INTEGRATION}/test_client_libraries.py",
        f"{_INTEGRATION}/test_export.py",
        f"{_INTEGRATION}/test_stock_tools.py",
    ),
    "java_cluster": (
        f"{_INTEGRATION}/admin/",
        f"{_INTEGRATION}/tools/test_acls.py",
        f"{_INTEGRATION}/tools/test_configs.py",
        f"{_INTEGRATION}/tools/test_delegation_tokens.py",
        f"{_INTEGRATION}/tools/test_reassign_partitions.py",
        f"{_INTEGRATION}/tools/test_topics.py",
        f"{_INTEGRATION}/parity/test_documentation.py",
        f"{_INTEGRATION}/parity/test_support_java_cluster.py",
    ),
    "gatekeeper": (f"{_INTEGRATION}/gateway/",),
    "spark": (
        *("tests/pipeline/jobs/test_ingesting.py", "tests/pipeline/jobs/test_tailing.py"),
        "tests/pipeline/jobs/test_variants.py",
        "tests/pipeline/source/test_source_in_spark.py",
        "tests/pipeline/test_rows.py",
    ),
    "api_server": (
        *("tests/kubernetes/chart/", "tests/kubernetes/commands/", "tests/kubernetes/crds/"),
        "tests/kubernetes/test_api_server.py",
    ),
    "operators": ("tests/kubernetes/operator/",),
}
"""Tests that run in one process, because they share what a fixture starts; the first row counts."""


LONGEST = (
    "tests/pipeline/jobs/test_ingesting.py",
    "tests/kubernetes/operator/",
    f"{_INTEGRATION}/play/test_five_edits.py",
    f"{_INTEGRATION}/play/test_moved_to_tls.py",
    f"{_INTEGRATION}/play/test_rotated_passwords.py",
    f"{_INTEGRATION}/play/test_colocated_controllers.py",
    "tests/pipeline/ledger/",
    "tests/pipeline/stream/",
    f"{_INTEGRATION}/test_play.py",
    f"{_INTEGRATION}/membership/",
    f"{_INTEGRATION}/test_mixed_quorums.py",
    "tests/pipeline/",
)
"""What begins first, so that no process is left alone with it at the end."""


def tier_of(node_id: str) -> str | None:
    """The marker of a test: `quick`, `nightly`, or none for what `make test-rungs` runs."""
    if _in(NIGHTLY, node_id):
        return "nightly"
    if node_id.startswith(FAST) or _in(SMOKE, node_id):
        return "quick"
    return None


def _in(rows: Iterable[str], node_id: str) -> bool:
    return any(_is_row(row, node_id) for row in rows)


def _is_row(row: str, node_id: str) -> bool:
    return node_id.startswith(row) and (
        len(row) == len(node_id) or not row[-1].isalnum() or node_id[len(row)] in ":[_"
    )


def group_of(node_id: str) -> str:
    """What tests that run in one process have in common: a part that they share, or their file."""
    if node_id.startswith(_PARITY):  # the cluster is a parameter
        return "java_cluster" if "-java-" in node_id else "shared_cluster"
    if node_id.startswith(("tests/simulation/", "tests/property/")):
        return node_id
    shared = (name for name, rows in SHARED.items() if _in(rows, node_id))
    return next(shared, node_id.partition("::")[0])


def _order(item: pytest.Item) -> int:
    """What takes long first; what is fast fills the processes at the end."""
    if item.nodeid.startswith(FAST):
        return len(LONGEST) + (2 if item.nodeid.startswith("tests/unit/") else 1)
    return next((number for number, row in enumerate(LONGEST) if item.nodeid.startswith(row)), len(LONGEST))


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "quick: `make test` runs it; see tests/kit/tiers.py")
    config.addinivalue_line("markers", "nightly: `make nightly` alone runs it; see tests/kit/tiers.py")


class _Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Sends the tests of a group to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Groups | None:
    """Group by `group_of`: xdist's own groups are marks, which it writes where pytest 9.2 no longer looks."""
    return _Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave folders out of `make test-rungs` that it runs nothing of: thousands of tests take long to collect."""
    if config.getoption("markexpr") != RUNGS:
        return None
    folder = f"{collection_path.relative_to(config.rootpath).as_posix()}/"
    return True if folder in FAST else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, before `-m` reads it."""
    for item in items:
        if (tier := tier_of(item.nodeid)) is not None:
            item.add_marker(tier)
        if item.nodeid.startswith(FAST):  # they depend on no other process: a second attempt would hide a bug
            item.add_marker(pytest.mark.flaky(reruns=0))
    if not any("::" in argument for argument in config.args) and not config.getoption("keyword"):
        _check_rows(config.rootpath, [item.nodeid for item in items])
    items.sort(key=_order)


def _check_rows(root: Path, node_ids: list[str]) -> None:
    files = {node_id.partition("::")[0] for node_id in node_ids}
    stale = [
        row
        for row in (*SMOKE, *NIGHTLY)
        if (row.partition("::")[0] in files and not any(_is_row(row, node_id) for node_id in node_ids))
        or not any(root.glob(f"{row.partition('::')[0].rstrip('/')}*"))
    ]
    if stale:
        raise pytest.UsageError(f"tests/kit/tiers.py names tests that do not exist: {', '.join(stale)}")
