"""Random admin requests to a stock controller and to ours: the same answers, and the same metadata in the end.

What differs on purpose is in docs/protocol-differences.md; requests that would meet it are not made, see
`kit.differential.requests`. `QUORATE_NEW_EXAMPLES=1` draws other requests than the last time.
"""

import math
from pathlib import Path

import pytest
from kit.differential.comparison import Compared
from kit.differential.nodes import started
from kit.differential.question import Caller
from kit.differential.requests import ASKED_IN_A_ROUND, put_rounds
from kit.releases import RELEASE
from quorate_protocol.kafka.apis import APIS, ApiKey
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.kafka.releases import NEWEST_RELEASE

pytestmark = pytest.mark.integration

SHORT, LONG = 150, 2_000
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
VERSIONS_VERSION = 4
"""The newest that each release knows."""


@pytest.mark.parametrize("requests", [SHORT, LONG], ids=["short", "long"])
def test_same_answers_and_same_metadata_as_kafka(tmp_path: Path, requests: int) -> None:
    """Ours behave as Kafka's do."""
    with started(RELEASE, tmp_path / "stock") as stock, started("Quorate", tmp_path / "ours") as ours:
        compared = Compared(stock, ours)
        put_rounds(compared.ask, math.ceil(requests / ASKED_IN_A_ROUND))
        compared.compare_images()
    assert compared.asked >= requests
    assert not compared.differences, "\n".join(compared.differences)


def test_both_offer_the_same_apis(tmp_path: Path) -> None:
    """The APIs and versions of a stock controller, without those that it cannot answer."""
    with started(RELEASE, tmp_path / "stock") as stock, started("Quorate", tmp_path / "ours") as ours:
        asked = [node.ask(VERSIONS, Caller(version=VERSIONS_VERSION)).api_keys for node in (stock, ours)]
        offered = [{api.api_key: (api.min_version, api.max_version) for api in apis} for apis in asked]
    unanswered = {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_DELEGATION_TOKEN}
    expected = {
        key: (lowest, highest)
        for key, (lowest, _) in offered[1].items()
        if (highest := APIS[key].version_max_in(RELEASE)) is not None
    }
    assert {key: versions for key, versions in offered[0].items() if key not in unanswered} == expected
    if RELEASE == NEWEST_RELEASE:
        assert expected == offered[1]
