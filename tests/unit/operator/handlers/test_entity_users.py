"""The reconcile of users: when a password is set, on models of the cluster and of the API server."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any, cast

import pytest
from kit.entity_group import Bench, Object
from kit.waiting import HANG_S
from quorate_admin.errors import ErrorCode, ServerError
from quorate_operator.entities.users import SetCredentials
from quorate_operator.gateway.users import UserChange, UsersFacts
from quorate_operator.handlers.entities import group, kind_handlers
from quorate_operator.handlers.entities.kind_handlers import UserHandler
from quorate_operator.models.secrets import FOR_USERS


class Credentials:
    """The SCRAM credentials of a cluster, and the Secret of the user."""

    def __init__(self) -> None:
        self.mechanisms: dict[str, frozenset[str]] = {}
        self.set: list[str] = []
        """The passwords that were set."""
        self.errors: list[Exception | None] = []
        self.password = "first"
        self.reads = 0

    async def observe_users(self, *_: object) -> UsersFacts:
        return UsersFacts(mechanisms=dict(self.mechanisms), acls=None, quotas={})

    async def change_users(
        self, _client: object, changes: Sequence[UserChange]
    ) -> Sequence[Exception | None]:
        return [self._change(change) for change in changes]

    def _change(self, change: UserChange) -> Exception | None:
        assert isinstance(change, SetCredentials)
        if self.errors and (error := self.errors.pop(0)) is not None:
            return error
        self.mechanisms[change.user] = frozenset({change.mechanism})
        self.set.append(change.password)
        return None

    async def get(self, _kind: object, namespace: str, name: str) -> Object:
        """The Secret, whose version changes with its password."""
        self.reads += 1
        return {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": "s",
                "resourceVersion": self.password,
                "labels": {FOR_USERS: "true"},
            },
            "data": {"password": base64.b64encode(self.password.encode()).decode()},
        }


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> Credentials:
    made = Credentials()
    monkeypatch.setattr(kind_handlers, "observe_users", made.observe_users)
    monkeypatch.setattr(kind_handlers, "change_users", made.change_users)
    return made


def create_alice(bench: Bench, handler: UserHandler) -> None:
    """Have the user alice seen."""
    create_user(bench, handler, "alice")


def create_user(bench: Bench, handler: UserHandler, name: str) -> None:
    """Have a KafkaUser seen that takes its password from a Secret, and is removed without any request."""
    authentication = {"type": "scram-sha-512", "secretName": "passwords"}
    body = bench.server.create(name, authentication=authentication, deletionPolicy="Retain")
    body["kind"] = "KafkaUser"
    bench.group.put(body, handler, is_changed=True)


async def test_a_password_is_set_once_and_again_when_its_secret_changes(credentials: Credentials) -> None:
    """The status has the version of the Secret from the pass after."""
    bench, handler = Bench(), UserHandler(cast("Any", credentials))
    create_alice(bench, handler)
    await bench.reconcile()
    assert "secretVersion" not in bench.server.bodies["alice"]["status"]
    await bench.reconcile()
    assert bench.server.bodies["alice"]["status"]["secretVersion"] == "s/first"
    await bench.reconcile()
    assert credentials.set == ["first"]
    credentials.password = "second"
    credentials.errors = [ServerError(ErrorCode.not_controller)]
    for _ in range(4):
        await bench.reconcile()
    assert credentials.set == ["first", "second"]
    assert bench.server.bodies["alice"]["status"]["secretVersion"] == "s/second"
    assert bench.condition("alice", "Ready") == ("True", "AsDesired")


async def test_nothing_is_kept_of_users_that_are_gone(credentials: Credentials) -> None:
    """The handler serves all users for as long as the operator runs."""
    bench, handler = Bench(), UserHandler(cast("Any", credentials))
    create_alice(bench, handler)
    await bench.reconcile()
    assert credentials.set == ["first"]
    bench.group.put(bench.server.delete("alice"), handler, is_changed=True)
    await bench.reconcile()
    async with asyncio.timeout(HANG_S):
        await bench.group.wait_cleared("alice")
    assert not bench.group.remove("alice")
    assert "alice" not in f"{vars(handler)}"


async def test_secrets_of_many_ready_users_are_read_in_turns(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that was changed is set in the end, and one that Kafka lost in the next pass."""
    monkeypatch.setattr(group, "THOROUGH_MAX", 10)
    bench, handler = Bench(), UserHandler(cast("Any", credentials))
    names = [f"user-{number}" for number in range(40)]
    for name in names:
        create_user(bench, handler, name)
    await bench.reconcile()
    await bench.reconcile()
    assert all(bench.condition(name, "Ready") == ("True", "AsDesired") for name in names)
    reads = []
    for _ in range(4):
        before = credentials.reads
        await bench.reconcile()
        reads.append(credentials.reads - before)
    assert sum(reads) == 40
    assert max(reads) < 25
    credentials.password = "second"
    credentials.set.clear()
    for _ in range(6):
        await bench.reconcile()
    assert credentials.set == ["second"] * 40
    credentials.set.clear()
    credentials.mechanisms.pop("user-7")
    await bench.reconcile()
    assert credentials.set == ["second"]
