"""Ask a stock controller about quotas, credentials, tokens and log levels, and record its responses for tests/golden.

The questions are those of `security_questions.py`.

    python tools/capture_security_responses.py --jars ~/kafka-4.4.0/libs  # writes security-4.4.0.json
"""

import argparse
import time
from pathlib import Path
from typing import Any

from capture_control_responses import FOLDER, PROPERTIES, Controller, render, running_controller
from generated import version_of
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.generated.default_principal_data import DefaultPrincipalData
from quorate_protocol.kafka.generated.envelope_request import EnvelopeRequest
from quorate_protocol.kafka.releases import RELEASES
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.headers import read_response_header
from security_questions import TOKEN_SECRET, Caller, ask_all

SETTINGS = PROPERTIES | {"delegation.token.secret.key": TOKEN_SECRET}
PUBLISHED_AFTER_S = 0.5
"""Until then, a controller's cache of tokens has what its log has."""


class Asking:
    """Puts requests to a controller, as a broker that forwards them where they have a user."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def __call__(self, request: Any, caller: Caller) -> Any:
        if caller.user is None:
            return self._controller.ask(request)
        api = APIS[request.__api_key__]
        version = api.version_max if caller.version is None else caller.version
        principal = DefaultPrincipalData(type_="User", name=caller.user, token_authenticated=caller.has_token)
        envelope = EnvelopeRequest(
            request_data=encode_request(
                api, version, 1, "capture", convert(request, api.request_class(version))
            ),
            request_principal=b"\x00\x00" + encode(principal),
            client_host_address=bytes([127, 0, 0, 1]),
        )
        data = self._controller.ask(envelope).response_data
        _, offset = read_response_header(data, api.response_header_version(version))
        return decode(api.response_class(version), data, offset)


def main() -> None:
    """Capture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jars", type=Path, required=True, help="directory with Kafka's jars (libs/)")
    jars = parser.parse_args().jars
    release = RELEASES[version_of(jars)]
    with running_controller(jars, release, SETTINGS) as controller:
        responses = ask_all(
            Asking(controller), lambda: int(time.time() * 1000), lambda: time.sleep(PUBLISHED_AFTER_S)
        )
    (FOLDER / f"security-{release.version}.json").write_text(render(responses))


if __name__ == "__main__":
    main()
