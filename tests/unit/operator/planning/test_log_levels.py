"""Levels of loggers: what is set at which node, and which names are refused."""

from kit.scenarios import Situation, briefly, healthy
from quorate_operator.planning.steps import SetLogLevels

KNOWN = {"kafka.controller": "INFO", "root": "INFO"}


def _asked(reported: dict[int, dict[str, str]], **levels: str) -> Situation:
    """A healthy cluster whose brokers shall have these levels, of which `reported` have reported theirs."""
    wanted = {name.replace("_", "."): level for name, level in levels.items()}
    situation = healthy(3, brokers=2).kafka(log_levels=reported)
    return situation.asking_node(0, log_levels=wanted).asking_node(1, log_levels=wanted)


def test_levels_are_set_at_each_node_that_has_others() -> None:
    wanted = {"kafka.controller": "DEBUG", "root": "INFO"}
    situation = _asked({0: KNOWN, 1: wanted}, kafka_controller="DEBUG", root="INFO")
    assert briefly(situation.due()) == ["SetLogLevels 0"]
    (step,) = situation.due()
    assert isinstance(step, SetLogLevels)
    assert step.levels == {"kafka.controller": "DEBUG"}
    assert step.reason == "kafka.controller: INFO -> DEBUG"
    assert _asked({0: wanted, 1: wanted}, kafka_controller="DEBUG").plan().steps == ()


def test_a_node_that_tells_nothing_is_left_alone() -> None:
    assert briefly(_asked({1: KNOWN}, root="WARN").due()) == ["SetLogLevels 1"]
    assert _asked({}, root="WARN").plan().steps == ()


def test_many_changes_are_told_in_one_line() -> None:
    reported = {f"a.{letter}": "INFO" for letter in "bcdefg"}
    situation = healthy(3, brokers=1).kafka(log_levels={0: reported})
    (step,) = situation.asking_node(0, log_levels=dict.fromkeys(reported, "WARN")).due()
    assert step.reason == (
        "a.b: INFO -> WARN, a.c: INFO -> WARN, a.d: INFO -> WARN, a.e: INFO -> WARN, and 2 more"
    )


def test_a_name_that_no_node_has_is_refused_and_the_others_are_set() -> None:
    """A misspelt logger is refused, and a pool of both implementations may name loggers of each."""
    levels = {"ours": "DEBUG", "theirs": "DEBUG", "nobodys": "DEBUG", "nowhere": "DEBUG"}
    situation = _asked({0: {"ours": "INFO"}, 1: {"theirs": "INFO"}}, **levels)
    assert briefly(situation.due()) == ["SetLogLevels 0", "SetLogLevels 1"]
    (refusal,) = situation.plan().refusals
    assert (refusal.code, refusal.pool) == ("UnknownLogger", "brokers")
    assert refusal.message.startswith(
        "spec.logLevels: 'nobodys', and 1 more: no node of brokers has such a logger"
    )
