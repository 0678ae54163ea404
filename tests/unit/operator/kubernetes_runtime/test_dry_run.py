"""Dry runs: which answers are refusals, and for how long they hold."""

from typing import Any, cast

import pytest
from quorate_operator.runtime.kubernetes.api import ApiError, Kind
from quorate_operator.runtime.kubernetes.objects import DRY_RUN_AGE_S_MAX, DryRuns

POD = {"kind": "Pod", "metadata": {"name": "brokers-0"}}


class _Api:
    """Answers dry runs with an error, or takes them."""

    def __init__(self, error: ApiError | None = None) -> None:
        self.error = error
        self.asked: list[str] = []

    async def apply(self, kind: Kind, namespace: str, body: dict[str, Any], *, dry_run: bool) -> None:
        assert (kind.name, namespace, dry_run) == ("Pod", "kafka", True)
        self.asked.append(body["metadata"]["name"])
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("status", "message", "is_refusal"),
    [
        (422, "cpu: must be less than or equal to cpu limit", True),
        (403, "no PriorityClass with name x was found", True),
        (403, "exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3", False),
        (403, "failed quota: team: must specify limits.memory", True),
        (400, "admission webhook does not support dry run", False),
        (500, "failed to create typed patch object: .spec.affinity.x: field not declared in schema", True),
        (500, "etcdserver: request timed out", False),
        (0, "no route to host", False),
    ],
)
async def test_only_what_the_object_is_refused_for_counts(
    status: int, message: str, is_refusal: bool
) -> None:
    """A node is kept from a restart by its template alone, not by an API server in trouble or by a quota that
    the running pod fills.
    """
    dry_runs = DryRuns(cast("Any", _Api(ApiError(status, "", message))), "kafka")
    assert await dry_runs.refusal(POD) == (message if is_refusal else None)


async def test_an_answer_is_asked_for_again_after_a_while() -> None:
    """Looks cost no requests, and what was allowed since is found."""
    now = [0.0]
    api = _Api(ApiError(422, "", "no"))
    dry_runs = DryRuns(cast("Any", api), "kafka", clock=lambda: now[0])
    assert await dry_runs.refusal(POD) == await dry_runs.refusal(POD) == "no"
    assert len(api.asked) == 1
    assert await dry_runs.refusal({**POD, "spec": {}}) == "no"
    assert len(api.asked) == 2
    api.error, now[0] = None, DRY_RUN_AGE_S_MAX
    assert await dry_runs.refusal(POD) is None
    assert len(api.asked) == 3
