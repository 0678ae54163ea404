"""`quorate play plan`: the steps of `quorate play`, in order, each with its reason. Changes nothing."""

import asyncio
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from quorate_operator.models.manifests import ManifestError, load_manifests
from quorate_operator.models.tenant_checks import pool_refusals
from quorate_operator.models.tenant_policy import NOT_ALLOWED, POLICY_SIZE_BYTES_MAX, parse_policy
from quorate_operator.planning.planner import plan as plan_of
from quorate_operator.resources.facts import PUBLISHED, Images
from quorate_operator.runtime.local import play_session
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.status import idle_observation, plan_as_json, played_view

from quorate.console import Output, examples, flag, option, parse_file, report_failures, show_as
from quorate.play.options import QUICKSTART, DirOption, FileOption, OutputOption, given

NOTHING = "Nothing to do.\n"

EXAMPLES = examples(
    "quorate play plan -f cluster.yaml",
    "quorate play plan -f cluster.yaml --without-brokers -o json",
)


def plan(
    context: typer.Context,
    *,
    file: FileOption = None,
    directory: DirOption = None,
    policy: Annotated[
        Path | None,
        option(
            "FILE",
            "Also print what an operator with this policy would refuse: YAML, as `policy` of its chart.",
            names=("--policy",),
        ),
    ] = None,
    without_brokers: Annotated[
        bool, flag("--without-brokers", "Plan the controllers alone, which needs no Java.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the steps of `quorate play`, in order, each with its reason. Changes nothing.

    The plan starts from the state of the running cluster, or from a new one.
    Brokers need Java on this machine, as for `quorate play`.
    """
    with report_failures(PlayError, ManifestError):
        file, directory = given(context, file, directory)
        manifest, source = play_session.read_manifests(file or [QUICKSTART])
        refused = [] if policy is None else _not_allowed(manifest, source, policy)
        found = asyncio.run(_local_plan(manifest, source, directory, without_brokers=without_brokers))
        found["refusals"] = [*found["refusals"], *refused]
        show_as(output, lambda: _as_text(found), lambda: found)


def _not_allowed(manifest: str, source: str, policy: Path) -> list[dict[str, str]]:
    """Return what an operator with the default images would refuse. Raises CommandError."""
    allowed = parse_file(policy, "--policy", parse_policy, size_bytes_max=POLICY_SIZE_BYTES_MAX)
    images = Images(quorate=f"{PUBLISHED}/quorate:*", lake=f"{PUBLISHED}/quorate-lake:*")
    allowed = allowed.with_images(images.names)
    return [
        {"code": NOT_ALLOWED, "message": f"{resource.kind} {resource.metadata.name}: {refused}"}
        for resource in load_manifests(manifest, source).resources
        for refused in pool_refusals(
            resource.spec.model_dump(by_alias=True, exclude_unset=True), allowed, resource.metadata.namespace
        )
    ]


async def _local_plan(
    manifest: str, source: str, directory: Path | None, *, without_brokers: bool
) -> dict[str, Any]:
    request = play_session.ask_for(
        manifest, source, directory, os.environ, lambda _: None, without_brokers=without_brokers
    )
    for note in request.notes:
        typer.echo(note, err=True)
    if request.directory.held:
        return await play_session.ask_plan(request)
    layout = play_session.settle(request)
    observed = idle_observation(layout)
    found = plan_of(layout.desired, observed, int(time.time() * 1000))
    return plan_as_json(played_view(layout, observed, found))


def _as_text(plan: dict[str, Any]) -> str:
    lines = [f"{place}. {step['text']}" for place, step in enumerate(plan["steps"], start=1)]
    lines += [f"refused ({refusal['code']}): {refusal['message']}" for refusal in plan["refusals"]]
    return "".join(f"{line}\n" for line in lines) or NOTHING
