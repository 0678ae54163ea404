"""TLS contexts from key stores and trust stores, made with openssl and keytool, and a handshake over them."""

import shlex
import shutil
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.fake_cluster import CLUSTER_ID, FakeCluster
from quorate_admin.client import AdminClient
from quorate_admin.errors import AuthenticationError
from quorate_admin.security.config import SecurityConfig
from quorate_protocol.security.stores import SecurityConfigError
from quorate_protocol.security.tls import client_context as context_of
from quorate_protocol.security.tls import openssl_name

SECRET = "secret-of-the-store"
IMPORT_CA = "keytool -importcert -noprompt -alias ca -file"
needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool, of a JRE, is missing")


def run(command: str) -> None:
    """A command that must succeed."""
    subprocess.run(shlex.split(command), check=True, capture_output=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a certificate for 127.0.0.1 that signs itself, its key plain and encrypted, and stores."""
    at = tmp_path_factory.mktemp("tls")
    new_key = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2"
    run(
        f"{new_key} -subj /CN=test -addext subjectAltName=IP:127.0.0.1 -keyout {at}/key.pem -out {at}/cert.pem"
    )
    run(f"openssl pkcs8 -topk8 -in {at}/key.pem -out {at}/encrypted.pem -passout pass:{SECRET}")
    for name in ("key", "encrypted"):
        (at / f"{name}-and-cert.pem").write_text(
            (at / f"{name}.pem").read_text() + (at / "cert.pem").read_text()
        )
    run(
        f"openssl pkcs12 -export -in {at}/cert.pem -inkey {at}/key.pem -out {at}/key.p12 -passout pass:{SECRET}"
    )
    run(
        f"{new_key} -subj /CN=other -addext subjectAltName=DNS:elsewhere.invalid "
        f"-keyout {at}/other-key.pem -out {at}/other-cert.pem"
    )
    return at


def ssl_properties(**stores: str) -> SecurityConfig:
    """SSL with these properties, `_` for `.`; passwords are the stores'."""
    given = {f"ssl.{key.replace('_', '.')}": value for key, value in stores.items()}
    return SecurityConfig.from_properties({"security.protocol": "SSL", **given})


def client_context(**stores: str) -> ssl.SSLContext:
    """What a client with these properties connects with."""
    return context_of(ssl_properties(**stores).tls)


def server_context(files: Path, name: str = "", *, wants_certificate: bool = False) -> ssl.SSLContext:
    """What a listener uses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / f"{name}cert.pem", files / f"{name}key.pem")
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files / "cert.pem")
    return context


async def ask(context: ssl.SSLContext, security: SecurityConfig) -> str:
    """The cluster id, through TLS."""
    async with (
        FakeCluster(ssl_context=context) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, security=security, retries=0) as admin,
    ):
        return (await admin.describe_cluster()).cluster_id


async def test_stores_of_each_kind_open_both_ways(files: Path) -> None:
    """PEM files, PEM text, encrypted keys, PKCS12."""
    context = server_context(files, wants_certificate=True)
    trust = {"truststore_type": "PEM", "truststore_location": str(files / "cert.pem")}
    for keystore in (
        {"keystore_type": "PEM", "keystore_location": str(files / "key-and-cert.pem")},
        {
            "keystore_type": "PEM",
            "keystore_location": str(files / "encrypted-and-cert.pem"),
            "key_password": SECRET,
        },
        {
            "keystore_type": "PEM",
            "keystore_key": (files / "encrypted.pem").read_text(),
            "keystore_certificate_chain": (files / "cert.pem").read_text(),
            "key_password": SECRET,
        },
        {
            "keystore_type": "PKCS12",
            "keystore_location": str(files / "key.p12"),
            "keystore_password": SECRET,
        },
        # Java opens PKCS12 as its default type, too; key and store may have a password of their own each.
        {
            "keystore_location": str(files / "key.p12"),
            "keystore_password": SECRET,
            "key_password": "another",
        },
    ):
        assert await ask(context, ssl_properties(**trust, **keystore)) == CLUSTER_ID


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_a_key_is_in_no_file_that_stays(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_memory_files: bool
) -> None:
    """No key of a store of PKCS12, of a Secret or of an encrypted file reaches a disk."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not has_memory_files:
        monkeypatch.delattr("os.memfd_create")
    read: list[tuple[int, str, bool]] = []

    load = ssl.SSLContext.load_cert_chain

    def note(self: ssl.SSLContext, certfile: str, **options: Any) -> None:
        path = Path(certfile)
        assert "PRIVATE KEY" in path.read_text()
        target = str(path.readlink()) if has_memory_files else ""
        read.append((stat.S_IMODE(path.stat().st_mode), target, any(tmp_path.iterdir())))
        load(self, certfile, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", note)
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    client_context(keystore_type="PEM", keystore_location=str(files / "key-and-cert.pem"))
    client_context(keystore_location=str(files / "key.p12"), keystore_password=SECRET)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == descriptors
    assert len(read) == 2
    for mode, target, is_on_disk in read:
        assert is_on_disk != has_memory_files
        assert target.startswith("/memfd:quorate-key") == has_memory_files
        assert has_memory_files or mode == 0o600
    assert list(tmp_path.iterdir()) == []


@needs_keytool
async def test_trust_stores_that_java_made_are_read(files: Path) -> None:
    store = files / "java-trust.p12"
    run(f"{IMPORT_CA} {files}/cert.pem -keystore {store} -storetype PKCS12 -storepass {SECRET}")
    security = ssl_properties(
        truststore_type="PKCS12", truststore_location=str(store), truststore_password=SECRET
    )
    assert await ask(server_context(files), security) == CLUSTER_ID


@needs_keytool
def test_jks_is_refused_with_the_command_that_converts(files: Path) -> None:
    store = files / "old.jks"
    run(f"{IMPORT_CA} {files}/cert.pem -keystore {store} -storetype JKS -storepass {SECRET}")
    with pytest.raises(SecurityConfigError) as refused:
        client_context(truststore_location=str(store), truststore_password=SECRET)
    (command,) = [line for line in str(refused.value).splitlines() if "keytool" in line]
    run(f"{command} -srcstorepass {SECRET} -deststorepass {SECRET}")
    client_context(truststore_type="PKCS12", truststore_location=f"{store}.p12", truststore_password=SECRET)


async def test_certificates_are_checked(files: Path) -> None:
    """Neither a stranger nor a wrong name."""
    trust_one = ssl_properties(truststore_type="PEM", truststore_location=str(files / "cert.pem"))
    with pytest.raises(AuthenticationError, match="certificate is not trusted"):
        await ask(server_context(files, "other-"), trust_one)
    other = {"truststore_type": "PEM", "truststore_location": str(files / "other-cert.pem")}
    with pytest.raises(AuthenticationError, match="IP address mismatch"):
        await ask(server_context(files, "other-"), ssl_properties(**other))
    unnamed = ssl_properties(**other, endpoint_identification_algorithm="")
    assert await ask(server_context(files, "other-"), unnamed) == CLUSTER_ID


@pytest.mark.parametrize(
    ("stores", "said"),
    [
        ({"truststore_type": "PEM", "truststore_location": "missing"}, "missing: No such file or directory"),
        ({"truststore_type": "PEM", "truststore_location": "key.pem"}, "it has no certificates"),
        ({"truststore_type": "PEM", "truststore_location": "key.p12"}, "it is not a PEM file"),
        ({"truststore_type": "PKCS12", "truststore_location": "cert.pem"}, "it is not a PKCS12 file"),
        (
            {"truststore_type": "PKCS12", "truststore_location": "key.p12", "truststore_password": "wrong"},
            "ssl.truststore.password is wrong",
        ),
        ({"keystore_type": "PEM", "keystore_location": "cert.pem"}, "key or certificate can't be used"),
        (
            {"keystore_type": "PEM", "keystore_location": "encrypted-and-cert.pem"},
            "if the key is encrypted, give ssl.key.password",
        ),
        (
            {"keystore_type": "PEM", "keystore_location": "encrypted-and-cert.pem", "key_password": "wrong"},
            "key or certificate can't be used",
        ),
    ],
)
def test_stores_that_can_not_be_used_are_named(
    files: Path, monkeypatch: pytest.MonkeyPatch, stores: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(files)
    with pytest.raises(SecurityConfigError) as refused:
        client_context(**stores)
    assert said in str(refused.value)
    assert "store.location=" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_pkcs12_without_its_library_says_how_to_get_it(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SecurityConfigError, match=r"quorate\[pkcs12\]"):
        client_context(truststore_location=str(files / "key.p12"))


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
    ],
)
def test_cipher_suites_have_javas_names(suite: str, name: str) -> None:
    assert openssl_name(suite) == name
    context = client_context(cipher_suites=suite)
    assert name in {cipher["name"] for cipher in context.get_ciphers()}
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2


def test_versions_and_suites_go_together() -> None:
    context = client_context(cipher_suites="TLS_AES_256_GCM_SHA384")
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    with pytest.raises(SecurityConfigError, match=r"none of them is for ssl\.enabled\.protocols=TLSv1\.2"):
        client_context(cipher_suites="TLS_AES_256_GCM_SHA384", enabled_protocols="TLSv1.2")
    with pytest.raises(SecurityConfigError, match="TLS_FOO is not supported"):
        client_context(cipher_suites="TLS_FOO")
