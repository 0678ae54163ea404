"""The certificate of a key store, as the server shows it."""

import base64

import pytest
from quorate_protocol.security.stores import SecurityConfigError, Store, StoreType
from quorate_protocol.security.tls import leaf_certificate

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def store(pem: str) -> Store:
    """A key store with its content."""
    return Store(prefix="ssl.keystore", type=StoreType.PEM, location="server.pem", pem=pem)


def test_the_first_certificate_is_that_of_the_key() -> None:
    first, second = (f"{BEGIN}\n{base64.b64encode(der).decode()}\n{END}\n" for der in (b"leaf", b"authority"))
    assert leaf_certificate(store(f"a key\n{first}{second}")) == b"leaf"


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        ("a key", "it has no certificate$"),
        (f"{BEGIN}\nxxxxx\n{END}\n", "its certificate can't be read: .*base64"),
    ],
)
def test_a_damaged_certificate_is_not_a_missing_one(pem: str, said: str) -> None:
    with pytest.raises(SecurityConfigError, match=f"server.pem: {said}"):
        leaf_certificate(store(pem))
