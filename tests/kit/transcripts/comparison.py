"""Runs each step of a script at both clusters, and compares exit codes and what is printed, line by line.

Differences that hold for every step are masked, each kind with its reason: `EVERYWHERE` for all steps, `Step.masks`
for one, and the values that `Side.masks` names: ports, ids of clusters and directories, paths. Brokers learn of a
change a moment after its controller, so that a step that only reads is taken again until both have printed the same
and what the step has to show, for a while.
"""

import difflib
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Final

from kit.java.tools import JavaTools, Ran
from kit.parity.harness import TOOLS, Normalise, replaced
from kit.transcripts.clusters import Side

SETTLED_AFTER_S: Final = 30
TOOL_TIMEOUT_S: Final = 60
READS: Final = re.compile(r"(^|\s)(--describe|--list|--verify|describe|list-endpoints|cluster-id)(\s|$)")
MORE_TOOLS: Final = {
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
}
EVERYWHERE: Final = (
    replaced(
        r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] ", "[<time>] ", "a line of the log of a tool has its time"
    ),
    replaced(
        r"^\s+(at |\.\.\. \d+ more).*\n", "", "which thread completes a future is chance: frames of stacks"
    ),
    replaced(r"(?<=adminclient-)\d+", "<n>", "clients in one JVM are numbered"),
    replaced(
        r"Request (Request\(.*\)|\w+) needs",
        "Request <request> needs",
        "Java's controllers print the whole request with its addresses, ours name its API",
    ),
    replaced(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", "ids of topics are random"),
    replaced(r"(?<=Local controller )\d+", "<leader>", "elections are a matter of chance"),
    replaced(r"(?<=correlation id )\d+", "<n>", "a client that had to ask again has counted further"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A run of a stock tool at both clusters."""

    tool: str
    arguments: str
    shows: str
    """A pattern of what both have to print, in any case, so that two tools that both do nothing are not alike."""
    fails: bool = False
    """Whether the exit code is 1 instead of 0."""
    masks: Sequence[Normalise] = ()
    captures: Mapping[str, str] = field(default_factory=dict)
    """Words for the steps that follow: a pattern with one group for each."""

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return READS.search(self.arguments) is not None


Action = Callable[[Side], None]
"""What no tool can do, done at one cluster."""


class Transcript:
    """Takes steps at both clusters; keeps what differs."""

    def __init__(self, sides: tuple[Side, Side], tools: JavaTools) -> None:
        self.sides = sides
        self._tools = tools
        self._words: dict[str, dict[str, str]] = {side.name: dict(side.words) for side in sides}
        self.differences: list[str] = []

    def run(self, steps: Sequence[Step | Action]) -> None:
        """Take the steps of a script in order, each at both clusters."""
        for step in steps:
            if not isinstance(step, Step):
                for side in self.sides:
                    step(side)
                    side.await_brokers()
                continue
            deadline_s = time.monotonic() + (SETTLED_AFTER_S if step.reads else 0)
            while difference := self._difference(step):
                if time.monotonic() >= deadline_s:
                    self.differences.append(f"{step.tool} {step.arguments}\n{difference}")
                    break
            if not (step.reads or step.fails):
                for side in self.sides:
                    side.await_brokers()

    def compare(self, what: str, printed: Callable[[Side], str], masks: Sequence[Normalise] = ()) -> None:
        """Compare a text of each cluster."""
        texts = [masked(printed(side), side, masks) for side in self.sides]
        if texts[0] != texts[1]:
            self.differences.append(f"{what}\n{_difference_of(*texts)}")

    def _difference(self, step: Step) -> str | None:
        rans = [self._run(step, side) for side in self.sides]
        texts = [
            masked(f"exit code {ran.exit_code}\n{ran.stdout}\n{ran.stderr}", side, step.masks)
            for ran, side in zip(rans, self.sides, strict=True)
        ]
        if texts[0] != texts[1]:
            return _difference_of(*texts)
        if rans[0].exit_code != int(step.fails) or not re.search(
            step.shows, texts[0], re.IGNORECASE | re.DOTALL | re.MULTILINE
        ):
            return f"both do not {'fail' if step.fails else 'succeed'} with {step.shows!r}:\n{texts[0]}"
        return None

    def _run(self, step: Step, side: Side) -> Ran:
        words = self._words[side.name]
        arguments = shlex.split(Template(step.arguments).substitute(words))
        main_class = TOOLS[step.tool].main_class if step.tool in TOOLS else MORE_TOOLS[step.tool]
        ran = self._tools(main_class, *arguments, timeout_s=TOOL_TIMEOUT_S)
        for name, pattern in step.captures.items():
            found = re.search(pattern, ran.stdout)
            words[name] = found[1] if found else f"no-{name}"
        return ran


def masked(text: str, side: Side, masks: Sequence[Normalise]) -> str:
    """A text without what differs always."""
    for own, instead in side.masks.items():
        text = re.sub(rf"(?<![\w-]){re.escape(own)}(?![\w-])", instead, text)
    for mask in (*EVERYWHERE, *masks):
        text = mask.change(text)
    return text


def _difference_of(stock: str, ours: str) -> str:
    lines = [text.replace("\t", "→").split("\n") for text in (stock, ours)]
    return "\n".join(difflib.unified_diff(*lines, "stock", "ours", lineterm="", n=0))
