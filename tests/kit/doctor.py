"""`quorate doctor` as a process: its JSON, and its findings."""

import json
from typing import Any

from kit.membership import quorate


def diagnosed(*bootstrap: str) -> dict[str, Any]:
    """What `doctor -o json` says; its exit code has to agree.

    Raises:
        ConnectionError: it prints no diagnosis, because no node answers.
    """
    ran = quorate("doctor", *bootstrap, "-o", "json")
    if not ran.stdout:
        raise ConnectionError(ran.stderr)
    reported: dict[str, Any] = json.loads(ran.stdout)
    assert ran.returncode == (0 if reported["healthy"] else 1), ran.stdout + ran.stderr
    return reported


def codes(diagnosis: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Code and node of each finding, without notes."""
    return [
        (finding["code"], finding["nodeId"])
        for finding in diagnosis["findings"]
        if finding["severity"] != "note"
    ]


def finding(diagnosis: dict[str, Any], code: str) -> dict[str, Any]:
    """The only finding of a kind."""
    (found,) = (finding for finding in diagnosis["findings"] if finding["code"] == code)
    return dict(found)
