"""The status page as the operator's process serves it: live, with a token, by the replica that leads."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

from kit.cluster import free_ports
from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, Operated, OperatorProcess
from kit.waiting import eventually

FIRST = CONTROLLERS_FIRST
STREAM_TIMEOUT_S = 60
TOKEN = "open sesame, and close again"
LEADS = "quorate.dev/leads"


def test_the_page_is_live_and_obeys_who_has_the_token(operated: Operated, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    port = free_ports(1)
    operated.create(replicas=1)
    operated.start_operator(
        "--no-leader-election", f"--web=127.0.0.1:{port}", f"--web-token-file={tmp_path / 'token'}"
    )
    operated.wait_settled(FIRST)
    path = f"/clusters/{operated.namespace}/{QUORUM}"
    status, headers, page = _request(port, "GET", path)
    assert status == 200
    assert f"controller-{FIRST}" in page
    assert "default-src 'none'" in headers["content-security-policy"]

    status, _, _ = _request(port, "POST", f"{path}/pause", {"csrf": "guessed"})
    assert status == 403
    status, headers, _ = _request(port, "POST", "/unlock", {"token": TOKEN})
    assert status == 303
    cookie = headers["set-cookie"].partition(";")[0]
    _, _, page = _request(port, "GET", path, cookie=cookie)
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None

    with _stream(port, f"{path}/events") as messages:
        assert "plan" in next(messages)
        status, _, _ = _request(port, "POST", f"{path}/pause", {"csrf": found[1]}, cookie)
        assert status == 303
        assert any("paused" in "".join(parts.values()) for parts in messages), "the stream to tell the pause"
    operated.wait(lambda: operated.condition("Reconciling").get("reason") == "Paused", "the pause")
    operated.annotate(pause=None)
    before = operated.core.read_namespaced_pod(f"{QUORUM}-{FIRST}", operated.namespace).metadata.uid
    operated.wait_settled(FIRST)
    form = {"csrf": found[1], "node": f"{FIRST}"}
    status, _, _ = _request(port, "POST", f"{path}/restart", form, cookie)
    assert status == 303

    def is_restarted() -> bool:
        pods = operated.core.list_namespaced_pod(operated.namespace).items
        return [pod.metadata.uid for pod in pods] not in ([], [before]) and operated.settled(FIRST)

    operated.wait(is_restarted, "the node to be restarted")
    operated.delete()
    operated.wait(lambda: _request(port, "GET", path)[0] == 404, "the page to be gone with its cluster")


def test_the_label_of_the_leader_follows_the_lease(operated: Operated) -> None:
    """The page's Service leads to the replica that knows."""
    for name in ("first", "second"):
        operated.core.create_namespaced_pod(operated.namespace, _pod(name))
    first = _replica(operated, "first")
    operated.wait(lambda: _leaders(operated) == ["first"], "the first to be labelled")
    _replica(operated, "second")
    first.kill()
    operated.core.delete_namespaced_pod("first", operated.namespace, grace_period_seconds=0)
    operated.wait(lambda: _leaders(operated) == ["second"], "the second to be labelled")


def _replica(operated: Operated, name: str) -> OperatorProcess:
    port = free_ports(1)
    operator = operated.start_operator(f"--identity={name}", "--lease-duration=10", f"--web=127.0.0.1:{port}")
    eventually(lambda: _is_up(port), STREAM_TIMEOUT_S, f"{name} to serve its page", operator.events)
    return operator


def _leaders(operated: Operated) -> list[str]:
    pods = operated.core.list_namespaced_pod(operated.namespace, label_selector=f"{LEADS}=true").items
    return sorted(pod.metadata.name for pod in pods)


def _pod(name: str) -> dict[str, object]:
    """The pod of a replica, which runs elsewhere."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "operator", "image": "quorate:test", "securityContext": security}],
        },
    }


def _is_up(port: int) -> bool:
    try:
        return _request(port, "GET", "/")[0] == 200
    except OSError:
        return False


def _request(
    port: int, method: str, path: str, form: dict[str, str] | None = None, cookie: str = ""
) -> tuple[int, dict[str, str], str]:
    """Status, headers in small letters and text."""
    connection = HTTPConnection("127.0.0.1", port, timeout=STREAM_TIMEOUT_S)
    try:
        headers = {"Cookie": cookie}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, urlencode(form) if form is not None else None, headers)
        response = connection.getresponse()
        reported = {name.lower(): value for name, value in response.getheaders()}
        return response.status, reported, response.read().decode()
    finally:
        connection.close()


@contextmanager
def _stream(port: int, path: str) -> Iterator[Iterator[dict[str, str]]]:
    """The messages of a stream of events: the parts of the page that changed."""
    connection = HTTPConnection("127.0.0.1", port, timeout=STREAM_TIMEOUT_S)
    try:
        connection.request("GET", path)
        yield _messages(connection.getresponse())
    finally:
        connection.close()


def _messages(response: HTTPResponse) -> Iterator[dict[str, str]]:
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))
