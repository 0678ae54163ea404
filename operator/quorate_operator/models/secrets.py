"""Secrets that resources name: the keys that they need, and their faults. No message or repr has values."""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from quorate_operator.models.base import Metadata, Model
from quorate_operator.models.listeners import Listener
from quorate_operator.models.security import (
    KEY_SET,
    TLS_AUTHORITIES,
    TLS_CERTIFICATE,
    TLS_KEY,
    OAuth,
    Sasl,
    Tls,
)
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController

PASSWORD_LENGTH_MAX = 256
_PASSWORD = re.compile(rf"[!#-+\--\[\]-~]{{1,{PASSWORD_LENGTH_MAX}}}")
_PASSWORD_RULE = (
    f"must have 1 to {PASSWORD_LENGTH_MAX} characters of ASCII, without blanks, commas, double quotes, backslashes "
    "and a line break at the end"
)
FOR_LISTENERS = "quorate.dev/for-listeners"
"""The label of a Secret that nodes of Kafka clusters may read: certificates, passwords, issuers' keys."""
FOR_USERS = "quorate.dev/for-kafka-users"
"""The label of a Secret whose password KafkaUsers may get."""
FOR_SERVERS = "quorate.dev/for-bootstrap-servers"
"""The label of a Secret with which the operator may log in at `bootstrapServers`."""
_CERTIFICATE_NAME = "cert-manager.io/certificate-name"
"""The annotation of a Secret with the name of the Certificate that it belongs to."""
_ITERATIONS = 10_000
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def _check_key(key: str) -> str:
    if not _KEY.fullmatch(key) or key in (".", ".."):
        raise ValueError("a key must have 1 to 253 letters, digits, '.', '_' and '-', and is no directory")
    return key


SecretKey = Annotated[str, AfterValidator(_check_key)]


class SecretManifest(Model):
    """`kind: Secret`, as it is applied."""

    api_version: Literal["v1"]
    kind: Literal["Secret"]
    metadata: Metadata
    type: str = "Opaque"
    immutable: bool | None = None
    data: dict[SecretKey, str] = Field(default_factory=dict, repr=False)
    string_data: dict[SecretKey, str] = Field(default_factory=dict, repr=False)

    def content(self) -> "Secret":
        """Return the values. Raises ValueError, which names the key."""
        return secret_of(self.data, self.string_data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """The texts of a Secret by key."""

    values: Mapping[str, str] = field(repr=False)
    salt: str = ""
    """The salt of the fingerprints: the Secret's uid on Kubernetes."""

    def fingerprint(self, key: str) -> str:
        """Return a salted hash that changes with the value, and is expensive to compute for guesses (PBKDF2)."""
        return _fingerprint(f"{self.salt} {key}", self.values[key])


def is_labelled(secret: Mapping[str, Any], label: str) -> bool:
    """Whether the owner of a Secret, as the API server describes it, allows the use that a label stands for.

    Users who may create Quorate's resources need not be allowed to read Secrets. So a name alone gives no access.
    """
    return (secret["metadata"].get("labels") or {}).get(label) == "true"


def no_labelled_secret(where: str, name: str, label: str) -> str:
    """Return the refusal of a Secret that does not exist or has no label: users can't find out which."""
    return f'{where}: {name!r}: no such Secret with the label {label}: "true"'


def certificate_of(secret: Mapping[str, Any]) -> str | None:
    """Return the name of the Certificate for which cert-manager wrote a Secret, or None."""
    name = (secret["metadata"].get("annotations") or {}).get(_CERTIFICATE_NAME)
    return None if name is None else str(name)


def secret_of(data: Mapping[str, Any], string_data: Mapping[str, str], salt: str = "") -> Secret:
    """Return the Secret of base64 and of plain texts, which take precedence. Values that are not UTF-8 are left out.

    Raises:
        ValueError: data is not base64.
    """
    values = {}
    for key, encoded in data.items():
        try:
            values[key] = base64.b64decode(encoded, validate=True).decode()
        except UnicodeDecodeError:
            continue
        except ValueError:
            raise ValueError(f"data.{key}: is not base64; stringData takes plain text") from None
    return Secret(values={**values, **string_data}, salt=salt)


@lru_cache(maxsize=1024)
def _fingerprint(salt: str, value: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", value.encode(), salt.encode(), _ITERATIONS)[:12].hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretUse:
    """A field that names a Secret, and the keys that it needs."""

    where: str
    """`KafkaBroker brokers: spec.listeners[0].tls.secretName`"""
    name: str
    needs: tuple[str, ...]
    is_initial: bool = False
    """Whether it is read only until the cluster is formed."""
    has_passwords: bool = False
    """Whether its values are passwords: those of the keys in `needs`, or of all keys if `needs` is empty."""
    pool: str | None = None
    """The quorum or pool whose listener it is; None if it is of the whole cluster."""
    is_issued: bool = False
    """Whether cert-manager writes the Secret, for a Certificate of the same name."""
    is_own: bool = False
    """Whether the operator writes the Secret, with a certificate of the cluster's authority."""

    def fault(self, secrets: Mapping[str, Secret], place: str) -> str | None:
        """Return what is wrong with the Secret; `place` is where it is looked for: `kafka`, `secrets.yaml`."""
        secret = secrets.get(self.name)
        keys = " and ".join(self.needs) or "a key for each user"
        if secret is None:
            return f"{self.where}: {self.name!r}: no such Secret in {place}; it must have {keys}"
        lacks = [key for key in self.needs if key not in secret.values]
        if lacks or not secret.values:
            lacking = " and no ".join(lacks) or "key"
            return f"{self.where}: {self.name!r}: the Secret has no {lacking}; it must have {keys}"
        for key in (self.needs or sorted(secret.values)) if self.has_passwords else ():
            if _PASSWORD.fullmatch(secret.values[key]) is None:
                return f"{self.where}: {self.name!r}: the password of {key!r} {_PASSWORD_RULE}"
        return None


def secret_uses(quorum: KafkaController, pools: Sequence[KafkaBroker]) -> Iterator[SecretUse]:
    """Yield each field that names a Secret."""
    resources: tuple[KafkaController | KafkaBroker, ...] = (quorum, *pools)
    for resource in resources:
        for place, listener in enumerate(resource.spec.listeners):
            where = f"{resource.kind} {resource.metadata.name}: spec.listeners[{place}]"
            for use in _of_listener(where, listener, is_controllers=resource is quorum):
                yield replace(use, pool=resource.metadata.name)
    users = quorum.spec.scram_users
    if users is not None:
        where = f"KafkaController {quorum.metadata.name}: spec.scramUsers.secretName"
        yield SecretUse(where=where, name=users.secret_name, needs=(), is_initial=True, has_passwords=True)


def _of_listener(where: str, listener: Listener, *, is_controllers: bool) -> Iterator[SecretUse]:
    if listener.tls is not None:
        is_issued, is_own = listener.tls.issuer_ref is not None, listener.tls.is_own
        field_name = "tls" if is_own else "tls.issuerRef" if is_issued else "tls.secretName"
        yield SecretUse(
            where=f"{where}.{field_name}",
            name=listener.tls.secret,
            needs=tls_keys(listener.tls, is_controllers=is_controllers),
            is_issued=is_issued,
            is_own=is_own,
        )
    if listener.sasl is not None and not listener.sasl.has_tokens_alone:
        yield SecretUse(
            where=f"{where}.sasl.secretName",
            name=listener.sasl.secret,
            needs=(listener.sasl.user,),
            has_passwords=True,
        )
    oauth = oauth_of(listener)
    if oauth is not None:
        for field_name, (name, key) in oauth_files(oauth).items():
            yield SecretUse(where=f"{where}.sasl.oauth.{field_name}", name=name, needs=(key,))


def oauth_of(listener: Listener) -> OAuth | None:
    """Return whose tokens a listener accepts; None if it accepts none."""
    return None if listener.sasl is None else listener.sasl.oauth


def oauth_files(oauth: OAuth) -> dict[str, tuple[str, str]]:
    """Return the Secret and its key by the field that names it.

    Kafka reads these as files: a property has their path, and not their content.
    """
    named = {
        "jwksSecretName": (oauth.jwks_secret_name, KEY_SET),
        "trustedSecretName": (oauth.trusted_secret_name, TLS_AUTHORITIES),
    }
    return {place: (name, key) for place, (name, key) in named.items() if name is not None}


def tls_keys(tls: Tls, *, is_controllers: bool) -> tuple[str, ...]:
    """Return the keys that a certificate's Secret needs.

    Controllers need the authorities: with these, controllers verify each other and brokers verify controllers.
    """
    has_authorities = is_controllers or tls.client_auth != "none"
    return (TLS_CERTIFICATE, TLS_KEY, *((TLS_AUTHORITIES,) if has_authorities else ()))


def plain_users(sasl: Sasl, secrets: Mapping[str, Secret]) -> tuple[str, ...]:
    """Return the users that may log in with PLAIN: that of the nodes, and each other key of the Secret."""
    secret = secrets.get(sasl.secret)
    others = () if secret is None else (key for key in sorted(secret.values) if key != sasl.user)
    return (sasl.user, *others)
