"""Certificates of a played cluster's own authority, which are kept beside its Secrets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from quorate_operator.models.manifests import ManifestError, Manifests
from quorate_operator.models.secrets import Secret, secret_uses
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import PlayError


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCertificates:
    """The Secrets of listeners that name no certificate, and the authority that issued them."""

    authority: Mapping[str, str] | None = field(default=None, repr=False)
    secrets: Mapping[str, Secret] = field(default_factory=dict)

    def added_to(self, manifests: Manifests) -> Manifests:
        """Return manifests with these Secrets."""
        return replace(manifests, secrets={**manifests.secrets, **self.secrets})


def check_names(manifests: Manifests, source: str) -> None:
    """Refuse a Secret of a name that is written for a listener. Raises ManifestError."""
    for name, where in own_uses(manifests).items():
        if name in manifests.secrets:
            raise ManifestError(
                f"{source}: {where}: the Secret {name} would be written for it; name it in "
                "tls.secretName, or rename it"
            )


def stored_certificates(manifests: Manifests, directory: PlayDirectory) -> OwnCertificates:
    """Return what the directory of a cluster has. Raises PlayError."""
    names = own_uses(manifests)
    if not names:
        return OwnCertificates()
    found = {name: _read_secret(directory, name) for name in names}
    return OwnCertificates(
        authority=_read_authority(directory),
        secrets={name: secret for name, secret in found.items() if secret is not None},
    )


def write_certificates(own: OwnCertificates, directory: PlayDirectory) -> None:
    """Write the authority; the Secrets are written with those of the manifest. Raises PlayError."""
    if own.authority is not None:
        directory.write(directory.authority, json.dumps(own.authority))


def own_uses(manifests: Manifests) -> dict[str, str]:
    """Return the name of each Secret that is written for a listener, and the listener's field."""
    uses = secret_uses(manifests.controllers, manifests.brokers)
    return {use.name: use.where for use in uses if use.is_own}


def _read_secret(directory: PlayDirectory, name: str) -> Secret | None:
    try:
        return Secret(values={file.name: file.read_text() for file in (directory.secrets / name).iterdir()})
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise PlayError(f"{directory.secrets / name} can't be read: {error}") from error


def _read_authority(directory: PlayDirectory) -> Mapping[str, str] | None:
    try:
        found = json.loads(directory.authority.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise PlayError(f"{directory.authority} can't be read: {error}") from error
    is_whole = isinstance(found, dict) and all(isinstance(text, str) for text in found.values())
    return found if is_whole else {}  # which the decision refuses
