"""What `from quorate_admin import ...` offers."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import quorate_admin

MODULES_OF_DATA = sorted(
    path.stem
    for path in (Path(quorate_admin.__path__[0]) / "types").glob("[a-z]*.py")
    if path.stem != "enums"
)


def _imported_for_type_checkers() -> dict[str, str]:
    tree = ast.parse(Path(quorate_admin.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_name_is_loaded_from_where_type_checkers_find_it() -> None:
    imported = _imported_for_type_checkers()
    assert sorted(imported) == sorted(quorate_admin.__all__)
    for name, module in imported.items():
        assert getattr(quorate_admin, name) is getattr(import_module(module), name), name


@pytest.mark.parametrize("module", MODULES_OF_DATA)
def test_all_public_data_is_exported(module: str) -> None:
    found = import_module(f"quorate_admin.types.{module}")
    classes = {
        name
        for name, value in vars(found).items()
        if isinstance(value, type) and value.__module__ == found.__name__ and not name.startswith("_")
    }
    assert classes <= set(quorate_admin.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'quorate_admin' has no attribute 'AdminKlient'"):
        quorate_admin.AdminKlient  # noqa: B018 - the access is the test
    assert "AdminClient" in dir(quorate_admin)


def test_the_package_loads_nothing_before_a_name_is_used() -> None:
    """No tool's start pays for the export."""
    code = (
        "import sys, quorate_admin\n"
        "print(sorted(name for name in sys.modules if name.startswith(('quorate', 'asyncio', 'kio'))))\n"
        "quorate_admin.AdminError\n"
        "print('quorate_admin.client' in sys.modules, 'asyncio' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "['quorate_admin']\nFalse False\n"
