"""The response to ApiVersions: served requests, supported and finalized features."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import APIS, CONTROLLER_READ_APIS, EXTENSION_APIS, ApiKey
from quorate_protocol.kafka.generated.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from quorate_protocol.wire.versions import CONTROLLER_SOFTWARE_NAME, READER_SOFTWARE_NAME

from quorate_controller.server.misrouting import UNKNOWN_NODE_ID, of_client

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quorate_protocol.kafka.apis import Api
    from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
    from quorate_protocol.wire.server import Request

    from quorate_controller.node.port import FinalizedFeatures, NodePort

CLIENT_SOFTWARE_SINCE: Final = 3
"""The first version with the name and version of the client's software (KIP-511)."""

ZERO_MINIMUM_SINCE: Final = 4
"""Older clients fail on a supported feature whose minimum is 0, so those are hidden from them."""

_CLIENT_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions_response(request: Request, node: NodePort, apis: Iterable[Api]) -> ApiVersionsResponse:
    """The canonical response to a canonical request; `apis` are those that this listener offers all clients.

    APIs that Kafka does not have are listed for Quorate's own controllers only, and reads that Kafka's controllers do
    not serve for clients with the software name READER_SOFTWARE_NAME.
    """
    if request.unsupported_version is not None:
        # Every client reads version 0, which has the versions to ask with (KIP-511).
        return ApiVersionsResponse(
            error_code=ErrorCode.unsupported_version, api_keys=(_range(APIS[ApiKey.API_VERSIONS]),)
        )
    error_code = _refusal(request, node)
    if error_code is not ErrorCode.none:
        return ApiVersionsResponse(error_code=error_code, api_keys=())
    if request.body.client_software_name == CONTROLLER_SOFTWARE_NAME:
        apis = (*apis, *EXTENSION_APIS.values())
    elif request.body.client_software_name == READER_SOFTWARE_NAME:
        apis = (*apis, *CONTROLLER_READ_APIS.values())
    features = node.features()
    return ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(_range(api) for api in apis),
        supported_features=_supported(features, request.version),
        finalized_features_epoch=features.epoch,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.levels.items()
        ),
    )


def _range(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.version_min, max_version=api.version_max)


def _refusal(request: Request, node: NodePort) -> ErrorCode:
    body: ApiVersionsRequest = request.body
    if request.version >= CLIENT_SOFTWARE_SINCE and not (
        _CLIENT_SOFTWARE.fullmatch(body.client_software_name)
        and _CLIENT_SOFTWARE.fullmatch(body.client_software_version)
    ):
        return ErrorCode.invalid_request
    # KIP-1242: a client names both the intended cluster and node, or neither.
    names_cluster, names_node = body.cluster_id is not None, body.node_id != UNKNOWN_NODE_ID
    if names_cluster is not names_node:
        return ErrorCode.invalid_request
    misrouting = of_client(body, cluster_id=node.cluster_id, node_id=node.node_id)
    return ErrorCode.none if misrouting is None else ErrorCode.rebootstrap_required


def _supported(features: FinalizedFeatures, version: int) -> tuple[SupportedFeatureKey, ...]:
    return tuple(
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in features.supported.items()
        if lowest > 0 or version >= ZERO_MINIMUM_SINCE
    )
