"""A stock controller.properties as frozen data: Kafka's names, defaults and ranges.

All problems of a file are reported together. Unknown keys are refused; Kafka only logs a warning. Broker configs,
of which a stock file has many, are accepted and noted.
"""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path

from quorate_protocol.kafka.config_names import CONFIG_PROVIDERS
from quorate_protocol.plain_data import dataclass
from quorate_protocol.properties import parse_properties
from quorate_protocol.security.stores import SecurityConfigError

from quorate_controller.config.authorizer import AuthorizerConfig, parse_authorizer
from quorate_controller.config.connection_limits import (
    ConnectionConfig,
    connection_keys,
    parse_connection_limits,
)
from quorate_controller.config.endpoints import (
    ADVERTISED_LISTENERS,
    BOOTSTRAP_SERVERS,
    CONTROLLER_LISTENER_NAMES,
    LISTENERS,
    PROTOCOL_MAP,
    VOTERS,
    ListenerAddress,
    Problems,
    StaticVoter,
    advertised_listeners,
    controller_listeners,
    parse_bootstrap_servers,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from quorate_controller.config.keys import (
    ConfigValue,
    check_names,
    check_refused,
    notes_on_ignored,
    parse_http_listener,
    typed_values,
)
from quorate_controller.config.listener_sasl import FAILURE_DELAY, Login
from quorate_controller.config.listener_security import (
    LISTENER_TLS_KEYS,
    ListenerSecurity,
    ListenerTls,
    keys_in_use,
    parse_controller_login,
    parse_listener_security,
    parse_listener_tls,
    prefix_of,
)
from quorate_controller.config.own_keys import ResponsePolicy, parse_response_policy, parse_snapshot_handover
from quorate_controller.config.providers import check_providers, resolved
from quorate_controller.storage.controller_storage import StorageConfig
from quorate_controller.storage.log import LogConfig

CONTROLLER = "controller"
_AUTO_JOIN = "controller.quorum.auto.join.enable"
_FILE_BYTES_MAX = 16 * 1024 * 1024


class ConfigError(ValueError):
    """All problems of a configuration. `problems` has one line each: key, value and what is allowed."""

    def __init__(self, problems: tuple[str, ...], *, source: str = "") -> None:
        super().__init__("\n".join(f"{source}: {problem}" if source else problem for problem in problems))
        self.problems = problems
        self.source = source


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumTimeouts:
    """controller.quorum.*.ms and the bounds of raft's fetches."""

    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    append_linger_ms: int = 25
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The configuration of a controller process."""

    node_id: int
    process_roles: tuple[str, ...]
    controller_listener_names: tuple[str, ...]
    listeners: tuple[ListenerAddress, ...]
    """The controller listeners, in the order of controller.listener.names."""
    advertised_listeners: tuple[ListenerAddress, ...]
    """The endpoints for other nodes, in the same order; hosts are never empty."""
    listener_security: Mapping[str, ListenerSecurity]
    """By the name of the listener."""
    login: Login | None
    """The login at other controllers; None without SASL."""
    static_voters: tuple[StaticVoter, ...]
    bootstrap_servers: tuple[tuple[str, int], ...]
    auto_join: bool
    quorum: QuorumTimeouts
    storage: StorageConfig
    snapshot_bytes_max: int
    """metadata.log.max.record.bytes.between.snapshots"""
    snapshot_interval_ms: int
    """metadata.log.max.snapshot.interval.ms; 0: only by bytes."""
    max_idle_interval_ms: int
    """metadata.max.idle.interval.ms: how often the active controller writes a NoOpRecord; 0: never."""
    broker_session_timeout_ms: int
    authorizer: AuthorizerConfig | None
    """authorizer.class.name; None: everything is allowed."""
    http_listener: tuple[str, int] | None
    """quorate.http.listener: where /metrics, /healthz and /readyz are served."""
    connections: ConnectionConfig
    """max.connections and its relatives."""
    response_policy: ResponsePolicy
    """quorate.responses.wait.for, quorate.responses.wait.max.ms"""
    snapshot_handover: bool
    """quorate.snapshot.handover.enable"""
    values: Mapping[str, ConfigValue] = field(repr=False)
    """Every key of Kafka with its value or default, typed (log.dirs -> tuple of str, and so on)."""
    explicit: Mapping[str, str] = field(repr=False)
    """The keys in the file, with their values as text."""
    notes: tuple[str, ...]
    """For the log at start: accepted keys without effect on a controller."""
    unresolved: Mapping[str, str] = field(repr=False)
    """The keys in the file, with the variables of config providers not yet replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatTarget:
    """The part of a node's configuration that formatting needs, whatever the node's role."""

    node_id: int
    process_roles: tuple[str, ...]
    controller_listener_name: str
    controller_address: ListenerAddress | None
    """First controller listener as advertised, the host empty if not configured; None for a broker."""
    metadata_log_dir: Path
    log_dirs: tuple[Path, ...]
    """Ascending, metadata_log_dir among them."""
    has_static_voters: bool


def load_config(path: Path) -> ControllerConfig:
    """Read and parse a controller's file, and the files of its config providers; ConfigError if one can't be read."""
    properties = _read_properties(path)
    with _problems_of(path):
        return replace(parse_config(_all_resolved(properties)), unresolved=properties)


def reread_listener_tls(config: ControllerConfig, listener: str) -> ListenerTls:
    """The TLS of a listener, with the present files of its config providers. No other file is read again.

    Raises:
        SecurityConfigError: a file can't be read, or has what can't be used.
    """
    prefix = prefix_of(listener)
    properties = {
        key: value
        for key, value in config.unresolved.items()
        if key.startswith(CONFIG_PROVIDERS) or key.removeprefix(prefix) in LISTENER_TLS_KEYS
    }
    problems: list[str] = []
    found = resolved(properties, problems.append)
    if problems:
        raise SecurityConfigError("; ".join(problems))
    return parse_listener_tls(listener, config.listener_security[listener].protocol, found)


def load_format_target(path: Path, *, stock_kafka: bool = False) -> FormatTarget:
    """Read the file of a controller or broker for formatting; ConfigError also when it can't be read.

    `stock_kafka` is that of `parse_format_target`.
    """
    properties = _read_properties(path)
    with _problems_of(path):
        if _is_run_here(properties, stock_kafka=stock_kafka):
            properties = _all_resolved(properties)
        return parse_format_target(properties, stock_kafka=stock_kafka)


def parse_config(
    properties: Mapping[str, str], *, local_host: Callable[[], str] = socket.getfqdn
) -> ControllerConfig:
    """Check and type a configuration of a controller; ConfigError with all problems at once.

    `local_host` returns the name of this machine, for endpoints without a host (InetAddress.getCanonicalHostName).
    """
    problems: list[str] = []
    problem = problems.append
    values = typed_values(properties, problem)
    check_names(properties, problem)
    check_refused(values, problem)
    check_providers(properties, problem)
    process_roles = _strings(values["process.roles"])
    if process_roles and process_roles != (CONTROLLER,):
        problem(f"process.roles={','.join(process_roles)}: must be controller; brokers are stock Kafka")
    names = tuple(name.upper() for name in _strings(values[CONTROLLER_LISTENER_NAMES]))
    listeners = _bound_listeners(properties, values, names, problem)
    voters = parse_voters(_strings(values[VOTERS]), problem)
    node_id = _node_id(properties, values, problem)
    advertised = advertised_listeners(
        listeners,
        parse_listeners(ADVERTISED_LISTENERS, _strings(values[ADVERTISED_LISTENERS]), problem),
        _own_voter(voters, node_id),
        problem,
    )
    security = _listener_security(properties, values, names, problem)
    login = parse_controller_login(properties, security, names, problem)
    servers = parse_bootstrap_servers(_strings(values[BOOTSTRAP_SERVERS]), problem)
    _check_quorum(values, voters, node_id, problem)
    _check_relations(values, problem)
    log_dirs, metadata_log_dir = _directories(values, problem)
    authorizer = parse_authorizer(properties, values, names, problem)
    http_listener = parse_http_listener(properties, problem)
    response_policy = parse_response_policy(properties, problem)
    connections = parse_connection_limits(properties, values, names, problem)
    snapshot_handover = parse_snapshot_handover(properties, problem)
    if problems:
        raise ConfigError(tuple(problems))
    return ControllerConfig(
        node_id=node_id,
        process_roles=process_roles,
        controller_listener_names=names,
        listeners=listeners,
        advertised_listeners=tuple(
            replace(listener, host=listener.host or local_host()) for listener in advertised
        ),
        listener_security=security,
        login=login,
        static_voters=voters,
        bootstrap_servers=servers,
        auto_join=bool(values[_AUTO_JOIN]),
        quorum=_quorum_timeouts(values),
        storage=StorageConfig(
            node_id=node_id,
            metadata_log_dir=metadata_log_dir,
            log_dirs=log_dirs,
            static_voter_ids=tuple(voter.node_id for voter in voters),
            log=LogConfig(
                segment_bytes=_segment_bytes(values), segment_ms=_number(values["metadata.log.segment.ms"])
            ),
            retention_bytes=_number(values["metadata.max.retention.bytes"]),
            retention_ms=_number(values["metadata.max.retention.ms"]),
        ),
        snapshot_bytes_max=_number(values["metadata.log.max.record.bytes.between.snapshots"]),
        snapshot_interval_ms=_number(values["metadata.log.max.snapshot.interval.ms"]),
        max_idle_interval_ms=_number(values["metadata.max.idle.interval.ms"]),
        broker_session_timeout_ms=_number(values["broker.session.timeout.ms"]),
        authorizer=authorizer,
        http_listener=http_listener,
        connections=connections,
        response_policy=response_policy,
        snapshot_handover=snapshot_handover,
        values=values,
        explicit=dict(properties),
        notes=notes_on_ignored(properties, keys_in_use(security) | connection_keys(names)),
        unresolved=dict(properties),
    )


def parse_format_target(properties: Mapping[str, str], *, stock_kafka: bool = False) -> FormatTarget:
    """The settings for formatting, of a controller's or a broker's file; ConfigError with all problems at once.

    Refuses all that `parse_config` refuses, so that no directory is formatted for a controller that can't start, but
    for nodes of stock Kafka, which may have keys of plugins: all brokers, and controllers with `stock_kafka`.
    """
    if _is_run_here(properties, stock_kafka=stock_kafka):
        return _target_of_controller(parse_config(properties, local_host=str))
    problems: list[str] = []
    problem = problems.append
    values = typed_values(properties, problem)
    process_roles = _strings(values["process.roles"])
    names = tuple(name.upper() for name in _strings(values[CONTROLLER_LISTENER_NAMES]))
    voters = parse_voters(_strings(values[VOTERS]), problem)
    node_id = _node_id(properties, values, problem)
    bound, advertised = (
        [
            listener
            for listener in parse_listeners(key, _strings(values[key]), problem)
            if listener.name in names
        ]
        for key in (LISTENERS, ADVERTISED_LISTENERS)
    )
    address = None
    if CONTROLLER in process_roles:
        own_voter = _own_voter(voters, node_id)
        address = next(
            iter(advertised_listeners(_in_order(bound, names), advertised, own_voter, problem)), None
        )
        if names and address is None:
            problem(f"{LISTENERS}: none of them is in {CONTROLLER_LISTENER_NAMES}={','.join(names)}")
    parse_bootstrap_servers(_strings(values[BOOTSTRAP_SERVERS]), problem)
    log_dirs, metadata_log_dir = _directories(values, problem)
    if problems:
        raise ConfigError(tuple(problems))
    return FormatTarget(
        node_id=node_id,
        process_roles=process_roles,
        controller_listener_name=names[0],
        controller_address=address,
        metadata_log_dir=metadata_log_dir,
        log_dirs=tuple(sorted({metadata_log_dir, *log_dirs})),
        has_static_voters=bool(voters),
    )


def _is_run_here(properties: Mapping[str, str], *, stock_kafka: bool) -> bool:
    """Whether `quorate controller run` runs the node."""
    roles = [role.strip() for role in properties.get("process.roles", "").split(",")]
    return not stock_kafka and "broker" not in roles


def _target_of_controller(config: ControllerConfig) -> FormatTarget:
    storage = config.storage
    return FormatTarget(
        node_id=config.node_id,
        process_roles=config.process_roles,
        controller_listener_name=config.controller_listener_names[0],
        controller_address=config.advertised_listeners[0],
        metadata_log_dir=storage.metadata_log_dir,
        log_dirs=tuple(sorted({storage.metadata_log_dir, *storage.log_dirs})),
        has_static_voters=bool(config.static_voters),
    )


def _own_voter(voters: tuple[StaticVoter, ...], node_id: int) -> StaticVoter | None:
    return next((voter for voter in voters if voter.node_id == node_id), None)


def _in_order(listeners: Sequence[ListenerAddress], names: tuple[str, ...]) -> list[ListenerAddress]:
    return sorted(listeners, key=lambda listener: names.index(listener.name))


@contextmanager
def _problems_of(path: Path) -> Iterator[None]:
    """Name the file in a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.problems, source=str(path)) from None


def _all_resolved(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with the content of files in place of variables. Raises ConfigError."""
    problems: list[str] = []
    found = resolved(properties, problems.append)
    if problems:
        raise ConfigError(tuple(problems))
    return found


def _read_properties(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX)
        # java.util.Properties reads bytes as Latin-1; anything else is written with \u escapes.
        return parse_properties(content.decode("latin-1"))
    except OSError as error:
        raise ConfigError((f"cannot read the file: {error.strerror}",), source=str(path)) from error
    except ValueError as error:
        raise ConfigError((str(error),), source=str(path)) from error


def _bound_listeners(
    properties: Mapping[str, str],
    values: Mapping[str, ConfigValue],
    names: tuple[str, ...],
    problem: Problems,
) -> tuple[ListenerAddress, ...]:
    if LISTENERS not in properties:
        problem(
            f"{LISTENERS} is missing; for instance {LISTENERS}={names[0] if names else 'CONTROLLER'}://:9093"
        )
        return ()
    listeners = parse_listeners(LISTENERS, _strings(values[LISTENERS]), problem)
    return controller_listeners(listeners, names, problem)


def _listener_security(
    properties: Mapping[str, str],
    values: Mapping[str, ConfigValue],
    names: tuple[str, ...],
    problem: Problems,
) -> Mapping[str, ListenerSecurity]:
    protocols = parse_protocol_map(
        str(values[PROTOCOL_MAP] or ""), is_explicit=PROTOCOL_MAP in properties, names=names, problem=problem
    )
    return parse_listener_security(properties, protocols, names, problem)


def _node_id(properties: Mapping[str, str], values: Mapping[str, ConfigValue], problem: Problems) -> int:
    node_id = values["node.id"]
    if not isinstance(node_id, int):
        return -1  # reported as missing or wrong
    if "broker.id" in properties and values["broker.id"] != node_id:
        problem(f"broker.id={properties['broker.id']}: must equal node.id={node_id}; or remove it")
    return node_id


def _check_quorum(
    values: Mapping[str, ConfigValue], voters: tuple[StaticVoter, ...], node_id: int, problem: Problems
) -> None:
    if not values[VOTERS] and not values[BOOTSTRAP_SERVERS]:
        problem(
            f"{BOOTSTRAP_SERVERS} is missing; set it to host:port of the controllers (or, for a static "
            f"quorum, {VOTERS} to id@host:port of each)"
        )
    if voters and node_id not in {voter.node_id for voter in voters}:
        problem(f"{VOTERS}: this controller, node.id={node_id}, is not among them")
    if voters and values[_AUTO_JOIN]:
        problem(f"{_AUTO_JOIN}=true: needs a dynamic quorum, without {VOTERS}")


def _check_relations(values: Mapping[str, ConfigValue], problem: Problems) -> None:
    """Rules that tie one value to another (KafkaConfig.validateValues)."""
    heartbeat_ms = _number(values["broker.heartbeat.interval.ms"])
    session_ms = _number(values["broker.session.timeout.ms"])
    if heartbeat_ms * 2 > session_ms:
        problem(
            f"broker.heartbeat.interval.ms={heartbeat_ms}: must be at most half of "
            f"broker.session.timeout.ms={session_ms}"
        )
    delay_ms, idle_ms = _number(values[FAILURE_DELAY]), _number(values["connections.max.idle.ms"])
    if 0 <= idle_ms <= delay_ms:
        problem(f"{FAILURE_DELAY}={delay_ms}: must be less than connections.max.idle.ms={idle_ms}")
    queued_bytes = _number(values["queued.max.request.bytes"])
    request_bytes = _number(values["socket.request.max.bytes"])
    if 0 < queued_bytes < request_bytes:
        problem(
            f"queued.max.request.bytes={queued_bytes}: must be at least "
            f"socket.request.max.bytes={request_bytes}, or -1"
        )


def _directories(values: Mapping[str, ConfigValue], problem: Problems) -> tuple[tuple[Path, ...], Path]:
    """All log directories, and the one of the metadata log."""
    texts = _strings(values["log.dirs"] or values["log.dir"])
    if not texts or not all(texts):
        problem("log.dirs: at least one directory is needed, and none may be empty")
    log_dirs = tuple(Path(text).absolute() for text in texts if text)
    metadata_text = values["metadata.log.dir"]
    metadata_log_dir = (
        Path(str(metadata_text)).absolute() if metadata_text else log_dirs[0] if log_dirs else Path()
    )
    return log_dirs, metadata_log_dir


def _segment_bytes(values: Mapping[str, ConfigValue]) -> int:
    """Segments smaller than metadata.log.segment.bytes allows, by an internal key of Kafka's tests."""
    return _number(values["internal.metadata.log.segment.bytes"] or values["metadata.log.segment.bytes"])


def _quorum_timeouts(values: Mapping[str, ConfigValue]) -> QuorumTimeouts:
    prefix = "controller.quorum."
    return QuorumTimeouts(
        election_timeout_ms=_number(values[prefix + "election.timeout.ms"]),
        election_backoff_max_ms=_number(values[prefix + "election.backoff.max.ms"]),
        fetch_timeout_ms=_number(values[prefix + "fetch.timeout.ms"]),
        request_timeout_ms=_number(values[prefix + "request.timeout.ms"]),
        retry_backoff_ms=_number(values[prefix + "retry.backoff.ms"]),
        append_linger_ms=_number(values[prefix + "append.linger.ms"]),
        fetch_max_bytes=_number(values[prefix + "fetch.max.bytes"]),
        fetch_snapshot_max_bytes=_number(values[prefix + "fetch.snapshot.max.bytes"]),
    )


def _strings(value: ConfigValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _number(value: ConfigValue) -> int:
    assert isinstance(value, int), value
    return value
