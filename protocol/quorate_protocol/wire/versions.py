"""The client's side of ApiVersions: which versions a peer supports, and whether it is the node that we mean. Sans-IO.

A client asks in its highest version. A peer without that version responds UNSUPPORTED_VERSION in version 0,
with the versions that it knows (KIP-511); then the client asks again. Since version 5 the request names the cluster
and the node that the client means, and any other node responds REBOOTSTRAP_REQUIRED (KIP-1242), unless it is a Java
controller: those of Kafka 4.4 accept any.
"""

from collections.abc import Mapping
from typing import Any, Final

from quorate_protocol.errors import ErrorCode, ProtocolError, UnsupportedVersion
from quorate_protocol.kafka.apis import APIS, Api, ApiKey, ExtensionKey

__all__ = ("IDENTITY_SINCE", "Negotiation", "PeerVersions", "api_versions_request")

SOFTWARE_NAME: Final = "quorate"
CONTROLLER_SOFTWARE_NAME: Final = "quorate-controller"
"""The software name of our controllers. Only they are offered the APIs that Kafka does not have."""
READER_SOFTWARE_NAME: Final = "quorate-reader"
"""The software name of a client that asks whether a controller serves `apis.CONTROLLER_READ_APIS`."""
SOFTWARE_VERSION: Final = "0.1.0"

IDENTITY_SINCE: Final = 5
"""The first version of ApiVersions in which a client names the node that it means (KIP-1242)."""

_NO_NODE_ID: Final = -1
_API: Final = APIS[ApiKey.API_VERSIONS]


def api_versions_request(
    cluster_id: str | None = None, node_id: int = _NO_NODE_ID, *, software_name: str = SOFTWARE_NAME
) -> Any:
    """Return a canonical request; it names the node that is meant, completely or not at all."""
    return _API.canonical_request(
        client_software_name=software_name,
        client_software_version=SOFTWARE_VERSION,
        cluster_id=cluster_id,
        node_id=node_id,
    )


class PeerVersions:
    """The versions that a peer supports, by API key."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Mapping[int, tuple[int, int]] | None = None) -> None:
        self._ranges = ranges or {}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, key: ApiKey | ExtensionKey) -> bool:
        return key in self._ranges

    def range_of(self, key: ApiKey | ExtensionKey) -> tuple[int, int]:
        """Return the lowest and highest version of an API; (0, -1) when the peer does not support it."""
        return self._ranges.get(key, (0, -1))

    def version_for(self, api: Api) -> int:
        """Return the highest version that both sides support.

        Raises:
            UnsupportedVersion: the ranges do not overlap.
        """
        lowest, highest = self.range_of(api.key)
        version = api.common_version(lowest, highest)
        if version is None:
            offered = f"versions {lowest} to {highest}" if highest >= 0 else "no version"
            ours = f"{api.version_min} to {api.version_max}"
            raise UnsupportedVersion(f"the peer supports {offered} of {api.name}; supported here are {ours}")
        return version


class Negotiation:
    """One negotiation: send :attr:`request` in :attr:`version`, give the response to :meth:`receive`, and again."""

    def __init__(
        self,
        cluster_id: str | None = None,
        node_id: int = _NO_NODE_ID,
        known: PeerVersions | None = None,
        *,
        software_name: str = SOFTWARE_NAME,
    ) -> None:
        """``known`` are the versions of an earlier negotiation with this peer."""
        self.request = api_versions_request(cluster_id, node_id, software_name=software_name)
        self.version = _API.version_max
        if known:
            self.version = max(0, min(self.version, known.range_of(ApiKey.API_VERSIONS)[1]))

    def receive(self, response: Any) -> PeerVersions | None:
        """Process a canonical response. None: :attr:`version` is lower now, send the request again.

        Raises:
            ProtocolError: the peer refuses, with its error code: REBOOTSTRAP_REQUIRED when it is not the node that
                is meant.
        """
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if response.error_code is ErrorCode.unsupported_version and self.version > 0:
            # A peer older than KIP-511 lists nothing.
            _, highest = ranges.get(ApiKey.API_VERSIONS, (0, 0))
            self.version = max(0, min(highest, self.version - 1))
            return None
        if response.error_code is not ErrorCode.none:
            raise ProtocolError(
                response.error_code, f"ApiVersions returned {response.error_code.name.upper()}"
            )
        return PeerVersions(ranges)
