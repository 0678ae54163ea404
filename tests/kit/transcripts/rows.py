"""How the steps of the stock tools are written, and what differs between two clusters whatever controls them."""

import re
from typing import Final

from kit.parity.harness import Normalise, blocks_sorted, lines_sorted, replaced
from kit.transcripts.comparison import Step

DENIED: Final = "authorization failed|not authorized"
"""What each client may say of a denial."""
CREATE: Final = "--create --topic"


def observers_sorted(why: str) -> Normalise:
    """The order of observers does not count."""

    def change(text: str) -> str:
        return re.sub(
            r"(?<=CurrentObservers:)(\s+)\[(.*)\]",
            lambda found: f"{found[1]}{sorted(found[2].split(', {'))}",
            text.replace("[{", "[, {"),
        )

    return Normalise(why, change)


TOPIC_ID: Final = replaced(r"(?<=TopicId: )\S{22}", "<topic id>", "ids of topics are random")
HASHED: Final = blocks_sorted("Java's controllers list ACLs in the order of hashes of random ids")
LINES: Final = lines_sorted("Java's controllers keep configs and quotas in hash maps")
EPOCH: Final = replaced(
    r"Epoch: \d+", "Epoch: <offset>", "an epoch of features is an offset, and logs grow by themselves"
)
TOKEN: Final = (
    replaced(r"[A-Za-z0-9_-]{22}(?=\s)", "<token id>", "each token has a random id"),
    replaced(r"[A-Za-z0-9+/]{86}==", "<hmac>", "each token has its own HMAC"),
    replaced(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "<minute>", "a minute may begin between two runs"),
    replaced(r"(?<=:)\d{13}\b", "<ms>", "times of tokens are in milliseconds"),
)
LEADER: Final = replaced(r"(?<=LeaderId: )\s*\d+", "<leader>", "elections are a matter of chance")
OFFSETS: Final = (
    observers_sorted("Java's controllers keep observers in a hash map"),
    replaced(r"(?<=LeaderEpoch: )\s*\d+", "<epoch>", "there may have been several elections"),
    replaced(r"(?<=HighWatermark: )\s*\d+", "<offset>", "logs grow by themselves"),
    replaced(r"(?<=MaxFollowerLag: )\s*\d+", "<lag>", "followers are behind by chance"),
    replaced(r"(?<=MaxFollowerLagTimeMs: )\s*-?\d+", "<ms>", "followers are behind by chance"),
)


VOTERS: Final = replaced(
    r"(?<=Cannot remove voter ).*", "<voter and voters>", "ours writes voters as ID-DIRECTORY, in order"
)
OF_THE_CODE: Final = replaced(
    r"Request <request> needs DESCRIBE permission\.",
    "Cluster authorization failed.",
    "to DescribeQuorum Java answers with the text of the code, ours names what is missing",
)


def steps(tool: str, *rows: tuple[str, str] | Step, fails: bool = False) -> tuple[Step, ...]:
    return tuple(
        row if isinstance(row, Step) else Step(tool=tool, arguments=row[0], shows=row[1], fails=fails)
        for row in rows
    )


def failing(tool: str, *rows: tuple[str, str] | Step) -> tuple[Step, ...]:
    return steps(tool, *rows, fails=True)


def step(tool: str, arguments: str, shows: str, **options: object) -> Step:
    return Step(tool=tool, arguments=arguments, shows=shows, **options)  # type: ignore[arg-type]
