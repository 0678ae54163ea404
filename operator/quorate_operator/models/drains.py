"""How brokers are drained: how fast, and whether a smaller number of replicas is enough to ask for it."""

from typing import Literal

from pydantic import Field

from quorate_operator.models.base import Model, Size, quantity_bytes

ScaleDown = Literal["Drain", "Refuse"]


class Drain(Model):
    """How brokers are drained that leave the pool."""

    throttle_bytes_per_second: Size | None = Field(
        default=None,
        description="The bytes per second that each broker sends, and receives, of the replicas that move: 50Mi. It "
        "may be changed meanwhile. Default: no throttle.",
    )
    on_scale_down: ScaleDown = Field(
        default="Drain",
        description="What happens to brokers that are left over when replicas is made smaller. Refuse: they stay "
        "until they hold no replicas. Those that decommission names are drained in any case.",
    )

    @property
    def rate_bytes(self) -> int | None:
        """The throttle in bytes per second."""
        rate = self.throttle_bytes_per_second
        return None if rate is None else quantity_bytes(rate)
