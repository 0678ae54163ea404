"""Reads manifests from YAML and from the API server. Errors name the field, the value, and what is allowed.

In a file, an unknown field is a typo and is refused. The API server serves no typos: an unknown field of its objects
is in the installed definitions, which are of a newer release than this process. It is ignored, and reported.
"""

import dataclasses
import io
import types
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from quorate_operator.models.base import Metadata, shown_value
from quorate_operator.models.listeners import Listener
from quorate_operator.models.node_configs import check_listeners_of
from quorate_operator.models.nodes import NodeIds, first_node_id
from quorate_operator.models.object_names import certificate_name
from quorate_operator.models.placed_controllers import placed
from quorate_operator.models.pools import check_config
from quorate_operator.models.rebalances import KafkaRebalance
from quorate_operator.models.secrets import Secret, SecretManifest
from quorate_operator.models.security import ANONYMOUS
from quorate_operator.models.topics import KafkaTopic
from quorate_operator.models.users import KafkaUser
from quorate_operator.models.v1alpha1 import (
    API_VERSION,
    KINDS,
    KafkaBroker,
    KafkaController,
    Resource,
)
from quorate_operator.models.yaml_errors import YAML_ERRORS

DOCUMENTS_MAX = 100
_UNKNOWN = "extra_forbidden"
"""pydantic's type of the fault of a field that a model does not have."""
_METADATA = frozenset(Metadata.model_fields)

Entity = KafkaTopic | KafkaUser | KafkaRebalance
ENTITIES: Mapping[str, type[KafkaTopic] | type[KafkaUser] | type[KafkaRebalance]] = {
    "KafkaTopic": KafkaTopic,
    "KafkaUser": KafkaUser,
    "KafkaRebalance": KafkaRebalance,
}
"""The models of entities in a Kafka cluster, by kind. `quorate play` accepts none of these."""


_Kind = TypeVar("_Kind", bound=BaseModel)


class ManifestError(Exception):
    """A manifest that can't be used. The message has one line per fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """One controller quorum and the broker pools that belong to it, and the Secrets of the same file."""

    controllers: KafkaController
    brokers: tuple[KafkaBroker, ...]
    secrets: Mapping[str, Secret] = dataclasses.field(default_factory=dict)
    drained_pools: frozenset[str] = frozenset()
    """Names of pools that are deleted together with their volumes: their brokers are drained before they stop."""
    withdrawn: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    """By pool, the listeners that are in no manifest any more, and by which nodes still connect to each other."""
    fixed_protocols: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """By pool and listener, the protocol that its manifest asks for in place of the one that nodes run with."""

    @property
    def resources(self) -> tuple[KafkaController | KafkaBroker, ...]:
        """The quorum and its pools."""
        return (self.controllers, *self.brokers)

    def controllers_listener(self, name: str | None) -> Listener:
        """Return the controllers' listener of this name, by default the first."""
        listeners = self.controllers.spec.listeners
        return next((listener for listener in listeners if listener.name == name), listeners[0])


def load_manifests(text: str, source: str) -> Manifests:
    """Return the cluster that the YAML documents in `text` describe; `source` names them in errors.

    Raises ManifestError.
    """
    loaded = list(_load_documents(text, source))
    resources = [item for item in loaded if not isinstance(item, _NamedSecret)]
    secrets = _by_name((item for item in loaded if isinstance(item, _NamedSecret)), source)
    quorums = [resource for resource in resources if isinstance(resource, KafkaController)]
    pools = tuple(resource for resource in resources if isinstance(resource, KafkaBroker))
    if len(quorums) != 1:
        named = ", ".join(quorum.metadata.name for quorum in quorums) or "none"
        raise ManifestError(f"{source}: one KafkaController is needed, found {len(quorums)} ({named})")
    return replace(joined(quorums[0], pools, source), secrets=secrets)


def joined(quorum: KafkaController, pools: Sequence[KafkaBroker], source: str) -> Manifests:
    """Return a quorum and its pools as one cluster. Pools without `nodeIds` get node ids, in their order.

    Listeners whose certificates are issued get the names of their Secrets.

    Raises ManifestError when they contradict each other.
    """
    pools = _with_node_ids(quorum, pools)
    try:
        quorum = placed(quorum, pools)
    except ValueError as error:
        raise ManifestError(f"{source}: KafkaController {quorum.metadata.name}: spec.{error}") from None
    _check_together(quorum, pools, source)
    _check_authorization(quorum, pools, source)
    _check_listeners_of_properties([quorum, *pools], quorum, source)
    _check_certificates([quorum, *pools], source)
    return Manifests(
        controllers=with_secret_names(quorum), brokers=tuple(with_secret_names(pool) for pool in pools)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Generic[_Kind]):
    """An object of the API server, and the paths of its fields that the models do not know.

    They come from definitions of another release: the API server refuses or drops what its definitions do not have.
    """

    resource: _Kind
    unknown: tuple[str, ...] = ()


def load_object(body: Mapping[str, Any], source: str) -> Resource:
    """Return the model of an object of the API server, without server-side fields and fields that it does not know.

    Raises ManifestError.
    """
    return read_object(body, source).resource


def load_entity(body: Mapping[str, Any], source: str) -> Entity:
    """As `load_object`, for entities in a Kafka cluster. Raises ManifestError."""
    return read_entity(body, source).resource


def read_object(body: Mapping[str, Any], source: str) -> Served[Resource]:
    """As `load_object`, with the unknown fields."""
    return _read_served(_without_servers_part(body, source), source, KINDS)


def read_entity(body: Mapping[str, Any], source: str) -> Served[Entity]:
    """As `load_entity`, with the unknown fields."""
    return _read_served(_without_servers_part(body, source), source, ENTITIES)


def _read_served(document: object, where: str, kinds: Mapping[str, type[_Kind]]) -> Served[_Kind]:
    model, label = _model_of(document, where, kinds)
    try:
        return Served(resource=model.model_validate(document))
    except ValidationError as error:
        faults = error.errors(include_url=False)
        unknown = [_path_of(fault["loc"]) for fault in faults if fault["type"] == _UNKNOWN]
        if not unknown:
            raise _manifest_error(error, label, model) from error
    try:
        return Served(resource=model.model_validate(document, extra="ignore"), unknown=tuple(unknown))
    except ValidationError as error:
        raise _manifest_error(error, label, model) from error


def _without_servers_part(body: Mapping[str, Any], source: str) -> dict[str, Any]:
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping):
        raise ManifestError(f"{source}: metadata: missing; it must be given")
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    return {name: part for name, part in body.items() if name != "status"} | {"metadata": kept}


def _with_node_ids(quorum: KafkaController, pools: Sequence[KafkaBroker]) -> list[KafkaBroker]:
    taken = set(quorum.spec.claimed_node_ids())
    for pool in pools:
        taken |= (
            pool.spec.named_node_ids() if pool.spec.node_ids is None else set(pool.spec.claimed_node_ids())
        )
    completed = []
    for pool in pools:
        if pool.spec.node_ids is not None:
            completed.append(pool)
            continue
        node_ids = NodeIds(first=first_node_id(pool.spec.named_node_ids(), taken))
        spec = pool.spec.model_copy(update={"node_ids": node_ids})
        completed.append(pool.model_copy(update={"spec": spec}))
        taken |= set(spec.claimed_node_ids())
    return completed


_Pool = TypeVar("_Pool", KafkaController, KafkaBroker)


def with_secret_names(pool: _Pool) -> _Pool:
    """Return the pool with the name of the Secret of each certificate that is issued for it."""
    if all(listener.tls is None or listener.tls.is_given for listener in pool.spec.listeners):
        return pool
    listeners = []
    for listener in pool.spec.listeners:
        if listener.tls is not None and not listener.tls.is_given:
            tls = listener.tls.named(certificate_name(pool.metadata.name, listener.name))
            listener = listener.model_copy(update={"tls": tls})  # noqa: PLW2901 - the updated one
        listeners.append(listener)
    return pool.model_copy(update={"spec": pool.spec.model_copy(update={"listeners": tuple(listeners)})})


def _check_certificates(pools: Sequence[KafkaController | KafkaBroker], source: str) -> None:
    """Refuse listeners of a pool whose names give the same Certificate, for instance `A_B` and `A-B`."""
    owners: dict[str, str] = {}
    for pool in pools:
        for place, listener in enumerate(pool.spec.listeners):
            if listener.tls is None or listener.tls.is_given:
                continue
            where = f"{pool.kind} {pool.metadata.name}: spec.listeners[{place}]"
            name = certificate_name(pool.metadata.name, listener.name)
            owner = owners.setdefault(name, where)
            if owner != where:
                field, what = ("tls", "Secret") if listener.tls.is_own else ("tls.issuerRef", "Certificate")
                raise ManifestError(
                    f"{source}: {where}.{field}: its {what} {name} would be that of {owner}, too; "
                    "rename the listener"
                )


def _check_listeners_of_properties(
    pools: Sequence[KafkaController | KafkaBroker], quorum: KafkaController, source: str
) -> None:
    for pool in pools:
        names = {listener.name for listener in (*pool.spec.listeners, *quorum.spec.listeners)}
        try:
            check_listeners_of(pool.spec.config, names)
        except ValueError as error:
            raise ManifestError(f"{source}: {pool.kind} {pool.metadata.name}: spec.{error}") from None


def _check_together(quorum: KafkaController, pools: Sequence[KafkaBroker], source: str) -> None:
    owners = dict.fromkeys(quorum.spec.claimed_node_ids(), f"KafkaController {quorum.metadata.name}")
    names: set[str] = set()
    for pool in pools:
        name = pool.metadata.name
        if name in names:
            raise ManifestError(f"{source}: KafkaBroker {name}: metadata.name: there are two of this name")
        names.add(name)
        if pool.spec.controllers != quorum.metadata.name:
            raise ManifestError(
                f"{source}: KafkaBroker {name}: spec.controllers: {pool.spec.controllers!r}: "
                f"no such KafkaController; the file has {quorum.metadata.name!r}"
            )
        of_controllers = {listener.name for listener in quorum.spec.listeners}
        for place, listener in enumerate(pool.spec.listeners):
            if listener.name in of_controllers:
                raise ManifestError(
                    f"{source}: KafkaBroker {name}: spec.listeners[{place}].name: {listener.name!r}: is the "
                    "controllers' listener; a broker's needs another name"
                )
        for node_id in pool.spec.claimed_node_ids():
            if node_id in owners:
                field = "decommission" if node_id in pool.spec.decommission else "nodeIds.first"
                value = node_id if field == "decommission" else pool.spec.first_node_id
                raise ManifestError(
                    f"{source}: KafkaBroker {name}: spec.{field}: {value}: node id "
                    f"{node_id} belongs to {owners[node_id]} already; ids are unique in a cluster"
                )
            owners[node_id] = f"KafkaBroker {name}"


def _check_authorization(quorum: KafkaController, pools: Sequence[KafkaBroker], source: str) -> None:
    """Refuse an authorization without the nodes as super users: they could not register, fetch or replicate."""
    authorization = quorum.spec.authorization
    listeners: list[tuple[str, Listener]] = [("controllers", listener) for listener in quorum.spec.listeners]
    for pool in pools:
        where = f"{source}: KafkaBroker {pool.metadata.name}: spec"
        try:
            check_config(pool.spec.config, pool.spec.listeners, authorization)
        except ValueError as error:
            raise ManifestError(f"{where}.{error}") from None
        listeners.append((f"brokers of {pool.metadata.name}", pool.spec.listeners[0]))
        own = any(listener.tls is not None for listener in pool.spec.listeners)
        shows = any(
            listener.tls is not None and listener.tls.client_auth == "required"
            for listener in quorum.spec.listeners
        )
        if shows and not own:
            raise ManifestError(
                f"{where}.listeners: none has tls, but brokers show their certificate at the controllers' listener, "
                "where tls.clientAuth is required"
            )
    for nodes, listener in listeners:
        check_super_user(quorum, nodes, listener, source)


def check_super_user(quorum: KafkaController, nodes: str, listener: Listener, source: str) -> None:
    """Refuse an authorization without the principal of nodes at a listener between them. Raises ManifestError."""
    authorization, principal = quorum.spec.authorization, _principal_of_nodes(listener)
    if authorization is not None and principal is not None and principal not in authorization.super_users:
        raise ManifestError(
            f"{source}: KafkaController {quorum.metadata.name}: spec.authorization.superUsers: must have "
            f"{principal!r}, which the {nodes} are at each other's listener {listener.name} ({listener.protocol})"
        )


def _principal_of_nodes(listener: Listener) -> str | None:
    """Return the principal that nodes have at each other's listener; None if it is in their certificate."""
    if listener.sasl is not None:
        return f"User:{listener.sasl.user}"
    return None if listener.tls is not None and listener.tls.client_auth == "required" else ANONYMOUS


@dataclass(frozen=True, slots=True)
class _NamedSecret:
    name: str
    secret: Secret


def _by_name(secrets: Iterable[_NamedSecret], source: str) -> dict[str, Secret]:
    found: dict[str, Secret] = {}
    for secret in secrets:
        if secret.name in found:
            raise ManifestError(f"{source}: Secret {secret.name}: metadata.name: there are two of this name")
        found[secret.name] = secret.secret
    return found


def _load_secret(document: Mapping[str, Any], where: str) -> _NamedSecret:
    """Return a Secret. Raises ManifestError, whose message has none of its values."""
    try:
        manifest = SecretManifest.model_validate(document)
        return _NamedSecret(manifest.metadata.name, manifest.content())
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        lines = [f"{where}: Secret: {_path_of(fault['loc'])}: {fault['msg']}" for fault in faults]
        raise ManifestError("\n".join(lines)) from None
    except ValueError as error:
        raise ManifestError(f"{where}: Secret {manifest.metadata.name}: {error}") from None


def _load_documents(text: str, source: str) -> Iterator[Resource | _NamedSecret]:
    stream = io.StringIO(text)
    stream.name = source  # PyYAML's errors name it
    try:
        documents = list(yaml.load_all(stream, Loader=_Loader))
    except YAML_ERRORS as error:
        raise ManifestError(f"{source}: can't be read as YAML: {_one_line(error)}") from error
    except RecursionError as error:
        raise ManifestError(f"{source}: can't be read as YAML: it is nested too deeply") from error
    if len(documents) > DOCUMENTS_MAX:
        raise ManifestError(f"{source}: {len(documents)} documents; at most {DOCUMENTS_MAX} are taken")
    for index, document in enumerate(documents, start=1):
        if document is not None:
            where = f"{source}: document {index}"
            is_secret = isinstance(document, dict) and document.get("kind") == "Secret"
            yield _load_secret(document, where) if is_secret else _load_resource(document, where, KINDS)


def _load_resource(document: object, where: str, kinds: Mapping[str, type[_Kind]]) -> _Kind:
    model, label = _model_of(document, where, kinds)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _manifest_error(error, label, model) from error


def _model_of(document: object, where: str, kinds: Mapping[str, type[_Kind]]) -> tuple[type[_Kind], str]:
    """Return the model of a document, and what names the document in errors. Raises ManifestError."""
    if not isinstance(document, dict):
        raise ManifestError(f"{where}: must be a mapping with apiVersion, kind, metadata and spec")
    kind = document.get("kind")
    model = kinds.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ManifestError(f"{where}: kind: {shown_value(kind)}: must be one of {', '.join(sorted(kinds))}")
    if document.get("apiVersion") != API_VERSION:
        raise ManifestError(
            f"{where}: apiVersion: {shown_value(document.get('apiVersion'))}: must be {API_VERSION}"
        )
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return model, f"{where}: {kind} {name}" if isinstance(name, str) else f"{where}: {kind}"


def _manifest_error(error: ValidationError, label: str, model: type[BaseModel]) -> ManifestError:
    faults = error.errors(include_url=False)
    return ManifestError(
        "\n".join(
            f"{label}: {_explain(fault, model)}" for fault in faults if not _is_consequence(fault, faults)
        )
    )


def _is_consequence(fault: ErrorDetails, faults: Sequence[ErrorDetails]) -> bool:
    """Whether a list is called too short only because its items were refused, each with its own fault."""
    depth = len(fault["loc"])
    return fault["type"] == "too_short" and any(
        len(other["loc"]) > depth and other["loc"][:depth] == fault["loc"] for other in faults
    )


def _path_of(steps: Sequence[int | str]) -> str:
    """Return the path of a field: `spec.listeners[0].port`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _explain(fault: ErrorDetails, model: type[BaseModel]) -> str:
    """Return a fault in words: `spec.replicas: 0: must be greater than or equal to 1`."""
    steps = [step for step in fault["loc"] if step != "[key]"]
    path = _path_of(steps)
    match fault["type"]:
        case "missing":
            return f"{path}: missing; it must be given"
        case "extra_forbidden":
            return f"{path}: unknown field; {_allowed_fields(str(steps[-1]), model, steps[:-1])}"
        case "string_type" if isinstance(fault["input"], int | float):
            return f"{path}: {shown_value(fault['input'])}: must be text; put it in quotes"
        case "value_error" if not isinstance(fault["input"], str | int):
            return ".".join(part for part in (path, str(fault["ctx"]["error"])) if part)
        case "value_error":
            return f"{path}: {shown_value(fault['input'])}: {fault['ctx']['error']}"
    allowed = fault["msg"].replace("Input should be", "must be").replace("String should", "must")
    return f"{path}: {shown_value(fault['input'])}: {allowed}"


def _allowed_fields(name: str, model: type[BaseModel], path: Sequence[int | str]) -> str:
    found: type[BaseModel] | None = model
    for step in path:
        found = _model_of_field(found, step) if found else None
    if found is None:
        return "not allowed here"
    known = [field.alias or key for key, field in found.model_fields.items()]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}allowed: {', '.join(known)}"


def _model_of_field(model: type[BaseModel], step: int | str) -> type[BaseModel] | None:
    if isinstance(step, int):
        return model  # an index in a list: the model is already that of its items
    for key, field in model.model_fields.items():
        if step in (key, field.alias):
            return _model_in(field.annotation)
    return None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, Annotated, Union, types.UnionType):
        return next((model for argument in get_args(annotation) if (model := _model_in(argument))), None)
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice: YAML forbids it, and PyYAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is given twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep=deep)
