"""The judge of what is said after a power cut finds what is false, missing and late."""

from dataclasses import replace

import pytest
from kit.power_cut.truth import CONFIG, VALUE, Said, Truth, problems

VOTERS = {1: "127.0.0.1:1", 2: "127.0.0.1:2", 3: "127.0.0.1:3"}
LOST = Truth(voters=VOTERS, running=frozenset({1}), leader_id=None)
ELECTING = Truth(voters=VOTERS, running=frozenset({1, 2}), leader_id=None)
LED = Truth(voters=VOTERS, running=frozenset({1, 2}), leader_id=2)
WHOLE = Truth(voters=VOTERS, running=frozenset(VOTERS), leader_id=2)
STATUS = "LeaderId:              2\n"
NO_CONFIGS = "Default configs for brokers in the cluster are:\n"
JAVA = replace(LED, is_java=True)
SILENT = "Cluster c: leader 2, 3 voters\nWARNING  Voter 3 does not follow the log\n"


def found(said: Said, truth: Truth) -> list[str]:
    return list(problems(said, truth, limit_s=10))


def tool(text: str, exit_code: int = 1, name: str = "metadata-quorum", seconds: float = 1) -> Said:
    return Said(name, exit_code, text, seconds)


@pytest.mark.parametrize(
    ("said", "truth"),
    [
        (tool("error: no leader; voters 2, 3 do not answer"), LOST),
        (tool("no leader; no server answers at 127.0.0.1:2, 127.0.0.1:3 (refused)"), LOST),
        (tool("no leader; voter 3 does not answer"), ELECTING),
        (tool("the quorum is without a leader", 0, "play status"), LOST),
        (tool("QuorumHealthy=False (NoLeader): no leader answers; not running: 2, 3", 0, "condition"), LOST),
        (tool(STATUS, 0), LED),
        (tool(SILENT, 1, "doctor"), LED),
        (tool("Cluster c: leader 2, 3 voters\nNothing is wrong.", 0, "doctor"), WHOLE),
        (tool("QuorumHealthy=False (VotersBehind): not caught up: 3", 0, "condition"), LED),
        (tool("QuorumHealthy=True (AllCaughtUp): 3 voters, 2 leads", 0, "condition"), WHOLE),
        (tool(f"  {CONFIG}={VALUE} sensitive=false", 0, "configs"), LED),
        (tool(NO_CONFIGS, 0, "configs"), JAVA),  # its controllers have not loaded them yet
        (tool("Feature: metadata.version", 0, "features"), LED),
    ],
)
def test_what_is_true_has_no_problem(said: Said, truth: Truth) -> None:
    assert found(said, truth) == []


@pytest.mark.parametrize(
    ("said", "truth", "problem"),
    [
        (
            tool("error: UNSUPPORTED_VERSION: not supported with the current MetadataVersion."),
            LOST,
            "says 'UNSUPP",
        ),
        (tool("Traceback (most recent call last):"), LED, "says 'Traceback'"),
        (tool(""), LOST, "says nothing"),
        (tool(STATUS, 0, seconds=61), LED, "took 61.0 s"),
        (tool(STATUS, 0), LOST, "does not say that there is no leader"),
        (tool("no leader; voter 3 does not answer"), LOST, "names [3] as missing, not [2, 3]"),
        (tool("no leader; voters 1, 2, 3 do not answer"), LOST, "[1] are missing, which run"),
        (tool("no leader; no server answers at 127.0.0.1:1"), LOST, "[1] are missing, which run"),
        (tool("no leader; voter 3 does not answer"), LED, "no leader; 2 leads"),
        (tool("no leader; voters 2, 3 do not answer", 0), LOST, "exit code 0 without a leader"),
        (tool("LeaderId:   1\n", 0), LED, "says that 1 leads, not 2"),
        (tool("LeaderId:   3\n", 0), ELECTING, "3 leads, which does not run"),
        (tool("error: nothing known"), LED, "names no leader"),
        (tool(NO_CONFIGS, 0, "configs"), LED, "exit code 0, without 'log.retention.ms"),
        (tool(f"{NO_CONFIGS}  {CONFIG}=1 sensitive=false", 0, "configs"), JAVA, "exit code 0, without 'log"),
        (
            tool("Cluster c: leader 2, 3 voters\nNothing is wrong.", 0, "doctor"),
            LED,
            "names [] as missing, not [3]",
        ),
        (tool(SILENT, 1, "doctor"), WHOLE, "[3] are missing, which run"),
        (
            tool("QuorumHealthy=True (AllCaughtUp): 3 voters, 2 leads", 0, "condition"),
            LED,
            "names [] as behind",
        ),
        (tool("Default configs are:", 0, "configs"), LED, f"without '{CONFIG}={VALUE}'"),
    ],
)
def test_what_is_false_is_found(said: Said, truth: Truth, problem: str) -> None:
    assert any(problem in text for text in found(said, truth)), found(said, truth)
