"""Security of listeners and authorization: TLS and SASL with Secrets of the same namespace, ACLs, super users."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import ConfigDict, Field, PrivateAttr, StringConstraints, model_validator

from quorate_operator.models.base import Duration, Model, ResourceName, duration_ms, rules

SUPER_USERS_MAX = 100
AUDIENCES_MAX = 20
CLOCK_SKEW_MAX_S = 3600
OAUTHBEARER = "OAUTHBEARER"
TLS_CERTIFICATE, TLS_KEY, TLS_AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
"""The keys of a Secret with a certificate, as cert-manager writes them."""
KEY_SET = "jwks.json"
"""The key of a Secret with a JSON Web Key Set."""
ANONYMOUS = "User:ANONYMOUS"
AUTHORIZER_KEYS = ("authorizer.class.name", "super.users")
"""The properties that `authorization` sets."""

_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

Protocol = Literal["PLAINTEXT", "SSL", "SASL_SSL"]
ClientAuth = Literal["none", "requested", "required"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
UserName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=63)]
"""A user whose password is in a Secret; the user's name is also the key in the Secret."""
Principal = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]+:[^;\s][^;]*$", max_length=500)]

IssuerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=253)]

JwksUrl = Annotated[
    str,
    StringConstraints(
        # It becomes an item of a list and a word of a shell: no comma, quote or dollar sign.
        pattern=r"^https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._~:/@!&+;=%?-]*)?$",
        max_length=500,
    ),
]
# With a dollar sign it could be a variable of Kafka's properties.
Issuer = Annotated[str, StringConstraints(pattern=r"^[!-#%-~]+$", max_length=500)]
Audience = Annotated[str, StringConstraints(pattern=r"^[!-#%-+\--~]+$", max_length=253)]
ClaimName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:/-]+$", max_length=253)]

_ONE_SOURCE = "secretName: this or issuerRef may be set, and only one of them"
_ISSUED_ONLY = "is allowed with issuerRef only"
_NOT_GIVEN = "is not allowed with secretName"
# The limits and the default of cert-manager.
_DURATION_MIN, _RENEWAL_MIN, _DURATION_DEFAULT = "1h", "5m", "90d"
_PLAIN_FIRST = (
    "the first must be PLAIN: controllers log in at each other with it, because the credentials of SCRAM are in the "
    "log that they have yet to read"
)
_ONE_KEY_SET = "jwksUrl: this or jwksSecretName is needed, and only one of them"
_TRUST_RULE = "is allowed with a jwksUrl that begins with https: only"
_OAUTH_RULE = "is needed with the mechanism OAUTHBEARER, and allowed with no other"
_LOGIN_RULE = "is needed with PLAIN and SCRAM, and not allowed with OAUTHBEARER alone"
_TOKENS_LAST = (
    "OAUTHBEARER must be alone or come after PLAIN or SCRAM: the operator logs in with the first mechanism, "
    "and has no token"
)
REAUTHENTICATION_MIN = "1s"
TOKENS_ALONE_RULE = (
    "OAUTHBEARER alone is allowed on the other listeners only: brokers and the operator log in at the first one, "
    "with PLAIN or SCRAM"
)
_ONCE = "each mechanism may appear once"
_HAS_ISSUER = {
    "rule": f"(has(self.mechanisms) && '{OAUTHBEARER}' in self.mechanisms) == has(self.oauth)",
    "message": f"oauth {_OAUTH_RULE}",
}
_EACH_ONCE = {"rule": "self.all(one, self.exists_one(other, other == one))", "message": _ONCE}


class IssuerRef(Model):
    """The issuer of the certificate in cert-manager, in the same namespace unless it is a ClusterIssuer."""

    name: IssuerName = Field(description="The issuer's name.")
    kind: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=63)] = Field(
        default="Issuer", description="Issuer, ClusterIssuer, or the kind of an external issuer."
    )
    group: IssuerName = Field(default="cert-manager.io", description="The API group of that kind.")


ISSUED_RULES = tuple(
    {"rule": f"!has(self.{field}) || has(self.issuerRef)", "message": f"{field} {_ISSUED_ONLY}"}
    for field in ("duration", "renewBefore")
)


def check_validity(
    duration: str | None, renew_before: str | None, *, is_issued: bool, rule: str = _ISSUED_ONLY
) -> None:
    """Raise ValueError for times of an issued certificate that cert-manager would refuse, or of another one."""
    for field, text, least in (
        ("duration", duration, _DURATION_MIN),
        ("renewBefore", renew_before, _RENEWAL_MIN),
    ):
        if text is not None and not is_issued:
            raise ValueError(f"{field}: {rule}")
        if text is not None and duration_ms(text) < duration_ms(least):
            raise ValueError(f"{field}: {text!r}: must be {least} or more")
    valid_ms = duration_ms(duration or _DURATION_DEFAULT)
    if renew_before is not None and duration_ms(renew_before) >= valid_ms:
        raise ValueError(
            f"renewBefore: {renew_before!r}: must be less than duration, which is {duration or _DURATION_DEFAULT}"
        )


class Tls(Model):
    """The certificate of a listener, and whether clients show one."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {"rule": "!has(self.secretName) || !has(self.issuerRef)", "message": _ONE_SOURCE},
            *(
                {"rule": f"!has(self.{field}) || !has(self.secretName)", "message": f"{field} {_NOT_GIVEN}"}
                for field in ("duration", "renewBefore")
            ),
        )
    )

    secret_name: ResourceName | None = Field(
        default=None,
        description=(
            "A Secret with tls.crt and tls.key, and ca.crt: the authorities that nodes and the operator trust, and "
            "whose certificates clients may show. Controllers of Quorate follow a change, other nodes restart "
            "one by one. Default, on Kubernetes, without issuerRef: the operator issues the certificate, by an "
            "authority of the cluster, and keeps it in the Secret POOL-LISTENER-tls."
        ),
    )
    issuer_ref: IssuerRef | None = Field(
        default=None,
        description=(
            "In place of secretName, on Kubernetes: the issuer from which cert-manager gets the certificate. The "
            "operator keeps a Certificate with the names of the listener; it and its Secret are called "
            "POOL-LISTENER-tls."
        ),
    )
    duration: Duration | None = Field(
        default=None,
        description="Without secretName: how long a certificate is valid, 1h or more. Default: 90 days.",
    )
    renew_before: Duration | None = Field(
        default=None,
        description=(
            "Without secretName: how long before its end a certificate is renewed, 5m or more. Default: a third of "
            "the duration."
        ),
    )
    client_auth: ClientAuth = Field(
        default="none",
        description="ssl.client.auth: whether clients show a certificate. requested and required need ca.crt.",
    )

    _chosen: str | None = PrivateAttr(default=None)

    @property
    def is_given(self) -> bool:
        """Whether the manifest names a Secret; otherwise the certificate is issued."""
        return self.secret_name is not None

    @property
    def is_own(self) -> bool:
        """Whether the cluster's own authority issues the certificate."""
        return self.secret_name is None and self.issuer_ref is None

    @property
    def secret(self) -> str:
        """The name of the Secret. `manifests.joined` chooses that of an issued certificate."""
        name = self.secret_name or self._chosen
        assert name is not None, "the names of Secrets are chosen before they are used"
        return name

    def named(self, secret: str) -> Self:
        """Return the same with this name for the Secret of an issued certificate."""
        named = self.model_copy()
        named._chosen = secret  # noqa: SLF001 - of the same class
        return named

    @model_validator(mode="after")
    def _certificate_comes_from_one_place(self) -> Self:
        if self.secret_name is not None and self.issuer_ref is not None:
            raise ValueError(_ONE_SOURCE)
        check_validity(self.duration, self.renew_before, is_issued=not self.is_given, rule=_NOT_GIVEN)
        return self


class OAuth(Model):
    """The tokens that a listener accepts from clients (OAUTHBEARER, KIP-768): signed JSON Web Tokens."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {"rule": "has(self.jwksUrl) != has(self.jwksSecretName)", "message": _ONE_KEY_SET},
            {
                "rule": "!has(self.trustedSecretName) || has(self.jwksUrl) && self.jwksUrl.startsWith('https:')",
                "message": f"trustedSecretName {_TRUST_RULE}",
            },
        )
    )

    jwks_url: JwksUrl | None = Field(
        default=None,
        description=(
            "Where nodes read the issuer's public keys: the https: URL of its JSON Web Key Set. With an http: URL, "
            "anyone on the network path can replace the keys, and log in as any user."
        ),
    )
    jwks_secret_name: ResourceName | None = Field(
        default=None,
        description=(
            f"In place of jwksUrl: a Secret whose key {KEY_SET} is the JSON Web Key Set. Nodes follow a change."
        ),
    )
    issuer: Issuer = Field(description="The claim iss that tokens must have.")
    audiences: Annotated[
        tuple[Audience, ...],
        Field(
            strict=False,
            min_length=1,
            max_length=AUDIENCES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = Field(description="Values of the claim aud, of which a token must have one.")
    subject_claim: ClaimName | None = Field(
        default=None,
        description="The claim with the name of the user: the principal is User: and its value. Default: sub.",
    )
    clock_skew_seconds: Annotated[int, Field(ge=0, le=CLOCK_SKEW_MAX_S)] | None = Field(
        default=None, description="How much the clocks of the issuer and of nodes may differ. Default: 30."
    )
    trusted_secret_name: ResourceName | None = Field(
        default=None,
        description=(
            "A Secret with ca.crt: the authorities that nodes trust at jwksUrl. A change restarts the nodes. "
            "Default: the authorities that Java trusts, or those of the image for controllers of Quorate."
        ),
    )

    @model_validator(mode="after")
    def _keys_come_from_one_place(self) -> Self:
        if (self.jwks_url is None) == (self.jwks_secret_name is None):
            raise ValueError(_ONE_KEY_SET)
        if self.trusted_secret_name is not None and not (self.jwks_url or "").startswith("https:"):
            raise ValueError(f"trustedSecretName: {_TRUST_RULE}")
        return self


def _mechanisms(most: int, *further_rules: Mapping[str, str]) -> Any:
    """Return the field of a list of mechanisms, with its rules for the API server."""
    return Field(
        strict=False,
        min_length=1,
        max_length=most,
        json_schema_extra=rules(_EACH_ONCE, *further_rules) | {"x-kubernetes-list-type": "atomic"},
    )


class Sasl(Model):
    """Which mechanisms clients log in with, and how the nodes themselves do."""

    model_config = ConfigDict(json_schema_extra=rules(_HAS_ISSUER))

    mechanisms: tuple[Mechanism, ...]
    username: UserName | None
    secret_name: ResourceName | None
    oauth: OAuth | None = Field(
        default=None, description="Which tokens are valid; required with the mechanism OAUTHBEARER."
    )
    reauthentication: Duration | None = Field(
        default=None,
        description=(
            "connections.max.reauth.ms: after which time clients must log in again, 1s or more; connections of those "
            "that do not are closed. Default: when their token expires; clients with passwords need not."
        ),
    )

    @property
    def has_tokens_alone(self) -> bool:
        """Whether clients log in with tokens alone; nodes and the operator can't."""
        return self.mechanisms == (OAUTHBEARER,)

    @property
    def user(self) -> str:
        """The user that nodes and the operator log in as. Not for listeners with tokens alone."""
        assert self.username is not None, "this listener has tokens alone"
        return self.username

    @property
    def secret(self) -> str:
        """The name of the Secret with passwords. Not for listeners with tokens alone."""
        assert self.secret_name is not None, "this listener has tokens alone"
        return self.secret_name

    @model_validator(mode="after")
    def _mechanisms_are_different(self) -> Self:
        if len(set(self.mechanisms)) != len(self.mechanisms):
            raise ValueError(f"mechanisms: {', '.join(self.mechanisms)}: {_ONCE}")
        return self

    @model_validator(mode="after")
    def _tokens_have_an_issuer(self) -> Self:
        if (OAUTHBEARER in self.mechanisms) != (self.oauth is not None):
            raise ValueError(f"oauth: {_OAUTH_RULE}; mechanisms are {', '.join(self.mechanisms)}")
        return self

    @model_validator(mode="after")
    def _sessions_last(self) -> Self:
        lasting = self.reauthentication
        if lasting is not None and duration_ms(lasting) < duration_ms(REAUTHENTICATION_MIN):
            raise ValueError(f"reauthentication: {lasting!r}: must be {REAUTHENTICATION_MIN} or more")
        return self


_USERNAME = "The user that nodes and the operator log in as."
_PASSWORDS = (
    "A Secret with the password of `username`, under the key of that name. With PLAIN, each of its keys is a user "
    "that may log in. A change restarts the nodes."
)


class BrokerSasl(Sasl):
    """As for controllers; a listener that brokers do not use among themselves may take tokens alone."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            _HAS_ISSUER,
            *(
                {
                    "rule": f"has(self.{field}) == (!has(self.mechanisms) || self.mechanisms != ['{OAUTHBEARER}'])",
                    "message": f"{field} {_LOGIN_RULE}",
                }
                for field in ("username", "secretName")
            ),
        )
    )

    mechanisms: Annotated[
        tuple[Mechanism, ...],
        _mechanisms(
            len(get_args(Mechanism)),
            {"rule": f"self[0] != '{OAUTHBEARER}' || size(self) == 1", "message": _TOKENS_LAST},
        ),
    ] = Field(
        default=("SCRAM-SHA-512",),
        description=(
            "sasl.enabled.mechanisms. Nodes and the operator log in with the first, which is PLAIN or SCRAM. "
            "OAUTHBEARER alone is allowed, except on the first listener."
        ),
    )
    username: UserName | None = Field(default=None, description=f"{_USERNAME} It {_LOGIN_RULE}.")
    secret_name: ResourceName | None = Field(default=None, description=f"{_PASSWORDS} It {_LOGIN_RULE}.")

    @model_validator(mode="after")
    def _passwords_are_given_where_they_are_used(self) -> Self:
        if self.mechanisms[0] == OAUTHBEARER and not self.has_tokens_alone:
            raise ValueError(f"mechanisms: {', '.join(self.mechanisms)}: {_TOKENS_LAST}")
        for field, value in (("username", self.username), ("secretName", self.secret_name)):
            if (value is None) != self.has_tokens_alone:
                raise ValueError(f"{field}: {_LOGIN_RULE}; mechanisms are {', '.join(self.mechanisms)}")
        return self


class ControllerSasl(Sasl):
    """As for brokers; controllers log in at each other with PLAIN."""

    mechanisms: Annotated[
        tuple[Mechanism, ...],
        _mechanisms(len(get_args(Mechanism)), {"rule": "self[0] == 'PLAIN'", "message": _PLAIN_FIRST}),
    ] = Field(
        default=("PLAIN", "SCRAM-SHA-512"),
        description="sasl.enabled.mechanisms. Nodes and the operator log in with the first, which is PLAIN.",
    )
    username: UserName = Field(description=_USERNAME)
    secret_name: ResourceName = Field(description=_PASSWORDS)

    @model_validator(mode="after")
    def _plain_comes_first(self) -> Self:
        if self.mechanisms[0] != "PLAIN":
            raise ValueError(f"mechanisms: {', '.join(self.mechanisms)}: {_PLAIN_FIRST}")
        return self


class Authorization(Model):
    """StandardAuthorizer on all controllers and brokers: allows what an ACL allows, and everything to super users."""

    super_users: Annotated[
        tuple[Principal, ...],
        Field(
            strict=False,
            min_length=1,
            max_length=SUPER_USERS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = Field(
        description="super.users: principals that may do everything, among them those of the nodes: User:node.",
    )

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the authorizer, for controllers and brokers."""
        authorizer, super_users = AUTHORIZER_KEYS
        return {authorizer: _AUTHORIZER, super_users: ";".join(self.super_users)}


class ClusterAuthority(Model):
    """The authority that issues the certificates of listeners that name neither a Secret nor an issuer."""

    lead_time: Duration = Field(
        default="24h",
        description="When another authority follows: how long at least it is trusted by nodes, and published in the "
        "ConfigMap CLUSTER-ca-cert, before certificates are of it. Until then, clients have to trust it. 0s: no "
        "longer than nodes need.",
    )

    @property
    def lead_time_ms(self) -> int:
        return duration_ms(self.lead_time)


class ScramUsers(Model):
    """The SCRAM users that a new cluster begins with."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {
                "rule": "self == oldSelf",
                "message": "can't be changed: it is read when the cluster is formed; use kafka-configs --alter "
                "--entity-type users, which changes users of a running cluster",
            }
        )
    )

    mechanism: ScramMechanism = Field(
        default="SCRAM-SHA-512", description="The mechanism of their credentials."
    )
    secret_name: ResourceName = Field(
        description="A Secret whose keys are users and whose values are their passwords. It is read only when the "
        "cluster is formed."
    )
