"""Names in certificates: those of a real one, and bytes that are none. Beside Java's: tests/golden."""

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.java.tls import Certificates
from quorate_controller.security.distinguished_names import subject_of


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A client's certificate in DER."""
    made = Certificates.create(tmp_path_factory.mktemp("names") / "certificates")
    return ssl.PEM_cert_to_DER_cert(Path(made.client_certificate).read_text())


def test_the_subject_of_a_certificate_is_read(certificate: bytes) -> None:
    """Goal: the holder, not the issuer. Method: a certificate that openssl made."""
    assert subject_of(certificate) == "CN=client"


@given(data=st.data())
def test_hostile_bytes_are_refused(certificate: bytes, data: st.DataObject) -> None:
    """Goal: no other exception than ValueError. Method: any bytes, and a certificate with some of them changed."""
    content = bytearray(certificate)
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    for hostile in (
        bytes(content),
        bytes(content[: data.draw(st.integers(0, len(content)))]),
        data.draw(st.binary()),
    ):
        try:
            assert isinstance(subject_of(hostile), str)
        except ValueError:
            continue
