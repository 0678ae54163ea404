"""The limits of connections that a process applies: hosts that have names, and the files that it may open."""

import logging
import resource

import pytest
from quorate_controller.config import ControllerConfig, parse_config
from quorate_controller.server import connection_quotas
from quorate_controller.server.connection_quotas import (
    FILES_KEPT,
    UnknownHostError,
    bounds_of,
)
from quorate_protocol.bounded_http.places import DEFAULT_BOUNDS
from quorate_protocol.file_limit import raise_file_limit


def config(**keys: str) -> ControllerConfig:
    """A controller with these keys, whose dots are underscores."""
    return parse_config(
        {
            "process.roles": "controller",
            "node.id": "3000",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://localhost:9093",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            **{key.replace("_", "."): value for key, value in keys.items()},
        }
    )


async def test_hosts_are_looked_up() -> None:
    """Host names count as the addresses that connections come from."""
    of_host = (
        await bounds_of(config(max_connections_per_ip_overrides="localhost:5,0:0:0:0:0:0:0:9:6"))
    ).of_host
    assert of_host["127.0.0.1"] == 5
    assert of_host["::9"] == 6


async def test_an_unknown_host_ends_the_start() -> None:
    """As Kafka, which would otherwise not apply a limit that is relied on."""
    with pytest.raises(
        UnknownHostError, match=r"max\.connections\.per\.ip\.overrides: nobody\.invalid has no"
    ):
        await bounds_of(config(max_connections_per_ip_overrides="nobody.invalid:5"))


async def test_connections_leave_files_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients can't take the last file descriptor, without which a controller ends."""
    monkeypatch.setattr(connection_quotas, "raise_file_limit", lambda: 1024)
    caplog.set_level(logging.INFO)
    assert (await bounds_of(config(max_connections="500"))).total_max == 500
    assert not caplog.records
    assert (await bounds_of(config(max_connections="5000"))).total_max == 1024 - FILES_KEPT
    assert [record.message for record in caplog.records] == ["connections_bounded_by_open_files"]
    limits = await bounds_of(config(max_connections="500", quorate_http_listener="localhost:8080"))
    assert (limits.total_max, limits.files_max) == (500, 1024 - FILES_KEPT - DEFAULT_BOUNDS.files_max)


def test_the_soft_limit_of_files_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard) - 10, hard))
    try:
        assert raise_file_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
