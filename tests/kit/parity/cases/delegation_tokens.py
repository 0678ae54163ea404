"""kafka-delegation-tokens. It needs an authenticated user, so that all cases are for Java's secured listener."""

from kit.parity.harness import Case, Ends, Step, replaced

RANDOM = (
    replaced(r"[A-Za-z0-9_-]{22}(?=\s)", "<token id>", "each token has a random id"),
    replaced(r"[A-Za-z0-9+/]{86}==", "<hmac>", "each token has its own HMAC"),
    replaced(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "<minute>", "a minute may begin between two runs"),
)
LISTED = replaced(
    r"(?s)Total number.*",
    "",
    "Kafka's tool asks for the tokens of nobody and lists none; ours lists those of the user",
)
JAVA = ("java",)
AT = "--bootstrap-server $sasl_server --command-config $admin"
CREATE = f"{AT} --create --max-life-time-period"
NOT_YET = "DELEGATION_TOKEN_NOT_FOUND|DelegationTokenNotFoundException"
"""A Java controller answers the creation of a token before it knows the token itself."""
HMAC = {"hmac": r"([A-Za-z0-9+/]{86}==)"}

CASES = (
    Case(
        name="life-of-a-token",
        run=[
            Step(f"{CREATE} 3600000 --renewer-principal User:alice --renewer-principal User:bob", HMAC),
            f"{AT} --renew --hmac $hmac --renew-time-period 60000",
            f"{AT} --expire --hmac $hmac --expiry-time-period -1",
        ],
        normalise=RANDOM,
        not_yet=NOT_YET,
        clusters=JAVA,
    ),
    Case(
        name="token-with-defaults",
        run=[
            Step(f"{CREATE} -1", HMAC),
            f"{AT} --renew --hmac $hmac --renew-time-period -1",
            f"{AT} --expire --hmac $hmac --expiry-time-period 1000000",
            f"{AT} --expire --hmac $hmac --expiry-time-period -1",
        ],
        normalise=RANDOM,
        not_yet=NOT_YET,
        clusters=JAVA,
    ),
    Case(
        name="token-of-someone-else",
        run=[
            f"{CREATE} -1 --owner-principal User:$twin --renewer-principal User:alice",
            f"{AT} --describe --owner-principal User:$twin",
        ],
        normalise=RANDOM,
        clusters=JAVA,
    ),
    Case(name="describe", run=f"{AT} --describe", normalise=[LISTED], clusters=JAVA, reads=True),
    Case(
        name="describe-one",
        before=[f"delegation-tokens {CREATE} -1 --owner-principal User:$own --renewer-principal User:alice"],
        run=f"{AT} --describe --owner-principal User:$own --owner-principal User:nobody",
        clusters=JAVA,
        reads=True,
    ),
    Case(
        name="expire-what-is-of-someone-else",
        before=[Step(f"delegation-tokens {CREATE} -1 --owner-principal User:$twin", HMAC)],
        run=f"{AT} --expire --hmac $hmac --expiry-time-period -1",
        ends=Ends.FAILED,
        says="(?i)owner_?mismatch",
        normalise=RANDOM,
        not_yet=NOT_YET,
        clusters=JAVA,
    ),
    Case(
        name="describe-as-process",
        run=f"{AT} --describe --owner-principal User:nobody",
        clusters=JAVA,
        as_process=True,
    ),
    Case(
        name="renew-what-is-not-there",
        run=f"{AT} --renew --hmac AAAA --renew-time-period 1",
        ends=Ends.FAILED,
        clusters=JAVA,
    ),
    Case(
        name="expire-what-is-no-hmac",
        run=f"{AT} --expire --hmac ~~~ --expiry-time-period 1",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(
        name="create-without-authentication",
        run="--bootstrap-server $server --command-config $client --create --max-life-time-period -1",
        ends=Ends.FAILED,
        clusters=JAVA,
    ),
    Case(
        name="create-for-no-principal",
        run=f"{CREATE} -1 --renewer-principal bob",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(name="create-for-a-word", run=f"{CREATE} ever", ends=Ends.USAGE, clusters=JAVA),
    Case(name="create-without-life", run=f"{AT} --create", ends=Ends.USAGE, clusters=JAVA),
    Case(name="create-with-hmac", run=f"{CREATE} -1 --hmac AAAA", ends=Ends.USAGE, clusters=JAVA),
    Case(
        name="renew-without-hmac", run=f"{AT} --renew --renew-time-period 1", ends=Ends.USAGE, clusters=JAVA
    ),
    Case(name="renew-without-period", run=f"{AT} --renew --hmac AAAA", ends=Ends.USAGE, clusters=JAVA),
    Case(name="expire-without-period", run=f"{AT} --expire --hmac AAAA", ends=Ends.USAGE, clusters=JAVA),
    Case(name="without-action", run=AT, ends=Ends.USAGE, clusters=JAVA),
    Case(name="with-two-actions", run=f"{AT} --describe --create", ends=Ends.USAGE, clusters=JAVA),
    Case(name="without-cluster", run="--command-config $admin --describe", ends=Ends.USAGE, clusters=JAVA),
    Case(
        name="without-properties",
        run="--bootstrap-server $sasl_server --describe",
        ends=Ends.USAGE,
        clusters=JAVA,
    ),
    Case(name="help", run="--help", ends=Ends.HELP, clusters=JAVA),
)
