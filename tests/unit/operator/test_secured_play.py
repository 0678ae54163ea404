"""A played cluster with secured listeners: files of Secrets and of clients, what formats with users, tools."""

import asyncio
import json
import shlex
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from quorate_operator.models.manifests import ManifestError
from quorate_operator.models.started_listeners import WAY_OUT, started_of, started_text
from quorate_operator.planning.cluster import NodeState, ObservedCluster, ObservedNode, Role
from quorate_operator.planning.listeners import stage
from quorate_operator.planning.rollout import changes
from quorate_operator.runtime.local import play_session
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.infrastructure import LocalInfrastructure
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.play_session import Request
from quorate_operator.runtime.local.stock_kafka import Kafka
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.properties import parse_properties

pytestmark = pytest.mark.usefixtures("own_ports")

CONTROLLERS = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec:
  replicas: 2
  nodes: [{nodeId: 3001, implementation: java}]
  listeners:
    - name: CONTROLLER
      protocol: SASL_SSL
      tls: {secretName: cert}
      sasl: {username: node, secretName: login}
  authorization: {superUsers: ["User:node", "User:broker", "User:admin"]}
  scramUsers: {secretName: users}
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec:
  controllers: quorum
  replicas: 1
  listeners:
    - name: CLIENTS
      protocol: SASL_SSL
      tls: {secretName: cert}
      sasl: {username: broker, secretName: users}
"""
SECRETS = """\
apiVersion: v1
kind: Secret
metadata: {name: cert}
stringData: {tls.crt: hidden-crt, tls.key: hidden-key, ca.crt: hidden-ca}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {node: hidden-node}
---
apiVersion: v1
kind: Secret
metadata: {name: users}
stringData: {admin: hidden-admin, alice: hidden-alice, broker: hidden-broker}
"""


def adopted(tmp_path: Path, *texts: str) -> Layout:
    """The layout of files that were played in a directory of their own; java prints its arguments."""
    files = []
    for place, text in enumerate(texts):
        files.append(tmp_path / f"{place}.yaml")
        files[-1].write_text(text)
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nwhile [ "$1" != -cp ]; do shift; done; shift 3; echo "$@"\n')
    java.chmod(0o755)
    kafka = Kafka(version="4.4.0", java=str(java), libs=tmp_path)
    manifest, source = play_session.read_manifests(files)
    request = Request(
        manifest=manifest,
        source=source,
        directory=play_session.directory_of("quorum", tmp_path / "cluster"),
        kafka={"4.4.0": kafka},
        notes=(),
    )
    layout = play_session.settle(request)
    request.directory.make(request.directory.path)
    play_session.adopt(request, layout)
    return layout


def edit_of(layout: Layout, manifest: str) -> Request:
    """Another manifest for a played cluster, with the same Secrets."""
    return Request(
        manifest=f"{manifest}\n---\n{SECRETS}",
        source="edited.yaml",
        directory=layout.directory,
        kafka=layout.kafka,
        notes=(),
    )


def with_hidden(path: Path) -> dict[str, set[str]]:
    """The values in the files below a directory, by path from there. All of these are for their owner alone."""
    found = {}
    for file in path.rglob("*"):
        if file.is_file() and "hidden" in (text := file.read_text()):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
            found[str(file.relative_to(path))] = {
                word for word in text.replace('"', " ").split() if "hidden" in word
            }
    return found


def test_values_stand_in_private_files_that_need_them(tmp_path: Path) -> None:
    layout = adopted(tmp_path, CONTROLLERS, SECRETS)
    for node in layout.desired.nodes:
        layout.write_config(node)
    found = with_hidden(layout.directory.path)
    assert found.pop("manifest.yaml")
    assert found.pop("controllers.properties")
    assert found.pop("secrets/add-scram.args")
    assert found.pop("clients/alice.properties") >= {"hidden-alice"}
    assert {name for name in found if not name.startswith("secrets/")} == {
        "clients/admin.properties",
        "clients/broker.properties",
    }
    assert found["secrets/login/node"] == {"hidden-node"}
    assert "hidden" not in repr(layout)
    text = layout.config_file(layout.node(0)).read_text()
    assert f"${{directory:{layout.directory.secrets}/cert:tls.key}}" in text


def test_a_played_broker_may_read_the_keys_of_an_issuer(tmp_path: Path) -> None:
    """Java is allowed the URL that the configuration names, and nothing else, and finds the Secret there."""
    oauth = (
        "mechanisms: [SCRAM-SHA-512, OAUTHBEARER], oauth: {jwksSecretName: issuer, issuer: a, audiences: [b]}"
    )
    keys = (
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: issuer}\nstringData: {jwks.json: hidden-keys}\n"
    )
    text = CONTROLLERS.replace("username: broker", f"{oauth}, username: broker")
    layout = adopted(tmp_path, text, SECRETS + keys)
    broker, controller = layout.node(0), layout.node(3001)
    for node in (broker, controller):
        layout.write_config(node)
    file = layout.directory.secrets / "issuer" / "jwks.json"
    command = layout.run_command(broker, {})
    assert f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}" in command
    assert file.read_text() == "hidden-keys"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    properties = parse_properties(layout.config_file(broker).read_text())
    prefix = "listener.name.clients.oauthbearer.sasl.oauthbearer"
    assert properties[f"{prefix}.jwks.endpoint.url"] == file.as_uri()
    assert "allowed.urls" not in f"{layout.run_command(controller, {})}"


def test_no_password_is_an_argument(tmp_path: Path) -> None:
    layout = adopted(tmp_path, CONTROLLERS, SECRETS)
    ours, stock = (layout.format_command(layout.node(node_id)) for node_id in (3000, 3001))
    assert f"SCRAM-SHA-512={layout.directory.secrets}/users" in ours
    (listed,) = [line for line in stock if line.startswith("@")]
    arguments = Path(listed[1:]).read_text().splitlines()
    assert arguments[:2] == ["--add-scram", 'SCRAM-SHA-512=[name=admin,password="hidden-admin"]']
    assert "hidden" not in f"{ours} {stock}"
    joining = layout.format_command(layout.node(3000), is_initial=False)
    assert "--add-scram-from" not in joining


def test_the_operator_logs_in_at_each_listener(tmp_path: Path) -> None:
    layout = adopted(tmp_path, CONTROLLERS, SECRETS)
    supervisor = play_session.LocalInfrastructure(layout, {}, lambda: None)
    controller, broker = (
        supervisor.security_of(layout.identity.nodes[node_id].own_address(name))
        for node_id, name in ((3000, "CONTROLLER"), (0, "CLIENTS"))
    )
    assert controller is not None
    assert broker is not None
    assert controller.protocol is broker.protocol is SecurityProtocol.SASL_SSL
    assert controller.sasl is not None
    assert broker.sasl is not None
    assert [controller.sasl.username, controller.sasl.password] == ["node", "hidden-node"]
    assert [broker.sasl.username, broker.sasl.mechanism.value] == ["broker", "SCRAM-SHA-512"]


def test_tools_log_in_unless_they_are_told_how(tmp_path: Path) -> None:
    """Short lines work in a secured cluster."""
    layout = adopted(tmp_path, CONTROLLERS, SECRETS)
    bootstrap = layout.address(layout.node(0))
    clients = layout.directory.clients

    def run(tool: str, *arguments: str) -> Sequence[str]:
        command = [str(layout.directory.tools / tool), *arguments]
        return shlex.split(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    # broker comes before admin among the super users
    login = ["--command-config", str(clients / "broker.properties")]
    address = ["--bootstrap-server", bootstrap]
    assert run("kafka-topics", "--list") == [*address, *login, "--list"]
    assert run("kafka-topics", "--config", "a=b") == [*address, *login, "--config", "a=b"]
    assert run("kafka-cluster", "cluster-id") == ["cluster-id", *login, *address]
    assert run("kafka-topics", "--command-config", "f") == [*address, "--command-config", "f"]
    to_controllers = ["--bootstrap-controller", "h:1", "describe"]
    assert run("kafka-features", *to_controllers) == [
        *("--command-config", str(layout.directory.controllers_client)),
        *to_controllers,
    ]
    found = parse_properties((clients / "alice.properties").read_text())
    assert found["ssl.truststore.certificates"] == "hidden-ca"
    assert 'username="alice" password="hidden-alice"' in found["sasl.jaas.config"]


def test_another_password_restarts_who_reads_it(tmp_path: Path) -> None:
    before = adopted(tmp_path, CONTROLLERS, SECRETS)
    after = adopted(tmp_path, CONTROLLERS, SECRETS.replace("hidden-broker", "other-hidden"))
    changed = {
        node.node_id: {
            part for part, value in node.revision.items() if before.node(node.node_id).revision[part] != value
        }
        for node in after.desired.nodes
    }
    assert changed == {3000: set(), 3001: set(), 0: {"secrets", "broker-login"}}


def test_a_player_names_what_changed_and_no_password(tmp_path: Path) -> None:
    before = adopted(tmp_path, CONTROLLERS, SECRETS).node(0)
    threads = "  replicas: 1\n  config: {num.io.threads: 16, ssl.key.password: hidden-key}\n"
    asked = CONTROLLERS.replace("  replicas: 1\n", threads)
    after = adopted(tmp_path, asked, SECRETS.replace("hidden-broker", "other-hidden"))
    seen = ObservedNode(
        node_id=0,
        role=Role.BROKER,
        state=NodeState.READY,
        revision=before.revision,
        rendering=before.rendering,
    )
    assert changes(after.node(0), seen) == (
        "num.io.threads: 16 added",
        "ssl.key.password: added",
        "Secret users: content changed",
    )


def test_a_secret_that_no_file_has_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as refused:
        adopted(tmp_path, CONTROLLERS)
    assert "spec.listeners[0].tls.secretName: 'cert': no such Secret in " in str(refused.value)
    elsewhere = tmp_path / "a:b"
    elsewhere.mkdir()
    with pytest.raises(PlayError, match="Kafka can't read Secrets under a path with ':' or"):
        adopted(elsewhere, CONTROLLERS, SECRETS)


def started(layout: Layout) -> Layout:
    """The layout when its nodes have been started."""
    nodes = {
        node.node_id: replace(
            layout.identity.nodes[node.node_id], listeners_last=started_text(node.listeners, "CONTROLLER")
        )
        for node in layout.desired.nodes
    }
    return replace(layout, identity=replace(layout.identity, nodes=nodes))


def test_the_protocol_of_running_nodes_is_not_changed(tmp_path: Path) -> None:
    plain = CONTROLLERS.replace("protocol: SASL_SSL", "protocol: SSL", 1).replace(
        "      sasl: {username: node, secretName: login}\n", "", 1
    )
    plain = plain.replace('superUsers: ["User:node", ', 'superUsers: ["User:node", "User:ANONYMOUS", ')
    current = adopted(tmp_path, CONTROLLERS, SECRETS)
    current = started(current)
    request = edit_of(current, plain)
    with pytest.raises(PlayError) as refused:
        play_session.settle_edited(request.as_arguments(), current, frozenset({3000}))
    assert str(refused.value) == (
        "KafkaController quorum: spec.listeners[CONTROLLER].protocol: 'SSL': nodes run with SASL_SSL and connect to "
        f"each other by it: {WAY_OUT}; or run `quorate play stop` first"
    )
    edited = play_session.settle_edited(request.as_arguments(), current, frozenset({0}))
    assert edited.node(3000).listeners[0].protocol == "SSL"


def test_a_removed_listener_of_running_nodes_stays_served(tmp_path: Path) -> None:
    current = started(adopted(tmp_path, CONTROLLERS, SECRETS))
    renamed = CONTROLLERS.replace("name: CONTROLLER", "name: OTHER").replace("name: CLIENTS", "name: MORE")
    running = frozenset({0, 3000, 3001})
    edited = play_session.settle_edited(edit_of(current, renamed).as_arguments(), current, running)
    names = {node.node_id: [own.name for own in node.listeners] for node in edited.desired.nodes}
    assert names == {3000: ["OTHER", "CONTROLLER"], 3001: ["OTHER", "CONTROLLER"], 0: ["MORE", "CLIENTS"]}
    observed = ObservedCluster(
        nodes={
            node_id: ObservedNode(
                node_id=node_id,
                role=kept.role,
                state=NodeState.READY,
                listeners=started_of(kept.listeners_last),
            )
            for node_id, kept in edited.identity.nodes.items()
        },
        quorum=None,
    )
    staged = stage(edited.desired, observed)
    for node_id in (3000, 0):
        node = next(node for node in staged.nodes if node.node_id == node_id)
        edited.write_config(node)
        properties = parse_properties(edited.config_file(node).read_text())
        if node_id:
            assert properties["controller.listener.names"] == "CONTROLLER,OTHER"
            ports = (str(current.own_address(voter, "CONTROLLER")) for voter in (3000, 3001))
            assert properties["controller.quorum.bootstrap.servers"] == ",".join(ports)
        else:
            assert properties["inter.broker.listener.name"] == "MORE", "no other broker has to serve it"
            assert properties["controller.listener.names"] == "CONTROLLER"
    assert stage(staged, observed) == staged

    infrastructure = LocalInfrastructure(edited, {}, lambda: None)
    for node_id, name in ((3000, "CONTROLLER"), (3000, "OTHER")):
        completed = asyncio.run(infrastructure.complete(edited.desired, infrastructure.layout.manifests))
        served = {node.node_id: [own.name for own in node.listeners] for node in completed.nodes}
        assert served == names, "a node still connects by the former listener"
        records = {
            kept_id: started_text(
                sorted(edited.node(kept_id).listeners, key=lambda own: own.name not in ("MORE", name)),
                name if kept_id == node_id else "OTHER",
            )
            for kept_id in edited.identity.nodes
        }
        nodes = {
            kept_id: replace(kept, listeners_last=records[kept_id])
            for kept_id, kept in edited.identity.nodes.items()
        }
        layout = infrastructure.layout
        infrastructure.layout = replace(layout, identity=replace(layout.identity, nodes=nodes))
        names = {**names, 0: ["MORE"]}
    completed = asyncio.run(infrastructure.complete(edited.desired, infrastructure.layout.manifests))
    served = {node.node_id: [own.name for own in node.listeners] for node in completed.nodes}
    assert served == {3000: ["OTHER"], 3001: ["OTHER"], 0: ["MORE"]}


OWN = CONTROLLERS.replace("tls: {secretName: cert}", "tls: {clientAuth: requested}")
"""No listener names a certificate."""
OWN_SECRETS = ("quorum-controller-tls", "brokers-clients-tls")


def files_of(directory: Path) -> dict[str, str]:
    """The files of issued certificates and of their authority."""
    found = {str(file.relative_to(directory)): file for file in directory.rglob("*") if file.is_file()}
    return {
        name: file.read_text()
        for name, file in found.items()
        if name == "authority.json" or name.startswith(tuple(f"secrets/{secret}/" for secret in OWN_SECRETS))
    }


def test_listeners_without_a_certificate_get_one_of_an_authority_that_stays(tmp_path: Path) -> None:
    layout = adopted(tmp_path, OWN, SECRETS)
    path = layout.directory.path
    files = files_of(path)
    assert set(files) == {
        "authority.json",
        *(f"secrets/{secret}/{key}" for secret in OWN_SECRETS for key in ("tls.crt", "tls.key", "ca.crt")),
    }
    assert {stat.S_IMODE((path / name).stat().st_mode) for name in files} == {0o600}
    for secret in OWN_SECRETS:
        certificate = x509.load_pem_x509_certificate(files[f"secrets/{secret}/tls.crt"].encode())
        authority = x509.load_pem_x509_certificate(files[f"secrets/{secret}/ca.crt"].encode())
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert [str(name.value) for name in names] == ["localhost", "127.0.0.1"]
        assert certificate.not_valid_after_utc == authority.not_valid_after_utc
    layout.write_config(layout.node(0))
    text = layout.config_file(layout.node(0)).read_text()
    assert f"${{directory:{path}/secrets/brokers-clients-tls:tls.key}}" in text
    key = json.loads(files["authority.json"])["ca.key"]
    assert not [file for file in path.rglob("*") if file.is_file() and key in file.read_text()]

    adopted(tmp_path, OWN, SECRETS)
    assert files_of(path) == files
    recalled = play_session.recall(layout.directory)
    assert recalled.manifests.secrets.keys() == {"cert", "login", "users", *OWN_SECRETS}
    assert recalled.desired == layout.desired


def test_a_host_that_is_advertised_from_now_on_gets_into_the_certificate(tmp_path: Path) -> None:
    path = adopted(tmp_path, OWN, SECRETS).directory.path
    before = files_of(path)
    advertising = OWN.replace("- name: CLIENTS\n", "- name: CLIENTS\n      advertisedHost: b.localhost\n")
    adopted(tmp_path, advertising, SECRETS)
    after = files_of(path)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"secrets/brokers-clients-tls/tls.crt", "secrets/brokers-clients-tls/tls.key"}
    certificate = x509.load_pem_x509_certificate(after["secrets/brokers-clients-tls/tls.crt"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "b.localhost"]


def test_nodes_that_run_with_given_certificates_get_none_that_they_would_not_trust(tmp_path: Path) -> None:
    layout = adopted(tmp_path, CONTROLLERS, SECRETS)
    request = edit_of(layout, OWN)
    running = (3000, 3001, 0)
    with pytest.raises(
        PlayError, match=r"spec\.listeners\[0\]\.tls: .* would not trust it: run `quorate play stop`"
    ):
        play_session.settle(request, layout.identity, running)
    assert files_of(layout.directory.path) == {}
    stopped = play_session.settle(request, layout.identity)
    assert stopped.manifests.secrets.keys() >= set(OWN_SECRETS)


def test_a_secret_that_would_be_overwritten_is_refused(tmp_path: Path) -> None:
    theirs = SECRETS.replace("{name: cert}", "{name: brokers-clients-tls}")
    with pytest.raises(
        ManifestError, match="the Secret brokers-clients-tls would be written for it; name it in"
    ):
        adopted(tmp_path, OWN, theirs)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"ca.crt": 1}', '{"ca.crt": "x", "ca.key": "y", "stage": "z"}']
)
def test_an_authority_that_cannot_be_read_is_not_replaced(tmp_path: Path, content: str) -> None:
    directory = adopted(tmp_path, OWN, SECRETS).directory
    directory.authority.write_text(content)
    with pytest.raises(PlayError, match="can't be read"):
        adopted(tmp_path, OWN, SECRETS)
    assert directory.authority.read_text() == content


def test_a_cluster_whose_certificates_are_gone_is_not_recalled(tmp_path: Path) -> None:
    directory = adopted(tmp_path, OWN, SECRETS).directory
    (directory.secrets / "brokers-clients-tls" / "tls.key").unlink()
    with pytest.raises(ManifestError, match=r"'brokers-clients-tls': the Secret has no tls\.key"):
        play_session.recall(directory)
    adopted(tmp_path, OWN, SECRETS)
    assert play_session.recall(directory)
