"""Pods and configurations of brokers whose clients log in with tokens (OAUTHBEARER)."""

import subprocess
from pathlib import Path

import pytest
from kit.desired_cluster import Cluster, Make
from quorate_controller.config.listener_sasl import parse_listener_sasl
from quorate_operator.models.secrets import Secret
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.pods import node_pod
from quorate_protocol.properties import parse_properties
from quorate_protocol.security.oauth import ALLOWED_URLS

CONTROLLERS = (
    "listeners: [{name: CONTROLLER, protocol: SASL_SSL, tls: {secretName: tls}, "
    "sasl: {username: node, secretName: login}}]"
)
LISTENER = "listener.name.clients.oauthbearer"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ISSUER = "issuer: 'https://sso.example.com', audiences: [kafka, shop]"
BY_URL = f"jwksUrl: 'https://sso.example.com/keys', {ISSUER}"
TRUSTING = f"trustedSecretName: issuer, {BY_URL}"
BY_FILE = f"jwksSecretName: issuer, {ISSUER}, subjectClaim: azp, clockSkewSeconds: 5"
SECRETS = {
    "tls": Secret(values={"tls.crt": "hidden-crt", "tls.key": "hidden-key", "ca.crt": "hidden-ca"}),
    "login": Secret(values={"node": "hidden-node"}),
    "issuer": Secret(values={"ca.crt": "hidden-issuer-ca", "jwks.json": "hidden-keys"}),
}


def of_controllers(make: Make, oauth: str, *, implementation: str) -> Cluster:
    """A cluster whose controllers accept tokens beside the passwords of nodes."""
    with_tokens = f"mechanisms: [PLAIN, OAUTHBEARER], reauthentication: 5m, oauth: {{{oauth}}}, username"
    nodes = f", nodes: [{{nodeId: 3000, implementation: {implementation}}}]"
    return make(CONTROLLERS.replace("username", with_tokens) + nodes, "", secrets=SECRETS)


@pytest.mark.parametrize("implementation", ["python", "java"])
def test_controllers_take_tokens_of_clients(make: Make, implementation: str) -> None:
    """Both implementations get what they need, and nodes log in with PLAIN."""
    cluster = of_controllers(make, TRUSTING, implementation=implementation)
    config = config_map(cluster.context, cluster.desired, cluster.node(3000), {})
    found = parse_properties(config["data"]["server.properties"])
    prefix = "listener.name.controller."
    assert found[f"{prefix}sasl.enabled.mechanisms"] == "PLAIN,OAUTHBEARER"
    assert found[f"{prefix}oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] == "https://sso.example.com/keys"
    assert found[f"{prefix}connections.max.reauth.ms"] == "300000"
    assert found["sasl.mechanism.controller.protocol"] == "PLAIN"
    pod = node_pod(cluster.context, cluster.desired, cluster.node(3000), {}, is_initial=False)
    issuer = [
        volume for volume in pod["spec"]["volumes"] if volume.get("secret", {}).get("secretName") == "issuer"
    ]
    assert [item["path"] for volume in issuer for item in volume["secret"]["items"]] == ["ca.crt"]
    option = f"-D{ALLOWED_URLS}=https://sso.example.com/keys"
    is_java = implementation == "java"
    assert (option in f"{pod['spec']['containers'][0]['command']}") == is_java
    assert found.get(ALLOWED_URLS) == (None if is_java else "https://sso.example.com/keys")
    assert not [key for key in properties(cluster) if "oauthbearer" in key]


def test_a_controller_in_python_starts_with_what_it_is_given(make: Make) -> None:
    cluster = of_controllers(make, TRUSTING, implementation="python")
    config = config_map(cluster.context, cluster.desired, cluster.node(3000), {})
    found = parse_properties(config["data"]["server.properties"])
    prefix = "listener.name.controller."
    own = {key.removeprefix(prefix): value for key, value in found.items()}
    sasl = parse_listener_sasl(prefix, own)
    assert sasl.oauth is not None
    assert (sasl.oauth.url, sasl.oauth.rules.issuer) == (
        "https://sso.example.com/keys",
        "https://sso.example.com",
    )
    assert sasl.oauth.rules.audiences == {"kafka", "shop"}
    assert sasl.reauthentication_ms == {"PLAIN": 300_000, "OAUTHBEARER": 300_000}


def test_tokens_alone_configure_no_password(make: Make) -> None:
    secured = "protocol: SASL_SSL, tls: {secretName: tls}, sasl:"
    brokers = (
        f"listeners: [{{name: INTERNAL, {secured} {{mechanisms: [PLAIN], username: node, secretName: login}}}}, "
        f"{{name: CLIENTS, {secured} {{mechanisms: [OAUTHBEARER], oauth: {{{BY_URL}}}}}}}]"
    )
    found = properties(make(CONTROLLERS, brokers, secrets=SECRETS))
    assert found["listener.name.clients.sasl.enabled.mechanisms"] == "OAUTHBEARER"
    assert [key for key in found if key.startswith("listener.name.clients.") and "jaas" in key] == [
        f"{LISTENER}.sasl.jaas.config"
    ]
    assert found["sasl.mechanism.inter.broker.protocol"] == "PLAIN"


def made(make: Make, oauth: str, more: str = "", **issuer: str) -> Cluster:
    """A cluster whose brokers have a listener for tokens beside their own; `issuer` are values of that Secret."""
    secured = "protocol: SASL_SSL, tls: {secretName: tls}, sasl: {username: node, secretName: login"
    brokers = (
        f"listeners: [{{name: INTERNAL, {secured}, mechanisms: [PLAIN]}}}}, "
        f"{{name: CLIENTS, {secured}, mechanisms: [PLAIN, OAUTHBEARER], oauth: {{{oauth}}}}}}}]{more}"
    )
    secrets = SECRETS | ({"issuer": Secret(values=issuer)} if issuer else {})
    return make(CONTROLLERS, brokers, secrets=secrets)


def properties(cluster: Cluster) -> dict[str, str]:
    config = config_map(cluster.context, cluster.desired, cluster.node(0), {})
    return parse_properties(config["data"]["server.properties"])


def oauth_properties(cluster: Cluster) -> dict[str, str]:
    """Those of the mechanism, without their prefix."""
    found = properties(cluster)
    return {key.removeprefix(f"{LISTENER}."): found[key] for key in found if key.startswith(LISTENER)}


def test_tokens_are_checked_on_the_listener_of_clients(make: Make) -> None:
    """Kafka's properties as it documents them, and nodes log in as before."""
    found = oauth_properties(made(make, BY_URL))
    assert found == {
        "sasl.jaas.config": f"{MODULE} required;",
        "sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": "https://sso.example.com/keys",
        "sasl.oauthbearer.expected.issuer": "https://sso.example.com",
        "sasl.oauthbearer.expected.audience": "kafka,shop",
    }
    whole = properties(made(make, BY_URL))
    assert whole["listener.name.clients.sasl.enabled.mechanisms"] == "PLAIN,OAUTHBEARER"
    assert whole["listener.name.internal.sasl.enabled.mechanisms"] == "PLAIN"
    assert whole["sasl.mechanism.inter.broker.protocol"] == "PLAIN"
    assert not [key for key in whole if key.startswith("listener.name.internal.oauthbearer")]


def test_the_issuer_is_trusted_by_the_file_of_a_secret(make: Make) -> None:
    """The broker reads ca.crt where it is mounted."""
    cluster = made(make, TRUSTING)
    assert oauth_properties(cluster)["sasl.jaas.config"] == (
        f'{MODULE} required unsecuredLoginStringClaim_sub="unused" ssl.truststore.type="PEM" '
        'ssl.truststore.location="/etc/quorate-secrets/issuer/ca.crt";'
    )
    assert mounted_keys(cluster) == ["ca.crt"]


def test_keys_may_be_in_a_secret(make: Make) -> None:
    cluster = made(make, BY_FILE)
    found = oauth_properties(cluster)
    assert found["sasl.oauthbearer.jwks.endpoint.url"] == "file:///etc/quorate-secrets/issuer/jwks.json"
    assert found["sasl.oauthbearer.sub.claim.name"] == "azp"
    assert found["sasl.oauthbearer.clock.skew.seconds"] == "5"
    assert mounted_keys(cluster) == ["jwks.json"]


def mounted_keys(cluster: Cluster) -> list[str]:
    """The keys of the issuer's Secret that the broker's pod gets."""
    pod = node_pod(cluster.context, cluster.desired, cluster.node(0), {}, is_initial=False)
    assert "hidden" not in f"{pod} {properties(cluster)}"
    (found,) = [
        volume["secret"]
        for volume in pod["spec"]["volumes"]
        if volume.get("secret", {}).get("secretName") == "issuer"
    ]
    assert found["defaultMode"] == 0o440
    return [item["path"] for item in found["items"]]


@pytest.mark.parametrize("more", ["", ", metrics: {enabled: true}"])
def test_java_is_allowed_to_read_the_keys(make: Make, more: str, tmp_path: Path) -> None:
    """Kafka uses a URL only if a system property allows it, and options of a template are kept."""
    cluster = made(make, BY_URL, more)
    pods = {
        node_id: node_pod(cluster.context, cluster.desired, cluster.node(node_id), {}, is_initial=False)
        for node_id in (0, 3000)
    }
    assert "allowed.urls" not in f"{pods[3000]}"
    command = pods[0]["spec"]["containers"][0]["command"]
    start = tmp_path / "kafka-server-start.sh"
    start.write_text('#!/bin/sh\nprintf "%s\\n" "$KAFKA_OPTS" "$@"\n')
    start.chmod(0o755)
    assert command[3] == "/opt/kafka/bin/kafka-server-start.sh"
    command[3] = str(start)
    ran = subprocess.run(command, env={"KAFKA_OPTS": "-Dmine=1"}, capture_output=True, text=True, check=True)
    options, config = ran.stdout.splitlines()
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://sso.example.com/keys"
    assert (options.split()[0], options.split()[-1]) == ("-Dmine=1", allowed)
    assert ("-javaagent:" in options) == bool(more)
    assert config == "/etc/quorate/server.properties"


@pytest.mark.parametrize(
    ("oauth", "changed", "restarts"),
    [
        (TRUSTING, {"ca.crt": "another"}, True),
        (BY_FILE, {"jwks.json": "another"}, False),
        (TRUSTING, {"ca.crt": "hidden-issuer-ca", "jwks.json": "another"}, False),
    ],
)
def test_what_is_read_at_the_start_restarts_brokers(
    make: Make, oauth: str, changed: dict[str, str], restarts: bool
) -> None:
    """A changed authority takes effect; Kafka follows a key set itself."""
    before, after = made(make, oauth), made(make, oauth, **changed)
    assert (before.node(0).revision != after.node(0).revision) == restarts
    assert before.node(3000).revision == after.node(3000).revision
