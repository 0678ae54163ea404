"""`quorate delegation-tokens` on a secured cluster: a token's life, and logging in with it."""

import json

import pytest
from kit.java.cluster import JavaCluster
from kit.membership import quorate, refused, succeeded
from kit.waiting import eventually

pytestmark = pytest.mark.integration

TIMEOUT_S = 15
HOUR_MS = 3_600_000


def test_a_token_lives(java_cluster: JavaCluster) -> None:
    admin = java_cluster.client_config("tools-tokens-admin", java_cluster.sasl_properties("admin"))
    server = ("--bootstrap-server", java_cluster.sasl_servers)
    at = ("delegation-tokens", *server, "--command-config", str(admin))
    create = ("--create", "--max-life-time-period", str(HOUR_MS), "--renewer-principal", "User:alice")
    token = json.loads(succeeded(quorate(*at, *create, "-o", "json")))
    assert token["owner"] == "User:admin"
    assert token["renewers"] == ["User:alice"]
    assert token["maxTimestampMs"] - token["issueTimestampMs"] == HOUR_MS

    def described() -> str:
        text = quorate(*at, "--describe", "--owner-principal", "User:admin").stdout
        return text if token["tokenId"] in text else ""

    assert token["hmac"] in eventually(described, TIMEOUT_S, "the token in the list")
    login = java_cluster.sasl_properties(token["tokenId"], token["hmac"], "SCRAM-SHA-256", 'tokenauth="true"')
    file = java_cluster.client_config("tools-tokens-user", login)
    list_topics = ("topics", *server, "--command-config", str(file), "--list")
    eventually(
        lambda: quorate(*list_topics).returncode == 0,
        TIMEOUT_S,
        "a log-in with the token",
        lambda: quorate(*list_topics),
    )
    renew = ("--renew", "--hmac", token["hmac"], "--renew-time-period", "60000")
    assert "Completed renew operation. New expiry date : 20" in succeeded(quorate(*at, *renew))
    expire = ("--expire", "--hmac", token["hmac"], "--expiry-time-period", "-1")
    assert "Completed expire operation. New expiry date : 20" in succeeded(quorate(*at, *expire))
    eventually(lambda: not described(), TIMEOUT_S, "the token to be gone")
    eventually(lambda: quorate(*list_topics).returncode == 1, TIMEOUT_S, "a log-in to be refused")
    assert "DELEGATION_TOKEN_NOT_FOUND" in refused(quorate(*at, *renew))


def test_tokens_are_not_for_the_unknown(
    java_cluster: JavaCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The cluster's reason reaches the person."""
    file = tmp_path_factory.mktemp("tokens") / "empty.properties"
    file.write_text("")
    at = ("--bootstrap-server", java_cluster.bootstrap_servers, "--command-config", str(file))
    reported = refused(quorate("delegation-tokens", *at, "--create", "--max-life-time-period", "-1"))
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in reported


def test_a_token_lives_at_stock_controllers(java_cluster: JavaCluster) -> None:
    """No broker is needed for a token (KIP-919), and no client gets one without authentication."""
    admin = java_cluster.client_config("tools-tokens-direct", java_cluster.sasl_properties("admin"))
    controllers = ("--bootstrap-controller", java_cluster.sasl_controllers)
    at = ("delegation-tokens", *controllers, "--command-config", str(admin))
    create = ("--create", "--max-life-time-period", str(HOUR_MS))
    token = json.loads(succeeded(quorate(*at, *create, "-o", "json")))
    assert (token["owner"], token["maxTimestampMs"] - token["issueTimestampMs"]) == ("User:admin", HOUR_MS)
    renew = ("--renew", "--hmac", token["hmac"], "--renew-time-period", "60000")
    # Stock controllers find a token once their published metadata has it.
    eventually(
        lambda: quorate(*at, *renew).returncode == 0, TIMEOUT_S, "a renewal", lambda: quorate(*at, *renew)
    )
    reported = refused(quorate(*at, "--describe"))
    assert "no controller of the cluster serves DescribeDelegationToken" in reported
    assert "--bootstrap-server" in reported
    succeeded(quorate(*at, "--expire", "--hmac", token["hmac"], "--expiry-time-period", "-1"))
    empty = java_cluster.client_config("tools-tokens-empty", {})
    plain = ("--bootstrap-controller", java_cluster.bootstrap_controllers, "--command-config", str(empty))
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused(quorate("delegation-tokens", *plain, *create))
