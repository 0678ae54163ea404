"""Which replica of the operator works, as a label of its pod."""

import logging
from typing import Any, cast

import pytest
from quorate_operator.handlers.process import LEADS_LABEL, label_leading
from quorate_operator.runtime.kubernetes.api import POD, ApiError, Kind, KubernetesApi


class Api:
    """Takes patches, or refuses them."""

    def __init__(self, refusal: ApiError | None = None) -> None:
        self.patches: list[tuple[Kind, str, str, Any]] = []
        self._refusal = refusal

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Any) -> None:
        """Write it down."""
        if self._refusal is not None:
            raise self._refusal
        self.patches.append((kind, namespace, name, patch["metadata"]["labels"]))


async def test_the_label_comes_and_goes() -> None:
    api = Api()
    await label_leading(cast("KubernetesApi", api), "system", "operator-1", leads=True)
    await label_leading(cast("KubernetesApi", api), "system", "operator-1", leads=False)
    assert api.patches == [
        (POD, "system", "operator-1", {LEADS_LABEL: "true"}),
        (POD, "system", "operator-1", {LEADS_LABEL: None}),
    ]


@pytest.mark.parametrize(("status", "is_logged"), [(404, False), (403, True), (0, True)])
async def test_clusters_matter_more_than_the_page(
    caplog: pytest.LogCaptureFixture, status: int, is_logged: bool
) -> None:
    caplog.set_level(logging.WARNING)
    api = Api(ApiError(status, "No", "no"))
    await label_leading(cast("KubernetesApi", api), "system", "operator-1", leads=True)
    assert ("can't be labelled" in caplog.text) == is_logged
