"""The port between planning and the place where a cluster runs: local processes, or Kubernetes."""

from typing import Protocol

from quorate_operator.planning.cluster import ObservedCluster
from quorate_operator.planning.steps import Action


class Runtime(Protocol):
    """Looks at a cluster and changes it, one step at a time."""

    async def observe(self) -> ObservedCluster:
        """The cluster as it is now, with every node that is desired."""

    async def apply(self, action: Action) -> None:
        """Do one step; returns when it is done. Raises StepError."""
