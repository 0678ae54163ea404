"""cert-manager and an issuer, as tests play them for one Certificate of a namespace."""

from pathlib import Path
from typing import Any

import kubernetes.client
from kit.java.tls import Certificates, signed
from kit.operators.operated import Operated
from kubernetes.client import ApiException

GROUP, VERSION = "cert-manager.io", "v1"
DEFINITION = "certificates.cert-manager.io"


class Issuer:
    """What cert-manager does with the Certificate of a name. `made` has the issuer's authority."""

    def __init__(self, operated: Operated, name: str, directory: Path, server_names: str = "") -> None:
        self._operated = operated
        self._name = name
        self._api = kubernetes.client.CustomObjectsApi(operated.core.api_client)
        self._directory = directory
        self.made = Certificates.create(directory, *([server_names] if server_names else []))

    def certificate(self) -> dict[str, Any] | None:
        """The Certificate, or None."""
        try:
            return dict(
                self._api.get_namespaced_custom_object(
                    GROUP, VERSION, self._operated.namespace, "certificates", self._name
                )
            )
        except ApiException as error:
            if error.status != 404:
                raise
            return None

    def set_conditions(self, *conditions: tuple[str, str, str, str]) -> None:
        """Write conditions: type, status, reason and message of each."""
        reported = [
            {"type": kind, "status": status, "reason": reason, "message": message}
            for kind, status, reason, message in conditions
        ]
        status = {"status": {"conditions": reported}}
        self._api.patch_namespaced_custom_object_status(
            GROUP, VERSION, self._operated.namespace, "certificates", self._name, status
        )

    def issue(self, spec: dict[str, Any]) -> Path:
        """Sign a certificate with the names that are asked for and no others, and write its Secret.

        Returns:
            a PEM file with the key and the certificate.
        """
        names = [f"DNS:{name}" for name in spec.get("dnsNames", ())]
        names += [f"IP:{address}" for address in spec.get("ipAddresses", ())]
        # openssl writes no empty list of names; that of a user is not looked at.
        names = names or ["DNS:none.invalid"]
        both = signed(self._directory, "issued", ",".join(names), common_name=spec["commonName"])
        texts = {
            "tls.crt": (self._directory / "issued.crt").read_text(),
            "tls.key": (self._directory / "issued.key").read_text(),
            "ca.crt": self.made.authority.read_text(),
        }
        annotations = {f"{GROUP}/certificate-name": self._name}
        self._operated.put_secret(spec["secretName"], texts, annotations)
        self.set_conditions(("Ready", "True", "Ready", "Certificate is up to date and has not expired"))
        return both


def remove_definition(client: kubernetes.client.ApiClient) -> None:
    """Make an API server one that knows no Certificates."""
    try:
        kubernetes.client.ApiextensionsV1Api(client).delete_custom_resource_definition(DEFINITION)
    except ApiException as error:
        if error.status != 404:
            raise
