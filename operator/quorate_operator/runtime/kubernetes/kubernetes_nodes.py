"""The machines of Kubernetes: whether they answer, and their labels. Read one by one, and remembered for a moment."""

import time
from collections.abc import Callable

from quorate_operator.runtime.kubernetes.api import MACHINE, ApiError, KubernetesApi, Object
from quorate_operator.runtime.kubernetes.observation import is_node_gone, is_suspicious

AGE_S_MAX = 10.0
_FORBIDDEN = 403


class NodesForbiddenError(Exception):
    """The operator may not read machines: it was installed for some namespaces."""


class KubernetesNodes:
    def __init__(self, api: KubernetesApi, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._found: dict[str, tuple[float, Object | NodesForbiddenError | None]] = {}

    async def is_gone(self, pod: Object | None) -> bool:
        """Whether the machine of a pod does not answer; False where machines can't be read. Raises ApiError."""
        if pod is None or not is_suspicious(pod):
            return False
        try:
            return is_node_gone(await self._machine(pod["spec"]["nodeName"]))
        except NodesForbiddenError:
            return False

    async def label(self, name: str, key: str) -> str | None:
        """Returns a label of a machine as it is now; that there is none may be remembered.

        Raises:
            NodesForbiddenError: the operator may not read machines.
            ApiError: the API server did not answer.
        """
        if _label(await self._machine(name), key) is None:
            return None
        return _label(await self._machine(name, age_s_max=0.0), key)

    async def _machine(self, name: str, age_s_max: float = AGE_S_MAX) -> Object | None:
        now = self._clock()
        at, machine = self._found.get(name, (-AGE_S_MAX, None))
        if now - at >= age_s_max:
            try:
                machine = await self._api.get(MACHINE, None, name)
            except ApiError as error:
                if error.status != _FORBIDDEN:
                    raise
                machine = NodesForbiddenError(str(error))
            self._found[name] = now, machine
        if isinstance(machine, NodesForbiddenError):
            raise machine
        return machine


def _label(machine: Object | None, key: str) -> str | None:
    value = (machine or {}).get("metadata", {}).get("labels", {}).get(key)
    return str(value) if value else None
