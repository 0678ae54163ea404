"""`quorate operator run`: the operator for Kubernetes."""

import asyncio
import os
import socket
from enum import StrEnum
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from quorate_protocol.files import read_bounded

from quorate.console import examples, needing, option, plain_app, report_failures

if TYPE_CHECKING:
    from quorate_operator.models.selectors import LabelSelector
    from quorate_operator.models.tenant_policy import TenantPolicy

PORT_MAX = 65_535
USER_ID_MAX = 2**31 - 1
TOKEN_SIZE_BYTES_MAX = 64 * 1024
_VERSION = "{version}"


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The minimum level of log lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


# Scope
NamespaceOption = Annotated[
    list[str] | None,
    option(
        None,
        "Manage the clusters of this namespace; repeatable. By default that of --lease-namespace.",
        names=("--namespace", "-n"),
    ),
]
AllNamespacesOption = Annotated[
    bool,
    option(
        None,
        "Manage the clusters of all namespaces.",
        names=("--all-namespaces", "-A"),
    ),
]
SelectorOption = Annotated[
    str,
    option(
        None,
        "Manage only resources whose labels match, as quorate.dev/operator=blue or '!quorate.dev/operator'. All "
        "resources of a cluster must match together. By default all.",
        envvar="QUORATE_SELECTOR",
    ),
]
PolicyOption = Annotated[
    str,
    option(
        "YAML",
        "What the owners of resources may ask for beyond restricted pods and clusters of Quorate, as the value "
        "policy of the chart. By default nothing.",
        envvar="QUORATE_POLICY",
    ),
]
DriftIntervalOption = Annotated[
    int,
    option(
        None,
        "Seconds between reconciliations of a KafkaTopic, KafkaUser or KafkaRebalance without changes.",
        envvar="QUORATE_DRIFT_INTERVAL",
        min=1,
        max=86_400,
    ),
]

# Images
ImageOption = Annotated[
    str | None,
    option(
        None,
        "The image of controllers, by default ghcr.io/quorate/quorate:<version>.",
        envvar="QUORATE_IMAGE",
    ),
]
KafkaImageOption = Annotated[
    str,
    option(
        None,
        "The image of brokers and Java controllers, unless a KafkaBroker has spec.image; {version} is "
        "spec.version.",
        envvar="QUORATE_KAFKA_IMAGE",
    ),
]
LakeImageOption = Annotated[
    str | None,
    option(
        None,
        "The image of the jobs that write histories, by default ghcr.io/quorate/quorate-lake:<version>.",
        envvar="QUORATE_LAKE_IMAGE",
    ),
]
UserIdOption = Annotated[
    str,
    option(
        "ID|none",
        "The user and group of pods, and the group of their volumes. none: the namespace's range, as on OpenShift.",
        envvar="QUORATE_USER_ID",
    ),
]

# Leader election
LeaderElectionOption = Annotated[
    bool, typer.Option(help="Act only while holding the Lease, so that several replicas can run.")
]
LeaseNamespaceOption = Annotated[
    str, option(None, "The namespace of the Lease for leader election.", envvar="POD_NAMESPACE")
]
LeaseNameOption = Annotated[
    str,
    option(
        None,
        "The name of the Lease for leader election. Operators that share a namespace need different ones.",
        envvar="QUORATE_LEASE_NAME",
    ),
]
LeaseDurationOption = Annotated[
    int, option(None, "Seconds after which another replica takes over.", min=2, max=3600)
]
IdentityOption = Annotated[
    str | None,
    option(None, "The name of this replica, by default host name and process id.", envvar="POD_NAME"),
]

# HTTP and logging
ListenOption = Annotated[
    str, option("[HOST]:PORT", "The address that serves /healthz, /readyz and /metrics.")
]
WebOption = Annotated[str | None, option("[HOST]:PORT", "The address that serves the status page.")]
WebTokenFileOption = Annotated[
    Path | None,
    option(
        None,
        "A file with the token, of 16 characters or more, that permits pause and restart on the status page.",
    ),
]
WebHostOption = Annotated[
    list[str] | None,
    option(
        "NAME",
        "A host name of the status page, beside addresses and localhost; repeatable.",
        names=("--web-host",),
    ),
]
LogFormatOption = Annotated[LogFormat, option(None, "The format of a log line.", case_sensitive=False)]
LogLevelOption = Annotated[LogLevel, option(None, "The lowest level that is logged.", case_sensitive=False)]

EXAMPLES = examples(
    "quorate operator run --namespace kafka",
    "quorate operator run --all-namespaces --log-format json",
)

app = plain_app(help="The operator for Kubernetes.", no_args_is_help=True)


@app.callback(epilog=EXAMPLES)
def operator() -> None:
    """The operator for Kubernetes."""


@app.command("run")
def run_command(
    namespace: NamespaceOption = None,
    *,
    all_namespaces: AllNamespacesOption = False,
    selector: SelectorOption = "",
    policy: PolicyOption = "",
    image: ImageOption = None,
    kafka_image: KafkaImageOption = f"apache/kafka:{_VERSION}",
    lake_image: LakeImageOption = None,
    user_id: UserIdOption = "1000",
    leader_election: LeaderElectionOption = True,
    lease_namespace: LeaseNamespaceOption = "default",
    lease_name: LeaseNameOption = "quorate-operator",
    lease_duration: LeaseDurationOption = 15,
    drift_interval: DriftIntervalOption = 60,
    identity: IdentityOption = None,
    listen: ListenOption = ":8080",
    web: WebOption = None,
    web_token_file: WebTokenFileOption = None,
    web_host: WebHostOption = None,
    log_format: LogFormatOption = LogFormat.JSON,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Reconcile clusters, topics, users and rebalances until SIGTERM. The log goes to stderr."""
    if namespace and all_namespaces:
        raise typer.BadParameter("--namespace and --all-namespaces can't be used together")
    with report_failures(), needing("operator"):
        from quorate_operator.handlers import logs, process
        from quorate_operator.resources.facts import PUBLISHED, Images
    options = process.OperatorOptions(
        identity=identity or f"{socket.gethostname()}-{os.getpid()}",
        images=Images(
            quorate=image or f"{PUBLISHED}/quorate:{version_of('quorate')}",
            kafka=_image_of_releases("--kafka-image", kafka_image),
            lake=lake_image or f"{PUBLISHED}/quorate-lake:{version_of('quorate')}",
            user_id=_user_id(user_id),
        ),
        namespaces=None if all_namespaces else tuple(namespace or [lease_namespace]),
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        selector=_selector(selector),
        policy=_policy(policy),
        own_namespace=os.environ.get("POD_NAMESPACE") or None,
        leader_election=leader_election,
        lease_duration_s=lease_duration,
        drift_interval_s=drift_interval,
        listen=_address("--listen", listen),
        web=_address("--web", web) if web is not None else None,
        web_token=_token(web_token_file),
        web_hosts=tuple(_hosts(web_host or [])),
    )
    logs.configure_logs(level=log_level, is_json=log_format is LogFormat.JSON)
    with report_failures(*process.EXPECTED_ERRORS):
        asyncio.run(process.run_operator(options))


def _selector(text: str) -> "LabelSelector":
    from quorate_operator.models.selectors import LabelSelector, SelectorError

    try:
        return LabelSelector.parse(text)
    except SelectorError as error:
        raise typer.BadParameter(f"--selector: {error}") from None


def _policy(text: str) -> "TenantPolicy":
    from quorate_operator.models.tenant_policy import PolicyError, parse_policy

    try:
        return parse_policy(text)
    except PolicyError as error:
        raise typer.BadParameter(f"--policy: {error}") from None


def _address(option: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or len(port) > 5 or int(port) > PORT_MAX:
        raise typer.BadParameter(f"{option}: {text!r}: must be HOST:PORT, or :PORT for every address")
    return host.strip("[]"), int(port)


def _image_of_releases(option: str, text: str) -> str:
    if any(letter.isspace() for letter in text) or text.count(_VERSION) != 1:
        raise typer.BadParameter(
            f"{option}: {text!r}: must be an image with {_VERSION} in place of the Kafka release, "
            f"for instance registry.example.com/kafka:{_VERSION}"
        )
    return text


def _user_id(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= USER_ID_MAX):
        raise typer.BadParameter(f"--user-id: {text!r}: must be a number from 1 to {USER_ID_MAX}, or none")
    return int(text)


def _hosts(names: list[str]) -> list[str]:
    from quorate_operator.web.access import check_host

    try:
        return [check_host(name) for name in names]
    except ValueError as error:
        raise typer.BadParameter(f"--web-host: {error}") from None


def _token(file: Path | None) -> str | None:
    from quorate_operator.web.access import check_token

    if file is None:
        return None
    try:
        return check_token(read_bounded(file, TOKEN_SIZE_BYTES_MAX).decode())
    except OSError as error:
        raise typer.BadParameter(f"--web-token-file: {file}: {error.strerror}") from None
    except ValueError as error:
        raise typer.BadParameter(f"--web-token-file: {file}: {error}") from None
