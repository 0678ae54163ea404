"""Our answers about quotas, credentials, tokens and log levels against stock Kafka's.

Both get the same requests in the same order; `tools/capture_security_responses.py` has recorded those of stock Kafka.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from kit.controller_parts import LoneQuorum, response_of
from quorate_controller.control.api import ControlConfig, ControlError, RequestContext
from quorate_controller.control.controller import QuorumController, default_bootstrap
from quorate_controller.server.error_responses import error_response
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.releases import NEWEST_RELEASE, RELEASES
from quorate_protocol.wire.convert import convert

FOLDER = Path(__file__).parent / "control"
TOOLS = Path(__file__).parents[2] / "tools"
NODE_ID = 3000
Responses = tuple[dict[str, list[Any]], dict[str, list[Any]]]
SECTIONS = ("quotas", "scram", "tokens", "levels", "old_levels")


class Loggers:
    """The two that the questions name."""

    def __init__(self, logger: str) -> None:
        self._names = ("root", logger)

    def levels(self) -> dict[str, str]:
        return dict.fromkeys(self._names, "INFO")

    def set_level(self, name: str, level: str | None) -> None:
        assert name in self._names, level


class Asked:
    """A controller of ours, to which requests come as to the stock one."""

    def __init__(self, questions: ModuleType, metadata_version: int) -> None:
        self.now_ms = 1_000_000_000_000
        self._image = MetadataImage()
        config = ControlConfig(
            node_id=NODE_ID,
            cluster_id="c",
            bootstrap=default_bootstrap(metadata_version),
            delegation_token_secret=questions.TOKEN_SECRET,
        )
        self._control = QuorumController(
            config, self._image, Random(0), LoneQuorum(), Loggers(questions.LOGGER)
        )
        self._replay(self._control.activate(self.now_ms).records)

    def _replay(self, records: Any) -> None:
        if records:
            self._image.replay_batch(
                records, base_offset=self._image.end_offset, epoch=1, timestamp_ms=self.now_ms
            )

    def __call__(self, request: Any, caller: Any) -> Any:
        """The response in the client's version."""
        api = APIS[request.__api_key__]
        version = api.version_max if caller.version is None else caller.version
        context = RequestContext(
            now_ms=self.now_ms,
            next_offset=self._image.end_offset,
            api_version=version,
            principal=f"User:{caller.user or 'ANONYMOUS'}",
            forwarded=caller.user is not None,
            token_authenticated=caller.has_token,
            unresolved_hosts=frozenset({"no.such.host.invalid"}),
        )
        try:
            result = self._control.decide(request, context)
            response = response_of(result, self._replay)
        except ControlError as error:
            response = error_response(request, error.error_code, error.message, version=version)
        return convert(response, api.response_class(version))

    def wait(self) -> None:
        """As long as the stock controller was given."""
        self.now_ms += 500


@pytest.fixture(scope="module")
def questions() -> Iterator[ModuleType]:
    """The module with the questions, which is no part of a package."""
    name = "security_questions"
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


@pytest.fixture(scope="module", params=RELEASES)
def responses(request: pytest.FixtureRequest, questions: ModuleType) -> Responses:
    """Stock Kafka's responses and ours, by section."""
    release: str = request.param
    stock = json.loads((FOLDER / f"security-{release}.json").read_text())
    asked = Asked(questions, RELEASES[release].metadata_version)
    ours = questions.ask_all(asked, lambda: asked.now_ms, asked.wait)
    if release != NEWEST_RELEASE:
        # What 4.4.0 refuses in words is an unexpected error there.
        unknown = [(questions.LOGGER, questions.UNKNOWN_OPERATION, "INFO")]
        number = [operations for _, operations in questions.LOGGERS].index(unknown)
        assert stock["levels"].pop(number)["outcome"][0] == ErrorCode.unknown_server_error
        del ours["levels"][number]
    return stock, ours


@pytest.mark.parametrize("section", SECTIONS)
def test_responses_are_kafkas(responses: Responses, section: str) -> None:
    stock, ours = (json.loads(json.dumps(by_section[section])) for by_section in responses)
    assert len(ours) == len(stock) > 1
    for number, (expected, response) in enumerate(zip(stock, ours, strict=True)):
        assert response == expected, (section, number)


def test_the_questions_meet_most_rules(responses: Responses) -> None:
    codes = {ErrorCode(response["error_code"]) for response in responses[0]["tokens"]}
    assert codes == {
        ErrorCode.none,
        ErrorCode.unknown_server_error,
        ErrorCode.invalid_principal_type,
        ErrorCode.delegation_token_expired,
        ErrorCode.delegation_token_not_found,
        ErrorCode.delegation_token_owner_mismatch,
        ErrorCode.delegation_token_request_not_allowed,
    }
