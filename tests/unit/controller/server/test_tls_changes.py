"""Keys and authorities that change while a controller runs: what is taken, and what is refused."""

import asyncio
import logging
import shutil
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kit.java.tls import Certificates, signed
from kit.tls_listener import TlsRig, client_context, messages, pem, tls_of
from kit.waiting import HANG_S
from quorate_controller.config import load_config
from quorate_controller.config.listener_security import ListenerTls
from quorate_controller.security.certificates import Certificate
from quorate_controller.server.server import read_stores
from quorate_controller.server.tls import TlsOfListener, refusal_of
from quorate_protocol.security.stores import TlsConfig
from quorate_protocol.security.tls import ClientAuth
from quorate_protocol.wire.frames import encode_frame


async def test_a_changed_key_is_used_without_losing_a_connection(
    secured: TlsRig, certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    keystore = tmp_path / "server.pem"
    shutil.copy(certificates.server, keystore)
    tls = tls_of(certificates, keystore)
    await secured.listen(tls)
    context = client_context(certificates)
    reader, writer = await secured.connect(context)
    renewed = signed(certificates.authority.parent, "renewed", common_name="server")
    replace_file(keystore, renewed)
    await tls.reload_if_changed()
    assert (await secured.ask(context)).getpeercert(binary_form=True) == certificate_in(renewed)
    writer.write(encode_frame(b"still here"))
    assert await asyncio.wait_for(reader.readexactly(14), HANG_S) == encode_frame(b"still here")
    keystore.write_text("nothing")
    for _ in range(3):
        await tls.reload_if_changed()
    await secured.ask(context)
    (facts,) = messages(caplog, "tls_reloaded")
    assert facts["serial_number"] == tls.certificate.serial_number
    assert facts["issuer"] == "CN=ca"
    (facts,) = messages(caplog, "tls_reload_failed")
    assert facts["reason"].startswith(f"ssl.keystore.location={keystore}: ")


def replace_file(file: Path, content: Path) -> None:
    """Give a file another content at once."""
    shutil.copy(content, file.with_suffix(".next"))
    file.with_suffix(".next").replace(file)


def certificate_in(file: Path) -> bytes:
    """The DER certificate of a PEM file that has a key, too."""
    text = file.read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"common_name": "other"}, "is for CN=other, the former for CN=server"),
        ({"alternative_names": "DNS:localhost"}, "lacks subject alternative names"),
        ({"authority": "other-ca"}, "would not trust each other"),
    ],
)
async def test_a_certificate_that_others_would_refuse_is_not_taken(
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
    reason: str,
) -> None:
    """A wrong new certificate takes no listener down."""
    caplog.set_level(logging.INFO)
    directory, keystore = certificates.authority.parent, tmp_path / "server.pem"
    shutil.copy(certificates.server, keystore)
    tls = tls_of(certificates, keystore, connects_controllers=True)
    former = tls.server, tls.client, tls.certificate
    replace_file(keystore, signed(directory, "wrong", **{"common_name": "server", **changes}))
    for _ in range(2):
        await tls.reload_if_changed()
    assert (tls.server, tls.client, tls.certificate) == former
    (facts,) = messages(caplog, "tls_reload_failed")
    assert reason in facts["reason"]
    assert tls.refuses_files
    replace_file(keystore, signed(directory, "right", common_name="server"))
    await tls.reload_if_changed()
    assert tls.certificate != former[2]
    assert not tls.refuses_files


@pytest.mark.parametrize(
    ("days", "reason"), [(-1, "is not valid before"), (0, None), (3, "expired at"), (1, None)]
)
def test_a_certificate_is_taken_while_it_is_valid(
    certificates: Certificates, days: int, reason: str | None
) -> None:
    former = Certificate.of(certificate_in(certificates.server))
    renewed = signed(certificates.authority.parent, "valid", common_name="server")
    new = Certificate.of(certificate_in(renewed))
    config = ListenerTls(tls=TlsConfig())
    now = new.not_before + timedelta(days=days, seconds=1)
    refusal = refusal_of(new, former, config, now)
    assert refusal is None if reason is None else reason in str(refusal)
    assert refusal_of(former, former, config, now) is None, "an authority may change beside it"


@pytest.mark.parametrize("allowed", [{"allows_other_subject": True}, {"allows_fewer_names": True}])
async def test_another_subject_can_be_allowed(
    certificates: Certificates, tmp_path: Path, allowed: dict[str, bool]
) -> None:
    """Ssl.allow.dn.changes and ssl.allow.san.changes are Kafka's."""
    keystore = tmp_path / "server.pem"
    shutil.copy(certificates.server, keystore)
    tls = tls_of(certificates, keystore, **allowed)
    is_subject = "allows_other_subject" in allowed
    changes = {"common_name": "other"} if is_subject else {"alternative_names": "DNS:localhost"}
    renewed = signed(certificates.authority.parent, "allowed", **{"common_name": "server", **changes})
    replace_file(keystore, renewed)
    await tls.reload_if_changed()
    assert tls.certificate.subject == ("CN=other" if is_subject else "CN=server")
    assert not tls.refuses_files


async def test_an_authority_is_exchanged_in_three_steps_and_in_no_other_order(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Controllers that have read the new files, and those that have not yet, connect to each other."""
    directory = certificates.authority.parent
    keystore, truststore = tmp_path / "server.pem", tmp_path / "ca.pem"
    shutil.copy(certificates.server, keystore)
    shutil.copy(certificates.authority, truststore)
    config = TlsConfig(keystore=pem("keystore", keystore), truststore=pem("truststore", truststore))
    both = tmp_path / "both.pem"
    both.write_text(certificates.authority.read_text() + certificates.other_authority.read_text())
    other = signed(directory, "under-other", authority="other-ca", common_name="server")
    for client_auth in (ClientAuth.NONE, ClientAuth.REQUIRED):
        replace_file(keystore, certificates.server)
        replace_file(truststore, certificates.authority)
        tls = TlsOfListener(
            "CONTROLLER", ListenerTls(tls=config, client_auth=client_auth), connects_controllers=True
        )
        for file, content, is_taken in (
            (keystore, other, False),
            (keystore, certificates.server, True),
            (truststore, both, True),
            (keystore, other, True),
            (truststore, certificates.authority, False),
            (truststore, certificates.other_authority, True),
        ):
            replace_file(file, content)
            await tls.reload_if_changed()
            assert tls.refuses_files is not is_taken, (client_auth, file.name, content.name)
        assert tls.certificate.issuer == "CN=other-ca"


async def test_a_key_that_came_before_its_certificate_is_waited_for(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys and certificates of a mounted Secret are reloaded (KIP-297), and never half of them."""
    caplog.set_level(logging.INFO)
    directory, secret = certificates.authority.parent, tmp_path / "secret"
    secret.mkdir()
    renewed = signed(directory, "mounted", common_name="server")
    shutil.copy(directory / "server.key", secret / "tls.key")
    shutil.copy(directory / "server.crt", secret / "tls.crt")
    written = {
        "process.roles": "controller",
        "node.id": "1",
        "log.dirs": str(tmp_path / "data"),
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "listener.security.protocol.map": "CONTROLLER:SSL",
        "config.providers": "directory",
        "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": f"${{directory:{secret}:tls.key}}",
        "listener.name.controller.ssl.keystore.certificate.chain": f"${{directory:{secret}:tls.crt}}",
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in written.items()))
    tls = read_stores(load_config(file))["CONTROLLER"]
    serial_number = tls.certificate.serial_number
    replace_file(secret / "tls.key", renewed.with_suffix(".key"))
    for _ in range(2):
        await tls.reload_if_changed()
    assert tls.certificate.serial_number == serial_number
    (facts,) = messages(caplog, "tls_reload_failed")
    assert "key" in facts["reason"].lower()
    replace_file(secret / "tls.crt", renewed.with_suffix(".crt"))
    await tls.reload_if_changed()
    assert tls.certificate == Certificate.of(certificate_in(renewed))
    (secret / "tls.key").unlink()
    await tls.reload_if_changed()
    assert "tls.key" in messages(caplog, "tls_reload_failed")[-1]["reason"]
    assert tls.certificate == Certificate.of(certificate_in(renewed))
