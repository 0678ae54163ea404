"""Options of the metadata shell."""

import pytest
from kit.tool_runner import run_tool


@pytest.mark.parametrize("controllers", ["--bootstrap-controller", "-C", "-q"])
@pytest.mark.parametrize("config", ["--command-config", "-c", "--config"])
async def test_options_have_the_names_of_kip_919_too(controllers: str, config: str) -> None:
    ran = await run_tool("metadata-shell", controllers, "localhost:1", config, "/no/such/file", "ls")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "error: --command-config /no/such/file: No such file or directory\n" in ran.stderr


async def test_brokers_are_refused_with_the_option_to_use() -> None:
    ran = await run_tool("metadata-shell", "--bootstrap-server", "localhost:1", "ls")
    assert ran.exit_code == 2
    text = " ".join(ran.stderr.split())
    assert "brokers do not serve the metadata log: give --bootstrap-controller" in text
