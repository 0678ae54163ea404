"""Pods and configurations of secured clusters: what they refer to and what they get, and that none has a value."""

import json
from pathlib import Path
from typing import Any

import pytest
from kit.desired_cluster import Cluster, Make
from quorate_controller.config import ConfigError, load_config
from quorate_operator.models.secrets import Secret
from quorate_operator.resources.configs import config_map, secured_properties
from quorate_operator.resources.pods import node_pod
from quorate_protocol.properties import parse_properties

CONTROLLERS = (
    "listeners: [{name: CONTROLLER, protocol: SASL_SSL, tls: {secretName: c-tls, clientAuth: requested}, "
    "sasl: {username: node, secretName: login}}], scramUsers: {secretName: users}, "
    'authorization: {superUsers: ["User:node", "User:broker"]}'
)
BROKERS = (
    "listeners: [{name: CLIENTS, protocol: SASL_SSL, tls: {secretName: b-tls}, "
    "sasl: {mechanisms: [SCRAM-SHA-512, PLAIN], username: broker, secretName: users}}]"
)
CERTIFICATE = {"tls.crt": "hidden-crt", "tls.key": "hidden-key", "ca.crt": "hidden-ca"}
SECRETS = {
    "c-tls": Secret(values=CERTIFICATE),
    "b-tls": Secret(values=CERTIFICATE),
    "login": Secret(values={"node": "hidden-node", "next": "hidden-next"}),
    "users": Secret(values={"broker": "hidden-broker", "alice": "hidden-alice"}),
}


@pytest.fixture
def secured(make: Make) -> Cluster:
    return make(CONTROLLERS, BROKERS, secrets=SECRETS)


def properties(cluster: Cluster, node_id: int) -> dict[str, str]:
    """A node's configuration, read back."""
    made = config_map(cluster.context, cluster.desired, cluster.node(node_id), {})
    return parse_properties(made["data"]["server.properties"])


def pod(cluster: Cluster, node_id: int, *, is_initial: bool = False) -> dict[str, Any]:
    return node_pod(cluster.context, cluster.desired, cluster.node(node_id), {}, is_initial=is_initial)


def mounted(item: dict[str, Any]) -> dict[str, list[str] | None]:
    """The keys of each Secret that a pod gets, by the Secret's name; None for all of them."""
    secrets = [volume["secret"] for volume in item["spec"]["volumes"] if "secret" in volume]
    assert {secret["defaultMode"] for secret in secrets} <= {0o440}
    return {
        secret["secretName"]: [key["path"] for key in secret["items"]] if "items" in secret else None
        for secret in secrets
    }


def test_a_controller_serves_and_logs_in(secured: Cluster) -> None:
    """Nodes know each other, and a new password can be brought in beside the old."""
    found = properties(secured, 3000)
    listener, path = "listener.name.controller", "${directory:/etc/quorate-secrets"
    assert found["listener.security.protocol.map"] == "CONTROLLER:SASL_SSL"
    assert found[f"{listener}.ssl.keystore.key"] == f"{path}/c-tls:tls.key}}"
    assert found[f"{listener}.ssl.truststore.certificates"] == f"{path}/c-tls:ca.crt}}"
    assert found[f"{listener}.ssl.client.auth"] == "requested"
    assert found[f"{listener}.sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-512"
    assert found["sasl.mechanism.controller.protocol"] == "PLAIN"
    assert found[f"{listener}.plain.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="node" password="{path}/login:node}}" user_node="{path}/login:node}}" '
        f'user_next="{path}/login:next}}";'
    )
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    assert found[f"{listener}.scram-sha-512.sasl.jaas.config"] == scram
    assert found["super.users"] == "User:node;User:broker"


def test_a_broker_is_a_client_of_the_controllers(secured: Cluster) -> None:
    found = properties(secured, 0)
    listener, path = "listener.name.controller", "${directory:/etc/quorate-secrets"
    assert found["listener.security.protocol.map"] == "CLIENTS:SASL_SSL,CONTROLLER:SASL_SSL"
    assert found[f"{listener}.ssl.truststore.certificates"] == f"{path}/c-tls:ca.crt}}"
    assert found[f"{listener}.ssl.keystore.key"] == f"{path}/b-tls:tls.key}}"
    assert "user_" not in found[f"{listener}.plain.sasl.jaas.config"]
    assert found["sasl.mechanism.inter.broker.protocol"] == "SCRAM-SHA-512"
    login = found["listener.name.clients.scram-sha-512.sasl.jaas.config"]
    assert f'username="broker" password="{path}/users:broker}}"' in login
    assert "username" not in found["listener.name.clients.plain.sasl.jaas.config"]
    assert mounted(pod(secured, 0)) == {
        "b-tls": ["ca.crt", "tls.crt", "tls.key"],
        "c-tls": ["ca.crt"],
        "login": ["node"],
        "users": ["alice", "broker"],
    }


def test_only_who_forms_the_cluster_gets_its_users(secured: Cluster) -> None:
    """Passwords of users reach the format container of first voters alone."""
    first = pod(secured, 3000, is_initial=True)
    assert mounted(first)["users"] is None
    (init,), (node,) = first["spec"]["initContainers"], first["spec"]["containers"]
    place = init["command"].index("--add-scram-from")
    assert init["command"][place + 1] == "SCRAM-SHA-512=/etc/quorate-scram-users"
    assert "scram-users" in [mount["name"] for mount in init["volumeMounts"]]
    assert "scram-users" not in [mount["name"] for mount in node["volumeMounts"]]
    for other in (pod(secured, 3000), pod(secured, 0, is_initial=True)):
        assert "--add-scram-from" not in other["spec"]["initContainers"][0]["command"]


def test_no_object_has_a_value_of_a_secret(secured: Cluster) -> None:
    objects = [config_map(secured.context, secured.desired, node, {}) for node in secured.desired.nodes] + [
        pod(secured, node.node_id, is_initial=True) for node in secured.desired.nodes
    ]
    assert "hidden" not in json.dumps(objects)
    assert "hidden" not in repr(secured)
    assert "secrets" in secured.node(3000).revision


def test_a_controller_reads_the_files_that_are_mounted(secured: Cluster, tmp_path: Path) -> None:
    for name, secret in SECRETS.items():
        (tmp_path / name).mkdir()
        for key, value in secret.values.items():
            (tmp_path / name / key).write_text(value)
    made = config_map(secured.context, secured.desired, secured.node(3000), {})["data"]["server.properties"]
    file = tmp_path / "server.properties"
    file.write_text(made.replace("/etc/quorate-secrets", str(tmp_path)))
    config = load_config(file)
    assert config.login is not None
    assert (config.login.username, config.login.password) == ("node", "hidden-node")
    (tmp_path / "login" / "next").unlink()
    with pytest.raises(ConfigError, match="login/next: No such file or directory"):
        load_config(file)


@pytest.mark.parametrize(
    ("tls", "expected"),
    [("secretName: c", None), ("issuerRef: {name: ca}", "true"), ("duration: 48h", "true")],
)
def test_a_certificate_that_is_issued_may_lose_a_withdrawn_host(
    make: Make, tls: str, expected: str | None
) -> None:
    """Otherwise controllers would keep the former certificate until it expires."""
    cluster = make(f"listeners: [{{name: CONTROLLER, protocol: SSL, tls: {{{tls}}}}}]")
    properties = secured_properties(cluster.context, cluster.node(3000))
    assert properties.get("listener.name.controller.ssl.allow.san.changes") == expected
