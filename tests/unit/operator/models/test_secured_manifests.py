"""What manifests say of TLS, SASL and authorization, and the Secrets of a played file."""

import pytest
from quorate_operator.models.manifests import ManifestError, Manifests, load_manifests
from quorate_operator.models.secrets import oauth_of, secret_uses
from quorate_operator.planning.desired import desired_cluster

SASL = "protocol: SASL_SSL, tls: {secretName: c}, sasl: {username: node, secretName: login}"
MTLS = "protocol: SSL, tls: {secretName: c, clientAuth: required}"
BROKER_SASL = "protocol: SASL_SSL, tls: {secretName: b}, sasl: {username: broker, secretName: users}"
OAUTH = "issuer: 'https://sso.example.com', audiences: [kafka]"
HIDDEN = "hunter2"


def text_of(listener: str, more: str = "", brokers: str = "", secrets: str = "") -> str:
    """A quorum and a pool, of whose first listeners something is said, and Secrets."""
    return (
        "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum}\n"
        f"spec: {{listeners: [{{name: CONTROLLER, {listener}}}], {more}}}\n---\n"
        "apiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\nmetadata: {name: brokers}\n"
        f"spec: {{controllers: quorum, {brokers or f'listeners: [{{name: A, {BROKER_SASL}}}]'}}}\n{secrets}"
    )


def secret(name: str, **values: str) -> str:
    """A Secret as a YAML document; keys have underscores for dots."""
    content = ", ".join(f'{key.replace("_", ".")}: "{value}"' for key, value in values.items())
    return f"---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{{content}}}\n"


def load(*parts: str) -> Manifests:
    return load_manifests(text_of(*parts), "m.yaml")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            ("protocol: SASL_SSL, tls: {secretName: c}",),
            "KafkaController quorum: spec.listeners[0].sasl: is needed with protocol SASL_SSL",
        ),
        (
            (SASL.replace("username", "mechanisms: [SCRAM-SHA-512, PLAIN], username"),),
            "spec.listeners[0].sasl.mechanisms: SCRAM-SHA-512, PLAIN: the first must be PLAIN: controllers log in at",
        ),
        (
            (SASL.replace("username", "mechanisms: [PLAIN, PLAIN], username"),),
            "spec.listeners[0].sasl.mechanisms: PLAIN, PLAIN: each mechanism may appear once",
        ),
        (
            (SASL.replace("username", "mechanisms: [GSSAPI], username"),),
            "spec.listeners[0].sasl.mechanisms[0]: 'GSSAPI': must be 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512' or",
        ),
        (
            (SASL.replace("secretName: c", "secretName: c, clientAuth: yes please"),),
            "spec.listeners[0].tls.clientAuth: 'yes please': must be 'none', 'requested' or 'required'",
        ),
        *(
            ((f"protocol: SSL, tls: {{{tls}}}",), f"spec.listeners[0].tls.{expected}")
            for tls, expected in (
                (
                    "secretName: c, issuerRef: {name: ca}",
                    "secretName: this or issuerRef may be set, and only one",
                ),
                ("secretName: c, duration: 90d", "duration: is not allowed with secretName"),
                ("secretName: c, renewBefore: 1d", "renewBefore: is not allowed with secretName"),
                ("duration: 59m", "duration: '59m': must be 1h or more"),
                ("issuerRef: {name: ca}, duration: 59m", "duration: '59m': must be 1h or more"),
                ("issuerRef: {name: ca}, renewBefore: 4m", "renewBefore: '4m': must be 5m or more"),
                (
                    "issuerRef: {name: ca}, duration: 2h, renewBefore: 2h",
                    "renewBefore: '2h': must be less than duration, which is 2h",
                ),
                (
                    "issuerRef: {name: ca}, renewBefore: 90d",
                    "renewBefore: '90d': must be less than duration, which is 90d",
                ),
            )
        ),
        (
            (
                SASL,
                "",
                "listeners: [{name: A_B, LIKE}, {name: A__B, LIKE}, {name: A_B_, LIKE}]".replace(
                    "LIKE", "protocol: SSL, tls: {issuerRef: {name: ca}}"
                ),
            ),
            (
                "KafkaBroker brokers: spec.listeners[2].tls.issuerRef: its Certificate brokers-a-b-tls would be "
                "that of KafkaBroker brokers: spec.listeners[0], too; rename the listener"
            ),
        ),
        (
            (SASL, "", "listeners: [{name: A_B, protocol: SSL}, {name: A__B}, {name: A_B_, protocol: SSL}]"),
            (
                "KafkaBroker brokers: spec.listeners[2].tls: its Secret brokers-a-b-tls would be "
                "that of KafkaBroker brokers: spec.listeners[0], too; rename the listener"
            ),
        ),
        (
            (SASL, "authorization: {superUsers: [admin]}"),
            "spec.authorization.superUsers[0]: 'admin': must match pattern",
        ),
        (
            (SASL, 'authorization: {superUsers: ["User:node"]}'),
            (
                "KafkaController quorum: spec.authorization.superUsers: must have 'User:broker', which the brokers "
                "of brokers are at each other's listener A (SASL_SSL)"
            ),
        ),
        (
            ("protocol: PLAINTEXT", 'authorization: {superUsers: ["User:broker"]}'),
            "must have 'User:ANONYMOUS', which the controllers are at each other's listener CONTROLLER (PLAINTEXT)",
        ),
        (
            (SASL, 'authorization: {superUsers: ["User:a"]}, config: {super.users: "User:a"}'),
            "spec.config: super.users: follows from authorization of the KafkaController; remove one of them",
        ),
        (
            (
                SASL,
                'authorization: {superUsers: ["User:node"]}',
                f"listeners: [{{name: A, {BROKER_SASL}}}], config: {{authorizer.class.name: a.B}}",
            ),
            "KafkaBroker brokers: spec.config: authorizer.class.name: follows from authorization",
        ),
        (
            (SASL, "config: {config.providers: env}"),
            "spec.config: config.providers: can't be set beside tls or sasl",
        ),
        (
            (SASL.replace("username", "mechanisms: [PLAIN, OAUTHBEARER], username"),),
            "KafkaController quorum: spec.listeners[0].sasl.oauth: is needed with the mechanism OAUTHBEARER, and all",
        ),
        (
            (
                SASL.replace(
                    "username", f"mechanisms: [OAUTHBEARER], oauth: {{jwksSecretName: a, {OAUTH}}}, username"
                ),
            ),
            "KafkaController quorum: spec.listeners[0].sasl.mechanisms: OAUTHBEARER: the first must be PLAIN: contr",
        ),
        (
            (SASL.replace("username", "reauthentication: 999ms, username"),),
            "spec.listeners[0].sasl.reauthentication: '999ms': must be 1s or more",
        ),
        (
            (SASL.replace("username", "oauth: {realm: a}, username"),),
            "spec.listeners[0].sasl.oauth.realm: unknown field; allowed: jwksUrl, jwksSecretName, issuer, audiences",
        ),
        (
            (MTLS, "", "listeners: [{name: A}]"),
            "KafkaBroker brokers: spec.listeners: none has tls, but brokers show their certificate",
        ),
    ],
)
def test_faults_name_the_field_and_what_is_allowed(parts: tuple[str, ...], expected: str) -> None:
    with pytest.raises(ManifestError) as refused:
        load(*parts)
    assert expected in str(refused.value)


def test_all_nodes_have_the_authorizer() -> None:
    manifests = load(SASL, 'authorization: {superUsers: ["User:node", "User:broker"]}')
    for node in desired_cluster(manifests).nodes:
        assert node.config["super.users"] == "User:node;User:broker"
        assert node.config["authorizer.class.name"].endswith(".StandardAuthorizer")


def test_the_nodes_of_a_certificate_need_no_other_name() -> None:
    brokers = "listeners: [{name: A, protocol: SSL, tls: {secretName: b, clientAuth: required}}]"
    assert load(MTLS, 'authorization: {superUsers: ["User:CN=node,O=x"]}', brokers)


@pytest.mark.parametrize(
    ("sasl", "expected"),
    [
        (
            f"mechanisms: [OAUTHBEARER], oauth: {{jwksUrl: 'https://sso/keys', {OAUTH}}}",
            "username: is needed with PLAIN and SCRAM, and not allowed with OAUTHBEARER alone; mechanisms are OAUTH",
        ),
        (
            f"mechanisms: [OAUTHBEARER, PLAIN], oauth: {{jwksUrl: 'https://sso/keys', {OAUTH}}}",
            "mechanisms: OAUTHBEARER, PLAIN: OAUTHBEARER must be alone or come after PLAIN or SCRAM: the operator",
        ),
        (
            "mechanisms: [PLAIN, OAUTHBEARER]",
            "oauth: is needed with the mechanism OAUTHBEARER, and allowed with no other; mechanisms are PLAIN, OAUTH",
        ),
        (
            f"oauth: {{jwksUrl: 'https://sso/keys', {OAUTH}}}",
            "oauth: is needed with the mechanism OAUTHBEARER, and allowed with no other; mechanisms are SCRAM-SHA",
        ),
        *(
            (f"mechanisms: [PLAIN, OAUTHBEARER], oauth: {{{oauth}}}", f"oauth.{expected}")
            for oauth, expected in (
                (OAUTH, "jwksUrl: this or jwksSecretName is needed, and only one of them"),
                (
                    f"jwksUrl: 'https://sso/keys', jwksSecretName: keys, {OAUTH}",
                    "jwksUrl: this or jwksSecretName is needed, and only one of them",
                ),
                (
                    f"jwksUrl: 'http://sso/keys', trustedSecretName: ca, {OAUTH}",
                    "trustedSecretName: is allowed with a jwksUrl that begins with https: only",
                ),
                (
                    f"jwksSecretName: keys, trustedSecretName: ca, {OAUTH}",
                    "trustedSecretName: is allowed with a jwksUrl that begins with https: only",
                ),
                (f"jwksUrl: 'file:/etc/passwd', {OAUTH}", "jwksUrl: 'file:/etc/passwd': must match pattern"),
                (
                    f"jwksUrl: 'https://a/k,https://b', {OAUTH}",
                    "jwksUrl: 'https://a/k,https://b': must match",
                ),
                (f"jwksUrl: 'https://a/$(cat x)', {OAUTH}", "jwksUrl: 'https://a/$(cat x)': must match"),
                (
                    "jwksSecretName: keys, issuer: '${directory:/x:y}', audiences: [kafka]",
                    "issuer: '${directory:/x:y}': must match pattern",
                ),
                ("jwksSecretName: keys, issuer: x", "audiences: missing; it must be given"),
                ("jwksSecretName: keys, issuer: x, audiences: ['a,b']", "audiences[0]: 'a,b': must match"),
                (
                    f"jwksSecretName: keys, clockSkewSeconds: 3601, {OAUTH}",
                    "clockSkewSeconds: 3601: must be less than or equal to 3600",
                ),
            )
        ),
    ],
)
def test_whose_tokens_are_valid_has_to_be_said(sasl: str, expected: str) -> None:
    """No listener accepts tokens by accident, and none shuts out the nodes."""
    brokers = f"listeners: [{{name: A, {BROKER_SASL.replace('username', f'{sasl}, username')}}}]"
    with pytest.raises(ManifestError) as refused:
        load(SASL, "", brokers)
    assert f"KafkaBroker brokers: spec.listeners[0].sasl.{expected}" in str(refused.value)


TOKENS = (
    "protocol: SASL_SSL, tls: {secretName: b}, sasl: {mechanisms: [OAUTHBEARER], "
    f"oauth: {{jwksSecretName: keys, {OAUTH}}}}}"
)


def test_tokens_alone_need_no_password() -> None:
    manifests = load(SASL, "", f"listeners: [{{name: A, {BROKER_SASL}}}, {{name: B, {TOKENS}}}]")
    first, second = manifests.brokers[0].spec.listeners
    assert (first.has_tokens_alone, second.has_tokens_alone) == (False, True)
    of_second = [
        secret_use
        for secret_use in secret_uses(manifests.controllers, manifests.brokers)
        if "[1]" in secret_use.where
    ]
    assert [(secret.name, secret.has_passwords) for secret in of_second] == [("b", False), ("keys", False)]


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        (
            f"{{name: A, {TOKENS}}}",
            "listeners[0].sasl.mechanisms: OAUTHBEARER: OAUTHBEARER alone is allowed on the",
        ),
        (
            "{name: A}, {name: B, protocol: SASL_SSL, tls: {secretName: b}, sasl: {username: a}}",
            "listeners[1].sasl.secretName: is needed with PLAIN and SCRAM, and not allowed with OAUTHBEARER alone; m",
        ),
    ],
)
def test_nodes_and_the_operator_have_a_password(listeners: str, expected: str) -> None:
    with pytest.raises(ManifestError) as refused:
        load(SASL, "", f"listeners: [{listeners}]")
    assert f"KafkaBroker brokers: spec.{expected}" in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://sso.example.com/realms/a%20b/protocol/openid-connect/certs?v=1&w=~x",
        "http://127.0.0.1:8080",
        "https://[::1]:8443/keys",
    ],
)
def test_urls_of_issuers_are_taken(url: str) -> None:
    sasl = f"mechanisms: [PLAIN, OAUTHBEARER], oauth: {{jwksUrl: '{url}', {OAUTH}}}, username"
    manifests = load(SASL, "", f"listeners: [{{name: A, {BROKER_SASL.replace('username', sasl)}}}]")
    oauth = oauth_of(manifests.brokers[0].spec.listeners[0])
    assert oauth is not None
    assert oauth.jwks_url == url


@pytest.mark.parametrize(
    ("oauth", "expected"),
    [
        (
            "jwksSecretName: issuer",
            "sasl.oauth.jwksSecretName: 'issuer': the Secret has no jwks.json; it must have jwks.json",
        ),
        (
            "jwksUrl: 'https://sso/keys', trustedSecretName: issuer",
            "sasl.oauth.trustedSecretName: 'issuer': the Secret has no ca.crt; it must have ca.crt",
        ),
    ],
)
def test_what_the_secret_of_an_issuer_lacks_is_told(oauth: str, expected: str) -> None:
    sasl = f"mechanisms: [PLAIN, OAUTHBEARER], oauth: {{{oauth}, {OAUTH}}}, username"
    brokers = f"listeners: [{{name: A, {BROKER_SASL.replace('username', sasl)}}}]"
    manifests = load(SASL, "", brokers, secret("issuer", other=HIDDEN))
    uses = secret_uses(manifests.controllers, manifests.brokers)
    faults = [fault for use in uses if (fault := use.fault(manifests.secrets, "here")) is not None]
    assert f"KafkaBroker brokers: spec.listeners[0].{expected}" in faults
    assert HIDDEN not in f"{faults}"


@pytest.mark.parametrize(
    ("secrets", "expected"),
    [
        (
            "",
            "KafkaController quorum: spec.listeners[0].tls.secretName: 'c': no such Secret in here; it must have",
        ),
        (
            secret("c", tls_crt="x", tls_key="x"),
            "'c': the Secret has no ca.crt; it must have tls.crt and tls.key and ca.crt",
        ),
        (
            secret("login", other=HIDDEN),
            "spec.listeners[0].sasl.secretName: 'login': the Secret has no node; it must have node",
        ),
        (
            secret("login", node=f"{HIDDEN}\\n"),
            "spec.listeners[0].sasl.secretName: 'login': the password of 'node' must have 1 to 256 characters of",
        ),
        (
            secret("first", admin=f"{HIDDEN},x"),
            "spec.scramUsers.secretName: 'first': the password of 'admin' must have",
        ),
    ],
)
def test_what_a_secret_lacks_is_told_without_its_values(secrets: str, expected: str) -> None:
    manifests = load(SASL, "scramUsers: {secretName: first}", "", secrets)
    uses = secret_uses(manifests.controllers, manifests.brokers)
    faults = [fault for use in uses if (fault := use.fault(manifests.secrets, "here")) is not None]
    assert any(expected in fault for fault in faults), faults
    assert HIDDEN not in f"{faults} {manifests!r}"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            f"stringData: {{node: {{a: {HIDDEN}}}}}",
            "document 3: Secret: stringData.node: Input should be a valid string",
        ),
        (
            f"data: {{node: {HIDDEN}!}}",
            "document 3: Secret s: data.node: is not base64; stringData takes plain text",
        ),
        (
            f"stringDatas: {{node: {HIDDEN}}}",
            "document 3: Secret: stringDatas: Extra inputs are not permitted",
        ),
        (f"data: {{node: {HIDDEN}ü}}", "document 3: Secret s: data.node: is not base64; stringData takes"),
        (f"stringData: {{../x: {HIDDEN}}}", "a key must have 1 to 253 letters, digits, '.', '_' and '-'"),
        (f'stringData: {{"..": {HIDDEN}}}', "a key must have 1 to 253 letters, digits, '.', '_' and '-'"),
        ("immutable: 3", "document 3: Secret: immutable: Input should be a valid boolean"),
    ],
)
def test_a_secret_that_is_none_is_told_without_its_values(document: str, expected: str) -> None:
    text = text_of(SASL, secrets=f"---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{document}\n")
    with pytest.raises(ManifestError) as refused:
        load_manifests(text, "m.yaml")
    assert expected in str(refused.value)
    assert HIDDEN not in str(refused.value)


def test_two_secrets_of_a_name_contradict_each_other() -> None:
    with pytest.raises(ManifestError, match=r"Secret s: metadata\.name: there are two of this name"):
        load(SASL, "", "", secret("s", a="x") * 2)
    both = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: eA==, b: eA==}\nstringData: {b: y}\n"
    assert load(SASL, "", "", both).secrets["s"].values == {"a": "x", "b": "y"}


@pytest.mark.parametrize("tls", ["", ", tls: {}", ", tls: {clientAuth: required, duration: 48h}"])
def test_a_listener_without_a_source_of_its_certificate_gets_one_of_the_cluster(tls: str) -> None:
    manifests = load(f"protocol: SSL{tls}", "", f"listeners: [{{name: OUT, protocol: SSL{tls}}}]")
    uses = tuple(secret_uses(manifests.controllers, manifests.brokers))
    assert [(use.where, use.name, use.is_own) for use in uses] == [
        ("KafkaController quorum: spec.listeners[0].tls", "quorum-controller-tls", True),
        ("KafkaBroker brokers: spec.listeners[0].tls", "brokers-out-tls", True),
    ]
    issued = load("protocol: SSL, tls: {issuerRef: {name: ca}}")
    given = load("protocol: SSL, tls: {secretName: c}")
    assert not any(use.is_own for use in secret_uses(issued.controllers, ()))
    assert not any(use.is_own for use in secret_uses(given.controllers, ()))
