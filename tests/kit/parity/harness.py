"""Runs our tool and Kafka's on the same cluster with the same arguments, and compares what they print.

A case is a row of a table in `cases/`. Its words are templates:

$at          the bootstrap option and the addresses of the cluster under test
$server, $controller   these addresses alone
$twin        a name of its own for each of the two tools, equally long: what one creates, the other creates too
$own         a name that both share, for what is only read
$dir         a directory for each of the two, with the case's files
$b0, $b1     ids of brokers;  $voter, $voter_directory  id and directory id of a controller
$...         what a step before has captured

Differences that hold for every case are listed here, and asserted for every case:

1. Exit codes: 0 for 0 and 1 for 1, but a wrong command line is 2 with ours, 1 with Kafka's.
2. A failure is reported on stderr, with no stack trace, wherever Kafka's tool reports it.
3. When both fail, what ours prints on stdout is what Kafka's tool prints there, or a part of it.
4. Where Kafka's tool prints the class of an exception, ours prints the name of the error.

Brokers learn of a change a moment after the controller that made it, so what only reads is read again until both
have read the same, for a few seconds.
"""

import difflib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from pathlib import Path
from string import Template

from kit.cluster import Cluster
from kit.java.tools import JavaTools, Ran
from quorate.main import app
from typer.testing import CliRunner

PROCESS_TIMEOUT_S = 60
JAVA_TIMEOUT_S = 20
SETTLED_AFTER_S = 30
"""The longest that a broker of a busy machine lags behind its controller."""
ATTEMPTS_MIN = 4
READS = re.compile(r"(^|\s)(--describe|--list|--verify|--snapshot|-s|describe|list-endpoints)(\s|$)")
KAFKA, OURS = "k", "q"
SHARED = "x"
_numbers = count()


@dataclass(frozen=True, slots=True)
class Tool:
    """A command of ours and the class of Kafka's tool."""

    command: str
    main_class: str
    controllers: bool
    """Whether Kafka's tool has --bootstrap-controller."""


TOOLS = {
    tool.command: tool
    for tool in (
        Tool("acls", "org.apache.kafka.tools.AclCommand", True),
        Tool("broker-api-versions", "org.apache.kafka.tools.BrokerApiVersionsCommand", False),
        Tool("cluster", "org.apache.kafka.tools.ClusterTool", True),
        Tool("configs", "kafka.admin.ConfigCommand", True),
        Tool("delegation-tokens", "org.apache.kafka.tools.DelegationTokenCommand", False),
        Tool("features", "org.apache.kafka.tools.FeatureCommand", True),
        Tool("leader-election", "org.apache.kafka.tools.LeaderElectionCommand", False),
        Tool("metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand", True),
        Tool("metadata-shell", "org.apache.kafka.shell.MetadataShell", False),
        Tool("reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", True),
        Tool("topics", "org.apache.kafka.tools.TopicCommand", False),
    )
}


class Ends(Enum):
    """How a command ends: its exit code with Kafka's tool and with ours."""

    DONE = (0, 0)
    FAILED = (1, 1)
    USAGE = (1, 2)
    HELP = (1, 0)
    """Tools of Kafka's that call help a failure."""


@dataclass(frozen=True, slots=True)
class Normalise:
    """What may differ in two outputs, and why. `change` makes it alike."""

    why: str
    change: Callable[[str], str]


def replaced(pattern: str, by: str, why: str) -> Normalise:
    """Replace the matches of a regular expression, which do not count."""
    return Normalise(why, lambda text: re.sub(pattern, by, text, flags=re.MULTILINE))


def lines_sorted(why: str) -> Normalise:
    """The order of lines does not count."""
    return Normalise(why, lambda text: "\n".join(sorted(text.split("\n"))))


def blocks_sorted(why: str) -> Normalise:
    """The order of lines in blocks between empty lines, and that of the blocks, does not count."""

    def change(text: str) -> str:
        blocks = [block.split("\n") for block in re.split(r"\n\s*\n", text)]
        # The first entry has a blank before its tab, whichever it is.
        return "\n\n".join(
            sorted("\n".join(sorted(line.removeprefix(" ") for line in lines)) for lines in blocks)
        )

    return Normalise(why, change)


def groups_sorted(heading: str, why: str) -> Normalise:
    """The order of groups of lines does not count; each begins with a line that matches `heading`."""

    def change(text: str) -> str:
        first, *groups = re.split(rf"^(?={heading})", text, flags=re.MULTILINE)
        return first + "".join(sorted(groups))

    return Normalise(why, change)


def columns_free(*names: str, why: str) -> Normalise:
    """The values in columns of a table with tabs do not count; their widths do."""

    def change(text: str) -> str:
        lines = [line.split("\t") for line in text.split("\n")]
        places = [place for place, head in enumerate(lines[0]) if head.strip() in names]
        for line in lines[1:]:
            for place in places:
                if place < len(line):
                    line[place] = "*" * len(line[place])
        return "\n".join("\t".join(line) for line in lines)

    return Normalise(why, change)


@dataclass(frozen=True, slots=True)
class Step:
    """The arguments of a run, and what later steps need of its output: a name and a pattern with one group."""

    arguments: str
    captures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One comparison of one tool."""

    name: str
    run: str | Step | Sequence[str | Step]
    """Each is run with Kafka's tool and with ours, and compared, before the next."""
    before: Sequence[str | Step] = ()
    """Runs of any of Kafka's tools, its name first; once for each of the two if they name $twin or $dir."""
    state: Sequence[str] = ()
    """Runs of Kafka's tools on what the two have made, which have to print the same."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files in $dir, templates too."""
    normalise: Sequence[Normalise] = ()
    ends: Ends = Ends.DONE
    says: str | None = None
    """A pattern that both have to print when they fail."""
    not_yet: str | None = None
    """A pattern that is printed while the controllers do not know what was made before: then nothing was changed, and
    the tool is run again."""
    clusters: Sequence[str] = ("java", "python")
    at: Sequence[str] = ("server", "controller")
    brokers: int = 1
    reads: bool = False
    """Changes nothing, so that it may be run again for JSON."""
    in_turn: bool = True
    """Both tools take each step before the next; otherwise one takes all steps before the other does."""
    as_process: bool = False
    """Ours runs as a process of its own, not in this one."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of `run` as steps."""
        runs = (self.run,) if isinstance(self.run, str | Step) else tuple(self.run)
        return tuple(as_step(run) for run in runs)


def as_step(run: str | Step) -> Step:
    """A step without captures for what is only text."""
    return Step(run) if isinstance(run, str) else run


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster that both tools are run on, seen from one side: brokers or controllers."""

    name: str
    at: str
    server: str
    controller: str
    brokers: tuple[int, ...]
    voter: tuple[int, str]
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> dict[str, str]:
        """The values of templates."""
        address = self.server if self.at == "server" else self.controller
        return {
            "at": f"--bootstrap-{self.at} {address}",
            "server": self.server,
            "controller": self.controller,
            **{f"b{place}": str(broker) for place, broker in enumerate(self.brokers)},
            "voter": str(self.voter[0]),
            "voter_directory": self.voter[1],
            **self.values,
        }


def site_of(name: str, cluster: Cluster, at: str, values: Mapping[str, str]) -> Site:
    """What templates have to know of a cluster."""
    quorum = cluster.await_quorum()
    leader = next(voter for voter in quorum.voters if voter.node_id == quorum.leader_id)
    text = (cluster.data(leader.node_id) / "meta.properties").read_text()
    found = re.search(r"^directory.id=(.*)$", text, re.MULTILINE)
    assert found is not None
    return Site(
        name=name,
        at=at,
        server=cluster.address(cluster.brokers[0]),
        controller=cluster.address(cluster.controllers[0]),
        brokers=cluster.brokers,
        voter=(leader.node_id, found[1]),
        values=values,
    )


EXCEPTION = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)Exception(?=:)")


def error_names(text: str) -> str:
    """The text with names of errors in the place of Java's exceptions."""
    return EXCEPTION.sub(lambda found: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[1]).upper(), text)


class Comparison:
    """One case on one site."""

    def __init__(
        self,
        case: Case,
        tool: Tool,
        site: Site,
        java: JavaTools,
        directory: Path,
        *,
        twins: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """`twins` are more words that differ: for Kafka's tool, and for ours."""
        self._case = case
        self._tool = tool
        self._java = java
        name = f"p{next(_numbers):04}"
        self._words = {
            side: site.words | {"twin": f"{name}{side}", "own": f"{name}{SHARED}"} for side in (KAFKA, OURS)
        }
        self._twins = {"twin", *(twins or {})}
        for place, (side, words) in enumerate(self._words.items()):
            words |= {name: values[place] for name, values in (twins or {}).items()}
            words["dir"] = str(directory / side)
            (directory / side).mkdir()
            for file, content in case.files.items():
                (directory / side / file).write_text(Template(content).substitute(words))

    def run(self) -> None:
        """Run the case and assert that the two tools agree."""
        self._prepare()
        if self._case.in_turn:
            for step in self._case.steps:
                self._settle(step)
        else:
            all_theirs = [self._run(step, KAFKA) for step in self._case.steps]
            for step, theirs in zip(self._case.steps, all_theirs, strict=True):
                self._settle_ours(step, theirs)
        for run in self._case.state:
            self._settle_state(Step(run))

    def _prepare(self) -> None:
        for run in self._case.before:
            step = as_step(run)
            twins = any(f"${name}" in step.arguments for name in (*self._twins, "dir"))
            for side in (KAFKA, OURS) if twins else (KAFKA,):
                ran = self._other(step, side).succeeded()
                for other in (side,) if twins else (KAFKA, OURS):
                    self._capture(step, ran, other)

    def _settle(self, step: Step) -> None:
        """Take a step; one that only reads as often as it takes, within limits."""
        if READS.search(step.arguments):
            self._until_settled(lambda: self._compare(step, self._run(step, KAFKA), self._run(step, OURS)))
        else:
            self._compare(step, self._run(step, KAFKA), self._run(step, OURS))

    def _settle_ours(self, step: Step, theirs: Ran) -> None:
        """Take a step with our tool. It starts at once, so a broker may not yet know what the step before changed."""
        if READS.search(step.arguments):
            self._until_settled(lambda: self._compare(step, theirs, self._run(step, OURS)))
        else:
            self._compare(step, theirs, self._run(step, OURS))

    def _settle_state(self, step: Step) -> None:
        def compare() -> None:
            theirs, ours = (self._other(step, side).succeeded() for side in (KAFKA, OURS))
            self._assert_same(f"afterwards, {step.arguments}", theirs.stdout, ours.stdout)

        self._until_settled(compare)

    def _until_settled(self, compare: Callable[[], None]) -> None:
        """Compare until it succeeds, or for long enough; a tool that hangs has had one attempt."""
        deadline = time.monotonic() + SETTLED_AFTER_S
        for attempt in count(1):
            try:
                compare()
            except AssertionError:
                if attempt >= ATTEMPTS_MIN and time.monotonic() >= deadline:
                    raise
            else:
                return

    def _run(self, step: Step, side: str) -> Ran:
        arguments = self._arguments(step, side)
        deadline = time.monotonic() + SETTLED_AFTER_S
        while True:
            ran = (
                self._ours(arguments)
                if side is OURS
                else self._java(self._tool.main_class, *arguments, timeout_s=JAVA_TIMEOUT_S)
            )
            is_known = self._case.not_yet is None or not re.search(
                self._case.not_yet, ran.stdout + ran.stderr
            )
            if is_known or time.monotonic() >= deadline:
                break
        self._capture(step, ran, side)
        return ran

    def json(self) -> list[str]:
        """What our tool prints as JSON for the same arguments, of a case that only reads."""
        self._prepare()
        printed = []
        for step in self._case.steps:

            def read(step: Step = step) -> None:
                # A broker may lag behind what was created a moment ago.
                ran = self._ours(["-o", "json", *self._arguments(step, OURS)])
                assert ran.exit_code == 0, ran.stderr
                printed.append(ran.stdout)

            self._until_settled(read)
        return printed

    def _ours(self, arguments: Sequence[str]) -> Ran:
        run = run_process if self._case.as_process else run_here
        return run(self._tool.command, *arguments)

    def _other(self, step: Step, side: str) -> Ran:
        name, *arguments = self._arguments(step, side)
        return self._java(TOOLS[name].main_class, *arguments)

    def _arguments(self, step: Step, side: str) -> list[str]:
        words = self._words[side]
        return [
            word
            for part in shlex.split(step.arguments)
            for word in (words["at"].split() if part == "$at" else [Template(part).substitute(words)])
        ]

    def _capture(self, step: Step, ran: Ran, side: str) -> None:
        for name, pattern in step.captures.items():
            found = re.search(pattern, ran.stdout)
            assert found is not None, f"{pattern} is not in what {step.arguments} printed:\n{ran.stdout}"
            self._words[side][name] = found[1]

    def _compare(self, step: Step, theirs: Ran, ours: Ran) -> None:
        both = f"\nKafka's: {theirs}\nours: {ours}"
        assert (theirs.exit_code, ours.exit_code) == self._case.ends.value, (
            f"{step.arguments}: exit codes{both}"
        )
        assert "Traceback" not in ours.stderr, ours.stderr
        if self._case.ends is Ends.DONE:
            self._assert_same(step.arguments, theirs.stdout, ours.stdout)
            return
        if self._case.ends is not Ends.HELP:
            assert ours.stderr.strip(), f"{step.arguments}: ours says nothing{both}"
            extra = [line for line in self._normalised(ours.stdout, OURS).split("\n") if line]
            known = self._normalised(theirs.stdout, KAFKA).split("\n")
            assert [line for line in extra if line not in known] == [], (
                f"{step.arguments}: only ours says that{both}"
            )
        for ran in (theirs, ours):
            if self._case.says is not None:
                printed = ran.stdout + ran.stderr
                text = " ".join(printed.split())  # Kafka's help breaks lines
                assert re.search(self._case.says, text), f"{self._case.says} in {ran}"

    def _assert_same(self, what: str, theirs: str, ours: str) -> None:
        texts = [self._normalised(theirs, KAFKA), self._normalised(ours, OURS)]
        if texts[0] != texts[1]:
            lines = [text.replace("\t", "→").split("\n") for text in texts]
            difference = "\n".join(difflib.unified_diff(*lines, "Kafka's", "ours", lineterm="", n=1))
            raise AssertionError(f"{self._tool.command} {what}:\n{difference}")

    def _normalised(self, text: str, side: str) -> str:
        text = error_names(text).replace(self._words[side]["dir"], "<dir>")
        for words in self._words.values():  # a list may have what the other one has made
            for name in self._twins:
                text = re.sub(rf"(?<![\w-]){re.escape(words[name])}", f"<{name}>", text)
        for normalise in self._case.normalise:
            text = normalise.change(text)
        return text


def run_here(*arguments: str) -> Ran:
    """Run `quorate` in this process; whatever is not a way to exit is raised."""
    result = CliRunner().invoke(app, arguments, prog_name="quorate", env={"NO_COLOR": "1", "COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def run_process(*arguments: str) -> Ran:
    """Run `quorate` as a user does."""
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "quorate", *arguments],
        capture_output=True,
        text=True,
        timeout=PROCESS_TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def variants(case: Case, tool: Tool) -> Iterator[tuple[str, str]]:
    """The clusters and sides that a case is run on."""
    for cluster in case.clusters:
        if cluster == "python" and case.brokers > 1:
            continue
        for at in case.at:
            if at == "server" or tool.controllers:
                yield cluster, at
