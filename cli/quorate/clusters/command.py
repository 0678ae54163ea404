"""`kubectl quorate`, and the commands of `quorate` that show and change clusters on Kubernetes.

A change is a change of the resource, as `kubectl edit` would make it: the operator plans and does the rest.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from quorate_operator.models.base import ANNOTATION_PAUSE, ANNOTATION_RESTART, quantity_bytes
from typer.core import TyperOption
from typer.models import TyperPath

from quorate.console import (
    CommandError,
    LocalToolCommand,
    Output,
    UsageError,
    examples,
    flag,
    needing,
    option,
    parse_ids,
    plain_app,
    print_version,
    remembered,
    remembered_option,
    show_as,
    write,
)

if TYPE_CHECKING:
    from quorate.clusters.api import ClustersApi
    from quorate.clusters.resources import Cluster, Pool

REBALANCE_TIMEOUT_S = 300

app = plain_app(
    add_completion=False,
    no_args_is_help=True,
    help="Kafka clusters that Quorate runs on Kubernetes. "
    "Exit code: 0 success, 1 failure, 2 wrong command line, 130 Ctrl-C.",
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the KafkaController.")]
NodesArgument = Annotated[list[int], typer.Argument(metavar="NODE_ID...", help="Node ids.")]
OutputOption = Annotated[Output, option(None, "Output format.", names=("--output", "-o"))]


VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True)
]


@app.callback()
def clusters(*, version: VersionOption = False) -> None:
    """Show and change Kafka clusters that Quorate runs on Kubernetes."""


class ClustersCommand(LocalToolCommand):
    """A command with the options that say which Kubernetes and which namespace."""

    def shared_options(self) -> Iterator[TyperOption]:
        """`--namespace`, `--context`, `--kubeconfig`."""
        yield remembered_option(
            ("--namespace", "-n"), "NAMESPACE", "The namespace (default: that of the context)."
        )
        yield remembered_option(("--context",), "NAME", "The context of the kubeconfig to use.")
        text = "The kubeconfig (default: $KUBECONFIG or ~/.kube/config)."
        yield remembered_option(("--kubeconfig",), "FILE", text, type=TyperPath(path_type=Path))


def _api(ctx: typer.Context, *, everywhere: bool = False) -> "ClustersApi":
    with needing("kubectl"):
        from quorate.clusters.api import ClustersApi, default_namespace
    given = remembered(ctx)
    kubeconfig, context = given.get("kubeconfig"), given.get("context")
    namespace = given.get("namespace") or default_namespace(kubeconfig, context)
    return ClustersApi(kubeconfig=kubeconfig, context=context, namespace=None if everywhere else namespace)


@app.command(
    cls=ClustersCommand,
    epilog=examples("kubectl quorate status --namespace kafka", "kubectl quorate status quorum -o json"),
)
def status(
    ctx: typer.Context,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The name of the KafkaController (default: all).")
    ] = None,
    all_namespaces: Annotated[
        bool, option(None, "Show the clusters of all namespaces.", names=("--all-namespaces", "-A"))
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show clusters: their quorum, voters, brokers, and the remaining steps."""
    if name is not None and all_namespaces:
        raise UsageError("NAME and --all-namespaces can't be given together")
    from quorate.clusters import text

    api = _api(ctx, everywhere=all_namespaces)
    if name is not None:
        cluster = api.cluster(name)
        show_as(output, lambda: text.cluster_text(cluster), lambda: text.cluster_json(cluster))
        return
    clusters = api.clusters()
    show_as(
        output,
        lambda: (
            text.clusters_text(clusters)
            if clusters
            else "No KafkaController in this namespace; --all-namespaces searches all.\n"
        ),
        lambda: {"clusters": [text.cluster_json(cluster) for cluster in clusters]},
    )


@app.command(cls=ClustersCommand, epilog=examples("kubectl quorate plan quorum --namespace kafka"))
def plan(
    ctx: typer.Context,
    name: NameArgument,
    *,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what the operator will do, in order, each step with its reason."""
    from quorate.clusters import text

    cluster = _api(ctx).cluster(name)
    show_as(output, lambda: text.plan_text(cluster), lambda: text.plan_json(cluster))


@app.command(cls=ClustersCommand, epilog=examples("kubectl quorate doctor quorum --namespace kafka"))
def doctor(
    ctx: typer.Context,
    name: NameArgument,
    *,
    output: OutputOption = Output.TABLE,
) -> None:
    """Report what is wrong with a cluster, and which command helps. Exit code 1 if something is."""
    from quorate.clusters import findings, text

    cluster = _api(ctx).cluster(name)
    found = findings.findings_of(cluster)
    show_as(output, lambda: text.doctor_text(cluster, found), lambda: text.doctor_json(cluster, found))
    if not findings.is_healthy(found):
        raise typer.Exit(1)


@app.command(
    cls=ClustersCommand,
    epilog=examples(
        "kubectl quorate decommission quorum 3001", "kubectl quorate decommission quorum 2 --scale-down"
    ),
)
def decommission(
    ctx: typer.Context,
    name: NameArgument,
    node_ids: NodesArgument,
    *,
    scale_down: Annotated[
        bool, flag("--scale-down", "Lower replicas as well, so that no new node is created.")
    ] = False,
    undo: Annotated[bool, flag("--undo", "Cancel the decommissioning of nodes.")] = False,
) -> None:
    """Remove controllers from the quorum, or drain brokers and remove them from the cluster.

    Each node that leaves is replaced by one with another id, unless --scale-down is given.
    """
    if scale_down and undo:
        raise UsageError("--scale-down and --undo can't be given together")
    api = _api(ctx)
    cluster = api.cluster(name)
    specs = [  # all are checked before the first change
        (pool, _recommissioned(pool, ids) if undo else _decommissioned(pool, ids, scale_down=scale_down))
        for pool, ids in _by_pool(cluster, node_ids)
    ]
    for pool, spec in specs:
        api.change(pool, {"spec": spec})
        listed = ", ".join(map(str, spec["decommission"])) or "no node"
        write(f"{pool.kind} {pool.name}: decommissioned: {listed}\n")
    write(f"`kubectl quorate plan {name} -n {cluster.namespace}` shows the steps, and why.\n")


@app.command(
    cls=ClustersCommand,
    epilog=examples(
        "kubectl quorate rebalance quorum --preview",
        "kubectl quorate rebalance quorum --throttle=50Mi --wait",
    ),
)
def rebalance(
    ctx: typer.Context,
    name: NameArgument,
    *,
    preview: Annotated[bool, flag("--preview", "Show the proposal, and do not approve it.")] = False,
    add_brokers: Annotated[str | None, option("ID,ID,...", "Move replicas to these brokers alone.")] = None,
    remove_brokers: Annotated[
        str | None, option("ID,ID,...", "Move replicas away from these brokers alone.")
    ] = None,
    throttle: Annotated[
        str | None,
        option("BYTES", "Bytes per second and broker, such as 50Mi (default: that of the KafkaRebalance)."),
    ] = None,
    wait: Annotated[bool, flag("--wait", "Wait until it is done.")] = False,
    timeout: Annotated[
        int, option("SECONDS", "How long to wait for a proposal, a stop, or with --wait for the end.", min=1)
    ] = REBALANCE_TIMEOUT_S,
    stop: Annotated[bool, flag("--stop", "Cancel the moves under way, and remove throttles.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Even out replicas and leaders: make a proposal, show it, and approve it.

    It is a KafkaRebalance with the name of the cluster, or the one that is there already; the operator does the rest.
    """
    goals = {"--add-brokers": add_brokers, "--remove-brokers": remove_brokers}
    given = [option for option, value in {**goals, "--throttle": throttle}.items() if value is not None]
    given += [option for option, value in {"--preview": preview, "--wait": wait}.items() if value]
    if stop and given:
        raise UsageError(f"--stop and {given[0]} can't be given together")
    if preview and wait:
        raise UsageError("--preview and --wait can't be given together")
    if all(value is not None for value in goals.values()):
        raise UsageError("--add-brokers and --remove-brokers can't be given together")
    if throttle is not None:
        _check_throttle(throttle)
    added, removed = (_ids(option, text) for option, text in goals.items())
    from quorate.clusters import rebalances, rebalancing

    api = _api(ctx)
    cluster = api.cluster(name).name
    known = api.rebalance(cluster)
    if stop:
        found = rebalancing.stop(api, cluster, known, timeout)
        show_as(
            output, lambda: f"{rebalancing.label(found)}: stopped\n", lambda: rebalances.rebalance_json(found)
        )
        return
    if known is not None and (phase := rebalances.status_of(known).phase) in rebalances.BUSY:
        raise CommandError(
            f"{rebalancing.label(known)} is {phase}; wait until it is done, or end it with --stop"
        )
    body = rebalances.request(
        cluster, added=added, removed=removed, throttle=throttle, refresh=datetime.now(UTC).isoformat()
    )
    found = rebalancing.propose(api, known, body, timeout)
    proposal = rebalances.status_of(found).proposal
    assert proposal is not None
    if not preview and not proposal.is_done:
        found = api.put_rebalance(found, rebalances.approval(proposal.id))
        if wait:
            found = rebalancing.await_end(api, found, proposal.id, timeout)

    def text() -> str:
        if proposal.is_done:
            then = ""
        elif preview:
            then = rebalances.to_approve(found, proposal.id)
        else:
            then = rebalances.progress_text(found) if wait else rebalances.to_watch(found)
        return rebalances.proposal_text(found) + then

    show_as(output, text, lambda: rebalances.rebalance_json(found))


def _ids(name: str, text: str | None) -> tuple[int, ...]:
    """The node ids of an option. Raises UsageError."""
    if text is None:
        return ()
    try:
        return tuple(parse_ids(text, ","))
    except ValueError as error:
        raise UsageError(f"{name}: {error}; give node ids with commas between them: 3,4") from error


def _check_throttle(text: str) -> None:
    try:
        is_some = quantity_bytes(text) > 0
    except ValueError as error:
        raise UsageError(f"--throttle: {text!r}: {error}") from error
    if not is_some:
        raise UsageError(f"--throttle: {text!r}: must be more than 0")


@app.command(cls=ClustersCommand, epilog=examples("kubectl quorate restart quorum 3000 3001"))
def restart(
    ctx: typer.Context,
    name: NameArgument,
    node_ids: Annotated[
        list[int] | None, typer.Argument(metavar="[NODE_ID...]", help="Node ids (default: all).")
    ] = None,
) -> None:
    """Restart nodes one after the other, only while the quorum and the partitions allow it."""
    token = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    api = _api(ctx)
    cluster = api.cluster(name)
    if not node_ids:
        for pool in cluster.pools:
            _annotate(api, pool, {ANNOTATION_RESTART: token})
        return
    by_pool = _by_pool(cluster, node_ids)
    for pool, ids in by_pool:
        _check_has(pool, ids, pool.node_ids())
    for pool, ids in by_pool:
        _annotate(api, pool, {f"{ANNOTATION_RESTART}-{node_id}": token for node_id in ids})


@app.command(cls=ClustersCommand, epilog=examples("kubectl quorate pause quorum"))
def pause(
    ctx: typer.Context,
    name: NameArgument,
) -> None:
    """Pause a cluster: the operator observes it and changes nothing until `resume`."""
    api = _api(ctx)
    _annotate(api, api.cluster(name).controllers, {ANNOTATION_PAUSE: "true"})


@app.command(cls=ClustersCommand, epilog=examples("kubectl quorate resume quorum"))
def resume(
    ctx: typer.Context,
    name: NameArgument,
) -> None:
    """End a pause."""
    api = _api(ctx)
    controllers = api.cluster(name).controllers
    if controllers.is_paused_by_spec:
        raise CommandError(
            f"spec.state of KafkaController {name} is Paused; set it to Running in the manifest"
        )
    _annotate(api, controllers, {ANNOTATION_PAUSE: None})


def _by_pool(cluster: "Cluster", node_ids: Sequence[int]) -> list[tuple["Pool", list[int]]]:
    """Group the node ids by the pool that they belong to."""
    found: dict[str, tuple[Pool, list[int]]] = {}
    for node_id in node_ids:
        pool = cluster.pool_with(node_id)
        if pool is None:
            known = "; ".join(
                f"{pool.name}: {', '.join(map(str, pool.node_ids()))}" for pool in cluster.pools
            )
            raise CommandError(f"NODE_ID: {node_id}: no pool of {cluster.name} has such ids; it has {known}")
        found.setdefault(f"{pool.kind}/{pool.name}", (pool, []))[1].append(node_id)
    return list(found.values())


def _decommissioned(pool: "Pool", node_ids: Sequence[int], *, scale_down: bool) -> dict[str, Any]:
    _check_has(pool, node_ids, (*pool.node_ids(), *pool.decommission))
    new = [node_id for node_id in dict.fromkeys(node_ids) if node_id not in pool.decommission]
    spec: dict[str, Any] = {"decommission": sorted((*pool.decommission, *new))}
    if scale_down:
        spec["replicas"] = int(pool.spec["replicas"]) - len(new)
    return spec


def _check_has(pool: "Pool", node_ids: Sequence[int], known: Sequence[int]) -> None:
    for node_id in node_ids:
        if node_id not in known:
            raise CommandError(
                f"NODE_ID: {node_id}: {pool.kind} {pool.name} has {', '.join(map(str, pool.node_ids()))}"
            )


def _recommissioned(pool: "Pool", node_ids: Sequence[int]) -> dict[str, Any]:
    for node_id in node_ids:
        if node_id not in pool.decommission:
            leaving = ", ".join(map(str, pool.decommission)) or "no node"
            raise CommandError(
                f"NODE_ID: {node_id}: is not decommissioned in {pool.kind} {pool.name}; {leaving} is"
            )
    return {"decommission": [node_id for node_id in pool.decommission if node_id not in node_ids]}


def _annotate(api: "ClustersApi", pool: "Pool", annotations: dict[str, str | None]) -> None:
    api.change(pool, {"metadata": {"annotations": annotations}})
    for name, value in annotations.items():
        write(f"{pool.kind} {pool.name}: {name}{' removed' if value is None else f'={value}'}\n")
