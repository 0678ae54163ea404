"""Names in certificates: those of a real one, and malformed bytes. Beside Java's: tests/golden."""

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.java.tls import Certificates
from quorate_controller.security.certificates import name_of, subject_of


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A client's certificate in DER."""
    made = Certificates.create(tmp_path_factory.mktemp("names") / "certificates")
    return ssl.PEM_cert_to_DER_cert(Path(made.client_certificate).read_text())


def test_the_subject_of_a_certificate_is_read(certificate: bytes) -> None:
    assert subject_of(certificate) == "CN=client"


@pytest.mark.parametrize(
    ("tag", "text", "printed"),
    [
        (0x0C, "é\0".encode(), "é\\00"),
        (0x0C, b"\xe9", "\ufffd"),
        (0x13, b"\xe9", "é"),
        (0x14, b"\xc3\xa9", "\xc3\xa9"),
        (0x16, b"a,b", "a\\,b"),
        (0x1B, b"\xe9", "é"),
        (0x1E, "é€,".encode("utf-16-be"), "é€\\,"),
        (0x1E, b"a", "\ufffd"),
        (0x1E, b"\xd8\x00", "\ufffd"),
        (0x1C, b"\0\0\0a", "#1c0400000061"),
    ],
)
def test_each_kind_of_text_is_decoded_as_in_java(tag: int, text: bytes, printed: str) -> None:
    assert name_of(locality(tag, text)) == f"L={printed}"


def test_a_character_beyond_the_bmp_is_refused_in_a_bmp_string() -> None:
    with pytest.raises(ValueError, match="BMPString"):
        name_of(locality(0x1E, "😀".encode("utf-16-be")))


def locality(tag: int, text: bytes) -> bytes:
    """A DER name of one attribute."""
    value = b"\x06\x03\x55\x04\x07" + bytes((tag, len(text))) + text
    for outer in (0x30, 0x31, 0x30):
        value = bytes((outer, len(value))) + value
    return value


@given(data=st.data())
def test_hostile_bytes_are_refused(certificate: bytes, data: st.DataObject) -> None:
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
