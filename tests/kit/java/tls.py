"""Certificates for a test run, made by openssl: an authority, a server on loopback, and a client."""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

OPENSSL_TIMEOUT_S = 30
DAYS = "2"
CLIENT = "client"
CLIENT_PRINCIPAL = f"User:CN={CLIENT}"


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files. `server` and `client` hold key and certificate, as Kafka's PEM keystores want them."""

    authority: Path
    server: Path
    client: Path
    client_key: Path
    client_certificate: Path
    other_authority: Path
    """An authority that has signed nothing."""

    @classmethod
    def create(cls, directory: Path, server_names: str = "DNS:localhost,IP:127.0.0.1") -> Self:
        """Make them all in a directory. `server_names` are the subject alternative names of the server."""
        directory.mkdir(parents=True)
        for authority in ("ca", "other-ca"):
            at = directory / authority
            _new_certificate(
                f"-subj /CN={authority} -addext keyUsage=critical,keyCertSign -keyout {at}.key -out {at}.pem"
            )
        signed(directory, "server", server_names)
        signed(directory, CLIENT, "DNS:client")
        return cls(
            authority=directory / "ca.pem",
            server=directory / "server.pem",
            client=directory / f"{CLIENT}.pem",
            client_key=directory / f"{CLIENT}.key",
            client_certificate=directory / f"{CLIENT}.crt",
            other_authority=directory / "other-ca.pem",
        )


def signed(
    directory: Path,
    name: str,
    alternative_names: str = "DNS:localhost,IP:127.0.0.1",
    *,
    authority: str = "ca",
    common_name: str | None = None,
) -> Path:
    """Make a key and a certificate in a directory of `Certificates`. Returns the PEM file that has both.

    `authority` is `ca` or `other-ca`.
    """
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    signer = directory / authority
    _new_certificate(
        f"-CA {signer}.pem -CAkey {signer}.key -subj {shlex.quote(f'/CN={common_name or name}')} "
        f"-addext subjectAltName={alternative_names} -addext basicConstraints=critical,CA:FALSE "
        f"-keyout {key} -out {certificate}"
    )
    both = directory / f"{name}.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both


def _new_certificate(options: str) -> None:
    command = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days {DAYS} {options}"
    ran = subprocess.run(
        shlex.split(command), capture_output=True, text=True, timeout=OPENSSL_TIMEOUT_S, check=False
    )
    assert ran.returncode == 0, ran.stderr
