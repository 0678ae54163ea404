"""Asks the API server by a dry run whether it would accept an object, before anything depends on it."""

import time
from collections.abc import Callable

from quorate_operator.resources.facts import digest
from quorate_operator.runtime.kubernetes.api import OWNED_KINDS, ApiError, KubernetesApi, Object

ANSWER_AGE_S_MAX = 30.0
"""How long an answer is used: classes, policies and quotas may change at any time."""
_REFUSING = (400, 403, 422)
_UNKNOWN_FIELD = "failed to create typed patch object"
_TEMPORARY = ("exceeded quota", "does not support dry run")
"""Refusals that concern the dry run only: the running pod counts in the quota, or a webhook supports no dry run."""


class DryRuns:
    """The API server's answers about objects of one namespace."""

    def __init__(
        self, api: KubernetesApi, namespace: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._answers: dict[tuple[str, str, str], tuple[float, str | None]] = {}

    async def refusal(self, item: Object) -> str | None:
        """Returns why the API server refuses to apply the object; None if it accepts it, or can't tell."""
        now = self._clock()
        self._answers = {
            key: response for key, response in self._answers.items() if now - response[0] < ANSWER_AGE_S_MAX
        }
        key = (item["kind"], item["metadata"]["name"], digest(item))
        if key not in self._answers:
            self._answers[key] = now, await self._ask(item)
        return self._answers[key][1]

    async def _ask(self, item: Object) -> str | None:
        try:
            await self._api.apply(OWNED_KINDS[item["kind"]], self._namespace, item, dry_run=True)
        except ApiError as error:
            return str(error) if _is_refusal(error) else None
        return None


def _is_refusal(error: ApiError) -> bool:
    message = str(error)
    # Unknown fields of an applied object are answered with status 500.
    refuses = error.status in _REFUSING or _UNKNOWN_FIELD in message
    return refuses and not any(words in message for words in _TEMPORARY)
