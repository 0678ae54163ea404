"""What the commands for clusters ask of an API server, and what they say when it does not do it."""

import json
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from quorate.clusters.api import ClustersApi, default_namespace
from quorate.console import CommandError

BASE = "/apis/quorate.dev/v1alpha1/namespaces/kafka"


class ScriptedApi(BaseHTTPRequestHandler):
    """An API server with the responses of a test by method and path; records the requests."""

    scripted: dict[tuple[str, str], list[tuple[int, Any]]]
    asked: list[tuple[str, str, dict[str, list[str]], Any]]

    def _respond(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.asked.append((self.command, url.path, parse_qs(url.query), body))
        responses = self.scripted.get((self.command, url.path), [(404, "404 page not found\n")])
        status, content = responses.pop(0) if len(responses) > 1 else responses[0]
        text = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PATCH = _respond  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server:
    """A server in a thread, and the commands' API on it."""

    def __init__(self, directory: Path) -> None:
        handler = type("Handler", (ScriptedApi,), {"scripted": {}, "asked": []})
        self.scripted, self.asked = handler.scripted, handler.asked  # type: ignore[attr-defined]
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.host = f"http://127.0.0.1:{self.server.server_port}"
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "clusters": [{"name": "one", "cluster": {"server": self.host}}],
                    "users": [{"name": "one", "user": {"token": "secret"}}],
                    "contexts": [
                        {"name": "one", "context": {"cluster": "one", "user": "one", "namespace": "kafka"}}
                    ],
                    "current-context": "one",
                }
            )
        )

    @property
    def api(self) -> ClustersApi:
        """As a command makes it."""
        return ClustersApi(kubeconfig=self.kubeconfig, context=None, namespace="kafka")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server without any response yet."""
    made = Server(tmp_path)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def resource(name: str) -> dict[str, Any]:
    """A resource of this name."""
    return {
        "metadata": {"name": name, "namespace": "kafka", "resourceVersion": "7"},
        "spec": {"replicas": 3, "nodeIds": {"first": 3000}},
    }


def page(*names: str, position: str = "") -> tuple[int, Any]:
    """One page of a list."""
    metadata = {"resourceVersion": "9"} | ({"continue": position} if position else {})
    return 200, {"metadata": metadata, "items": [resource(name) for name in names]}


def test_a_long_list_is_read_in_pages(server: Server) -> None:
    """Every cluster is found however many there are."""
    server.scripted["GET", f"{BASE}/kafkacontrollers"] = [page("a", position="then"), page("b")]
    server.scripted["GET", f"{BASE}/kafkabrokers"] = [page()]
    assert [cluster.name for cluster in server.api.clusters()] == ["a", "b"]
    queries = [query for _, path, query, _ in server.asked if path.endswith("kafkacontrollers")]
    assert queries == [{"limit": ["500"]}, {"limit": ["500"], "continue": ["then"]}]


def test_a_change_is_made_of_what_was_read(server: Server) -> None:
    """A concurrent edit is not overwritten."""
    server.scripted["GET", f"{BASE}/kafkacontrollers"] = [page("quorum")]
    server.scripted["GET", f"{BASE}/kafkabrokers"] = [page()]
    path = f"{BASE}/kafkacontrollers/quorum"
    server.scripted["PATCH", path] = [(200, resource("quorum")), (409, {"message": "it was changed"})]
    controllers = server.api.cluster("quorum").controllers
    server.api.change(controllers, {"metadata": {"annotations": {"a": "b"}}})
    changed = {"metadata": {"annotations": {"a": "b"}, "resourceVersion": "7"}}
    query = {"fieldManager": ["kubectl-quorate"], "fieldValidation": ["Strict"]}
    assert server.asked[-1] == ("PATCH", path, query, changed)
    with pytest.raises(CommandError, match="it was changed by someone else at the same time"):
        server.api.change(controllers, {})


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ((404, "404 page not found\n"), "has no quorate.dev/v1alpha1: install the CRDs"),
        ((403, {"reason": "Forbidden", "message": "not for you"}), "refused: not for you"),
        ((502, "a proxy"), "refused: HTTP status 502: b'a proxy'"),
    ],
)
def test_a_refusal_says_what_to_do(server: Server, response: tuple[int, Any], expected: str) -> None:
    server.scripted["GET", f"{BASE}/kafkacontrollers"] = [response]
    with pytest.raises(CommandError) as refused:
        server.api.clusters()
    assert expected in str(refused.value)
    assert server.host in str(refused.value)


def test_a_server_that_can_not_be_reached(tmp_path: Path) -> None:
    gone = Server(tmp_path)
    gone.server.server_close()
    with pytest.raises(CommandError, match="does not answer"):
        gone.api.clusters()
    missing = tmp_path / "missing"
    with pytest.raises(
        CommandError, match=f"no way to a Kubernetes API server: there is no kubeconfig {missing};"
    ):
        ClustersApi(kubeconfig=missing, context=None, namespace="kafka")


def test_without_a_kubeconfig_one_line_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The library's warnings do not stand before the error."""
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert default_namespace(None, None) == "default"
        with pytest.raises(CommandError, match=f"kubeconfig {first}:{second}; Service host/port is not set"):
            ClustersApi(kubeconfig=None, context=None, namespace="kafka")
        with pytest.raises(CommandError, match="no service account is used"):
            ClustersApi(kubeconfig=None, context="other", namespace="kafka")
    assert (capfd.readouterr().err, caplog.text) == ("", "")
    server = Server(tmp_path)
    server.server.server_close()
    server.kubeconfig.rename(second)
    assert default_namespace(None, None) == "kafka"


def test_the_namespace_is_that_of_the_context(server: Server, tmp_path: Path) -> None:
    assert default_namespace(server.kubeconfig, None) == "kafka"
    assert default_namespace(server.kubeconfig, "other") == "default"
    assert default_namespace(tmp_path / "missing", None) == "default"
