"""Stock tools and clients print the same whether the controllers behind the brokers are Java's or ours.

Three controllers and two stock brokers on each side, with authorizers, SASL and TLS. What differs always is masked,
see `kit.transcripts.comparison`; each mask says why. The tests use names of their own, and run in this order.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kit.java.tools import JavaTools
from kit.transcripts.clusters import Side, both
from kit.transcripts.comparison import Transcript
from kit.transcripts.library_steps import LIBRARIES, result_text
from kit.transcripts.tool_steps import CHAPTERS, FILES

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def sides(
    tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path, java_tool: JavaTools
) -> Iterator[tuple[Side, Side]]:
    """The two clusters, running, and the files of the scripts."""
    directory = tmp_path_factory.mktemp("same-scripts")
    for name, content in FILES.items():
        (directory / name).write_text(content)
    with both(directory, kafka_jars, java_tool) as sides:
        yield sides


@pytest.fixture
def transcript(sides: tuple[Side, Side], java_tool: JavaTools) -> Iterator[Transcript]:
    """Compare what is printed; differences fail the test, all at once."""
    transcript = Transcript(sides, java_tool)
    yield transcript
    assert not transcript.differences, "\n\n".join(transcript.differences)


@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_of_other_languages_get_the_same(transcript: Transcript, library: str) -> None:
    connect, calls = LIBRARIES[library]
    with ExitStack() as stack:
        clients = {
            side.name: stack.enter_context(connect(side.cluster.bootstrap_servers))
            for side in transcript.sides
        }
        for what, call in calls.items():
            transcript.compare(what, lambda side, call=call: result_text(call, clients[side.name]))
            for side in transcript.sides:
                side.await_brokers()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_tools_print_the_same(transcript: Transcript, chapter: str) -> None:
    """Kafka's tools print the same at Kafka's controllers and ours."""
    transcript.run(CHAPTERS[chapter])


def test_both_have_the_same_metadata(transcript: Transcript) -> None:
    transcript.compare("the image", Side.content)
