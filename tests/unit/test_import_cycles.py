"""Modules import each other in one direction, also in type annotations: import-linter looks at imports that run."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


@pytest.mark.parametrize(
    "package", ["quorate_controller", "quorate_admin", "quorate_operator", "pyspark_quorate", "quorate"]
)
def test_no_modules_import_each_other(package: str) -> None:
    graph = grimp.build_graph(package, exclude_type_checking_imports=False)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
