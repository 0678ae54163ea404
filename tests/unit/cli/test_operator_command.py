"""`quorate operator run`: wrong options are refused before the operator looks for an API server."""

from pathlib import Path

import pytest
from quorate.main import app
from typer.testing import CliRunner


@pytest.mark.parametrize(("content", "length"), [(b"", 0), (b"fifteen letters\n", 15)])
def test_a_short_token_of_the_status_page_is_refused(tmp_path: Path, content: bytes, length: int) -> None:
    """Goal: a token that can be guessed is told at the start, without being shown. Method: an empty file, and one
    character too few.
    """
    file = tmp_path / "token"
    file.write_bytes(content)
    ran = CliRunner().invoke(app, ["operator", "run", f"--web-token-file={file}"], prog_name="quorate")
    told = " ".join(ran.stderr.replace("\u2502", " ").split())
    assert ran.exit_code == 2
    assert f"has {length} characters; at least 16 are needed" in told
    assert "fifteen letters" not in told
