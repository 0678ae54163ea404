"""`quorate export`: the topics and users of a cluster as KafkaTopics and KafkaUsers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.console import (
    BrokerToolCommand,
    UsageError,
    admin_config,
    examples,
    option,
    run,
    show,
    tool_app,
    tool_options,
    warn,
)

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient

EXAMPLES = examples(
    "quorate export -b localhost:9092 --cluster orders",
)

app = tool_app()


@app.command(cls=BrokerToolCommand, epilog=EXAMPLES)
def export(
    context: typer.Context,
    *,
    cluster: Annotated[
        str | None,
        option(
            "NAME", "Write spec.cluster, the KafkaController of this cluster, in place of bootstrapServers."
        ),
    ] = None,
    secret: Annotated[
        str | None,
        option(
            "NAME", "The Secret for spec.security, with which the operator is to connect to bootstrapServers."
        ),
    ] = None,
    topics: Annotated[bool, typer.Option(help="Write KafkaTopics.")] = True,
    users: Annotated[bool, typer.Option(help="Write KafkaUsers.")] = True,
) -> None:
    """Print the topics and users of a cluster as manifests: applied to it, they change nothing.

    Internal topics are left out, and so are passwords, which brokers do not return: users have ACLs and quotas, and a
    warning names those with SCRAM credentials.
    """
    target = _target(context, cluster, secret)
    manifests, warnings = run(lambda admin: _exported(admin, target, topics=topics, users=users), context)
    for warning in warnings:
        warn(warning)
    show(context, lambda: _yaml(manifests), lambda: manifests)


def _target(context: typer.Context, cluster: str | None, secret: str | None) -> dict[str, Any]:
    """Return the fields that name the cluster. Raises UsageError."""
    if cluster is not None:
        if secret is not None:
            raise UsageError("--secret is for bootstrapServers: give either --cluster or --secret")
        return {"cluster": cluster}
    config = admin_config(tool_options(context))
    target: dict[str, Any] = {
        "bootstrapServers": [str(bootstrap_server) for bootstrap_server in config.bootstrap_servers]
    }
    protocol, sasl = config.security.protocol, config.security.sasl
    if protocol.name != "PLAINTEXT":
        target["security"] = {"protocol": protocol.name}
        if sasl is not None:
            target["security"]["mechanism"] = sasl.mechanism.value
            if secret is None:
                raise UsageError(
                    "--secret is needed: the Secret with username and password for bootstrapServers"
                )
        if secret is not None:
            target["security"]["secretName"] = secret
    elif secret is not None:
        raise UsageError("--secret is for TLS and SASL: --command-config has neither")
    return target


async def _exported(
    admin: "AdminClient", target: dict[str, Any], *, topics: bool, users: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the manifests, and warnings about what they lack."""
    found: list[dict[str, Any]] = []
    warnings: list[str] = []
    if topics:
        found += await _topics(admin, target)
    if users:
        found += await _users(admin, target, warnings)
    return _usable(found, warnings), warnings


async def _topics(admin: "AdminClient", target: dict[str, Any]) -> list[dict[str, Any]]:
    from quorate_admin.errors import ServerError
    from quorate_operator.entities.export import topic_manifest
    from quorate_operator.gateway.topics import observe_topics

    found = []
    names, under_way = await admin.list_topics(), await admin.list_partition_reassignments()
    for name, topic in sorted((await observe_topics(admin, names, under_way)).items()):
        if isinstance(topic, ServerError):
            raise topic
        if topic is not None:  # it was deleted meanwhile
            found.append(topic_manifest(name, topic, target))
    return found


async def _users(admin: "AdminClient", target: dict[str, Any], warnings: list[str]) -> list[dict[str, Any]]:
    from quorate_operator.entities.export import user_manifest
    from quorate_operator.entities.users import ObservedUser
    from quorate_operator.gateway.users import observe_users

    facts = await observe_users(admin, None, ())
    principals = {f"User:{name}" for name in (*facts.mechanisms, *facts.quotas)} | {*(facts.acls or ())}
    found = []
    for principal in sorted(principals):
        name = principal.partition(":")[2]
        if mechanisms := facts.mechanisms.get(name):
            warnings.append(
                f"{principal} has credentials for {', '.join(sorted(mechanisms))}: they stay as they are; to keep "
                "them by the resource, add spec.authentication and a Secret with the password"
            )
        user = ObservedUser(
            acls=None if facts.acls is None else facts.acls.get(principal, frozenset()),
            quotas=facts.quotas.get(name, {}),
        )
        found.append(user_manifest(principal, user, target))
    return found


def _usable(manifests: Sequence[dict[str, Any]], warnings: list[str]) -> list[dict[str, Any]]:
    """Return the manifests that the operator would accept. Adds a warning for each of the others."""
    from quorate_operator.models.manifests import ManifestError, load_entity

    usable = []
    for manifest in manifests:
        try:
            load_entity(manifest, "left out")
        except ManifestError as error:
            warnings.append(str(error))
        else:
            usable.append(manifest)
    return usable


def _yaml(manifests: Sequence[dict[str, Any]]) -> str:
    import yaml

    return yaml.safe_dump_all(manifests, sort_keys=False, width=110) if manifests else ""
