"""The image of a live cluster, followed as an observer of its metadata log."""

from typing import TYPE_CHECKING, Any, Self

from quorate_protocol.image import MetadataImage

if TYPE_CHECKING:
    from quorate_admin.config import AdminConfig

    del Any


class LiveImage:
    """A cluster's metadata image that can be brought up to date again and again. Close it.

    `image` is changed in place by :meth:`refresh` and by nothing else.
    """

    image: MetadataImage

    def __init__(self, config: "AdminConfig") -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *_: object) -> None:
        raise NotImplementedError

    async def refresh(self, *, timeout_ms: int | None = None) -> None:
        """Catch up with what is committed now: the high watermark of an answer that came after the call.

        `timeout_ms` is `default_api_timeout_ms` of the config by default. Raises AdminError:
        RequestTimeoutError, UnreachableError, ServerError (31 CLUSTER_AUTHORIZATION_FAILED, 104
        INCONSISTENT_CLUSTER_ID), UnsupportedEndpointError when the config names brokers.
        """
        raise NotImplementedError


async def load_live_image(config: "AdminConfig", *, timeout_ms: int | None = None) -> MetadataImage:
    """Everything that the metadata log of a live cluster says, committed, as of now.

    The config names controllers (`bootstrap_controllers`). Registrations are in `image.cluster.controllers`
    and `image.cluster.brokers` (by node id; `supported_features` is feature name to `VersionRange`), finalized
    levels in `image.features`. Raises as :meth:`LiveImage.refresh` does.
    """
    raise NotImplementedError
