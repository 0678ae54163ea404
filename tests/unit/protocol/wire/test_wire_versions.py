"""The client's side of ApiVersions: versions to ask in, versions that both sides support, refusals."""

import pytest
from quorate_protocol.errors import ErrorCode, ProtocolError, UnsupportedVersion
from quorate_protocol.kafka.apis import APIS, ApiKey
from quorate_protocol.kafka.generated.api_versions_response import ApiVersion, ApiVersionsResponse
from quorate_protocol.wire.versions import Negotiation, PeerVersions


def response(error_code: ErrorCode = ErrorCode.none, **ranges: tuple[int, int]) -> ApiVersionsResponse:
    """A response of a peer; `ranges` by names of ApiKey."""
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=tuple(
            ApiVersion(api_key=ApiKey[name], min_version=lowest, max_version=highest)
            for name, (lowest, highest) in ranges.items()
        ),
    )


def test_a_peer_that_knows_our_version_ends_the_negotiation() -> None:
    negotiation = Negotiation("cluster", 1)
    assert (negotiation.version, negotiation.request.cluster_id, negotiation.request.node_id) == (
        5,
        "cluster",
        1,
    )
    versions = negotiation.receive(response(API_VERSIONS=(0, 5), FETCH=(4, 17), CREATE_TOPICS=(2, 99)))
    assert versions is not None
    assert versions.version_for(APIS[ApiKey.FETCH]) == 17
    assert versions.version_for(APIS[ApiKey.CREATE_TOPICS]) == 7


@pytest.mark.parametrize(
    ("refusal", "versions"),
    [
        (response(ErrorCode.unsupported_version, API_VERSIONS=(0, 3)), [3]),
        (response(ErrorCode.unsupported_version), [0]),
        (response(ErrorCode.unsupported_version, API_VERSIONS=(0, 9)), [4, 3, 2, 1, 0]),
    ],
    ids=["lists its versions", "older than KIP-511", "refuses what it lists"],
)
def test_a_peer_that_refuses_our_version_is_asked_in_a_lower_one(
    refusal: ApiVersionsResponse, versions: list[int]
) -> None:
    negotiation = Negotiation()
    for version in versions:
        assert negotiation.receive(refusal) is None
        assert negotiation.version == version


def test_version_0_that_is_refused_is_an_error() -> None:
    negotiation = Negotiation()
    negotiation.version = 0
    with pytest.raises(ProtocolError) as raised:
        negotiation.receive(response(ErrorCode.unsupported_version))
    assert raised.value.error_code is ErrorCode.unsupported_version


@pytest.mark.parametrize("error_code", [ErrorCode.rebootstrap_required, ErrorCode.invalid_request])
def test_a_refusal_carries_its_error_code(error_code: ErrorCode) -> None:
    with pytest.raises(ProtocolError, match=error_code.name.upper()) as raised:
        Negotiation("cluster", 1).receive(response(error_code))
    assert raised.value.error_code is error_code


def test_a_later_negotiation_asks_in_a_version_that_the_peer_knows() -> None:
    assert Negotiation(known=PeerVersions({ApiKey.API_VERSIONS: (0, 3)})).version == 3
    assert Negotiation(known=PeerVersions({ApiKey.FETCH: (4, 17)})).version == 0
    assert Negotiation(known=PeerVersions()).version == 5


@pytest.mark.parametrize("ranges", [{}, {ApiKey.FETCH: (0, 3)}, {ApiKey.FETCH: (19, 20)}])
def test_no_common_version_is_an_error_that_names_both_sides(ranges: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(UnsupportedVersion, match="of Fetch; supported here are 4 to 18"):
        PeerVersions(ranges).version_for(APIS[ApiKey.FETCH])
