"""The steps of the stock tools about security: quotas, users, ACLs, tokens."""

from typing import Final

from kit.transcripts.rows import CREATE, DENIED, HASHED, LINES, TOKEN, TOPIC_ID, failing, step, steps

_ALTER: Final = "--alter --add-config"

QUOTAS: Final = (
    *steps(
        "configs",
        (f"$server --user alice {_ALTER} producer_byte_rate=1000,request_percentage=50.5", "Completed"),
        (f"$server --user alice --client app {_ALTER} consumer_byte_rate=7", "Completed"),
        (f"$server --user-defaults {_ALTER} controller_mutation_rate=1000000", "Completed"),
        (f"$server --client-defaults {_ALTER} producer_byte_rate=1e9", "Completed"),
        (f"$server --ip 10.0.0.1 {_ALTER} connection_creation_rate=5", "Completed"),
        (f"$server --ip-defaults {_ALTER} connection_creation_rate=500", "Completed"),
        ("$server --user alice --alter --delete-config request_percentage", "Completed"),
    ),
    *failing(
        "configs",
        (f"$server --user alice {_ALTER} unknown_rate=1", "unknown"),
        (f"$server --user alice {_ALTER} producer_byte_rate=-1", "producer_byte_rate|positive|greater"),
        (f"$server --user alice {_ALTER} producer_byte_rate=0.5", "whole|long|integral|exit"),
        (
            f"$server --user alice {_ALTER} connection_creation_rate=5",
            "invalid|unknown|connection_creation_rate",
        ),
        (f"$server --ip 10.0.0.1 {_ALTER} producer_byte_rate=5", "invalid|unknown|producer_byte_rate"),
        (f"$server --ip 'no such host' {_ALTER} connection_creation_rate=5", "no such host"),
        (f"$alice --user bob {_ALTER} producer_byte_rate=5", "authoriz"),
    ),
    step("configs", "$server --entity-type users --describe", "producer_byte_rate=1000", masks=[LINES]),
    step("configs", "$server --entity-type clients --describe", "producer_byte_rate=1.0E9", masks=[LINES]),
    step("configs", "$server --entity-type ips --describe", "connection_creation_rate=500", masks=[LINES]),
    step(
        "configs",
        "$server --entity-type users --entity-type clients --describe",
        "consumer_byte_rate=7",
        masks=[LINES],
    ),
)

_SHA_256, _SHA_512 = "'SCRAM-SHA-256=[iterations=8192,password=a-secret]'", "'SCRAM-SHA-512=[password=b]'"
USERS: Final = (
    *steps(
        "configs",
        (f"$server --user carol {_ALTER} {_SHA_256}", "Completed"),
        (f"$server --user carol {_ALTER} {_SHA_512}", "Completed"),
        ("$server --user carol --alter --delete-config SCRAM-SHA-512", "Completed"),
    ),
    *failing(
        "configs",
        (f"$server --user carol {_ALTER} 'SCRAM-SHA-256=[iterations=5,password=a]'", "iterations"),
        (f"$server --user carol {_ALTER} 'SCRAM-SHA-256=[iterations=16385,password=a]'", "iterations"),
        ("$server --user carol --alter --delete-config SCRAM-SHA-512", "delete|exist"),
        (f"$alice --user eve {_ALTER} {_SHA_256}", "authoriz"),
    ),
    step("configs", "$server --user carol --describe", "SCRAM-SHA-256=iterations=8192", masks=[LINES]),
)

_BOB = "--add --allow-principal User:bob --operation Read --operation Write --topic ledger"
_ALICES = "--add --allow-principal User:alice" + "".join(
    f" --operation {operation}" for operation in ("Create", "Describe", "Delete", "DescribeConfigs")
)
ACLS: Final = (
    *steps(
        "acls",
        step("acls", f"$server {_BOB}", "ledger", masks=[HASHED]),
        step("acls", f"$server {_BOB}", "ledger", masks=[HASHED]),
        step(
            "acls",
            "$controller --add --deny-principal User:eve --deny-host 10.0.0.1 --cluster",
            "User:eve",
            masks=[HASHED],
        ),
        step(
            "acls",
            f"$controller {_ALICES} --topic hers --resource-pattern-type prefixed",
            "User:alice",
            masks=[HASHED],
        ),
        step(
            "acls",
            "$server --add --allow-principal User:bob --producer --idempotent --topic ledger",
            "WRITE",
            masks=[HASHED],
        ),
        step(
            "acls",
            "$server --add --allow-principal User:bob --consumer --topic ledger --group '*'",
            "READ",
            masks=[HASHED],
        ),
        step(
            "acls",
            "$server --add --allow-principal User:bob --operation Describe --delegation-token t",
            "DESCRIBE",
            masks=[HASHED],
        ),
        step(
            "acls",
            "$server --add --allow-principal User:bob --operation CreateTokens --user-principal User:eve",
            "CREATE_TOKENS",
            masks=[HASHED],
        ),
        step("acls", "$server --list", "User:eve", masks=[HASHED]),
        step("acls", "$controller --list", "User:eve", masks=[HASHED]),
        step(
            "acls",
            "$server --list --topic hers-first --resource-pattern-type match",
            "User:alice",
            masks=[HASHED],
        ),
    ),
    *failing(
        "acls",
        ("$alice --list", "authoriz"),
        ("$alice_controller --list", "authoriz"),
        (f"$alice {_ALICES} --topic more", "authoriz"),
        (f"$alice_controller {_ALICES} --topic more", "authoriz"),
        ("$alice --remove --force --topic ledger", "authoriz"),
        ("$server --add --allow-principal User:bob --operation Read --topic ''", "exit code 1"),
        (
            "$server --add --allow-principal User:bob --operation Alter --cluster --resource-pattern-type prefixed",
            "exit code 1",
        ),
    ),
    *steps(
        "topics",
        (f"$alice {CREATE} hers-first --replica-assignment 0:1", "Created"),
        step("topics", "$alice --describe --topic hers-first", "PartitionCount: 1", masks=[TOPIC_ID]),
    ),
    *failing(
        "topics",
        (f"$alice {CREATE} not-hers", DENIED),
        (
            f"$alice {CREATE} hers-second --config retention.ms=1 --replication-factor 9",
            "replication factor|authoriz",
        ),
        ("$alice --alter --topic hers-first --partitions 3", "authoriz"),
        ("$alice --delete --topic ledger", "does not exist|authoriz"),
    ),
    step("topics", "$alice --delete --topic hers-first", "exit code 0"),
    step(
        "acls",
        "$server --remove --force --allow-principal User:bob --operation Write --topic ledger",
        "exit code 0",
        masks=[HASHED],
    ),
    step("acls", "$controller --remove --force --cluster", "exit code 0", masks=[HASHED]),
    step("acls", "$server --list", "ledger", masks=[HASHED]),
)

_TOKEN_OF_BOB = "$admin --create --max-life-time-period"
TOKENS: Final = (
    step(
        "delegation-tokens",
        f"{_TOKEN_OF_BOB} 3600000 --renewer-principal User:bob",
        "TOKENID",
        masks=TOKEN,
        captures={"hmac": r"([A-Za-z0-9+/]{86}==)"},
    ),
    step("delegation-tokens", "$admin --describe", "TOKENID|Total number", masks=TOKEN),
    step(
        "delegation-tokens", "$admin --renew --hmac $hmac --renew-time-period 60000", "Completed", masks=TOKEN
    ),
    step(
        "delegation-tokens", "$bob --renew --hmac $hmac --renew-time-period 120000", "Completed", masks=TOKEN
    ),
    step(
        "delegation-tokens",
        "$alice --renew --hmac $hmac --renew-time-period 60000",
        "owner|exit code 1",
        masks=TOKEN,
        fails=True,
    ),
    step(
        "delegation-tokens",
        "$alice --expire --hmac $hmac --expiry-time-period -1",
        "owner|exit code 1",
        masks=TOKEN,
        fails=True,
    ),
    step(
        "delegation-tokens",
        "$alice --create --max-life-time-period -1 --owner-principal User:bob",
        "authoriz",
        masks=TOKEN,
        fails=True,
    ),
    step(
        "delegation-tokens",
        "$admin --renew --hmac bm90aGluZw== --renew-time-period 60000",
        "not.?found",
        masks=TOKEN,
        fails=True,
    ),
    step(
        "delegation-tokens",
        "$server --create --max-life-time-period -1",
        "allowed",
        masks=TOKEN,
        fails=True,
    ),
    step(
        "delegation-tokens",
        "$admin --create --max-life-time-period -1 --owner-principal User:carol --renewer-principal User:x",
        "User:carol",
        masks=[*TOKEN, LINES],
    ),
    step(
        "delegation-tokens", "$admin --expire --hmac $hmac --expiry-time-period -1", "Completed", masks=TOKEN
    ),
    step(
        "delegation-tokens",
        "$admin --expire --hmac $hmac --expiry-time-period -1",
        "not.?found",
        masks=TOKEN,
        fails=True,
    ),
    step(
        "delegation-tokens",
        "$alice --create --max-life-time-period 100000000000000",
        "User:alice",
        masks=TOKEN,
    ),
    step(
        "delegation-tokens",
        "$admin --describe --owner-principal User:carol --owner-principal User:alice",
        "User:carol",
        masks=[*TOKEN, LINES],
    ),
)
