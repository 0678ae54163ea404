"""What a soak did and found, for people: as text and as a table of Markdown. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kit.soak.checker import Violation
from kit.soak.history import Event, What, numbers_of, of

Row = tuple[str, str]


def replay_command(seed: int, minutes: float, mistake: str = "") -> str:
    """The command that runs the same faults again."""
    return f"make soak MINUTES={minutes:g} SEED={seed}" + (f" MISTAKE={mistake}" if mistake else "")


def rows(events: Sequence[Event], violations: Sequence[Violation]) -> list[Row]:
    """The rows of the summary, as names and values."""
    (run,) = of(events, What.RUN)
    faults = Counter(event.facts["kind"] for event in of(events, What.FAULT))
    operations = list(of(events, What.OPERATION))
    produced = list(of(events, What.PRODUCED))
    found: list[Row] = [
        ("seed", str(run.facts["seed"])),
        ("faults for", f"{run.facts['minutes']:g} minutes"),
        ("faults", str(faults.total())),
        *((f"- {kind}", _with_results(events, kind, count)) for kind, count in sorted(faults.items())),
        ("at the same time", _overlap(events)),
        ("faults left out", _counted(event.facts["reason"] for event in of(events, What.REFUSED))),
    ]
    for kind, action in sorted(
        {(operation.facts["kind"], operation.facts["action"]) for operation in operations}
    ):
        results = (
            operation.facts["result"]
            for operation in operations
            if (operation.facts["kind"], operation.facts["action"]) == (kind, action)
        )
        found.append((f"{action} {kind}", _counted(results)))
    found += [
        ("records acknowledged", str(sum(event.facts["acknowledged"] for event in produced))),
        ("records not acknowledged", str(sum(e.facts["sent"] - e.facts["acknowledged"] for e in produced))),
        ("records sent again by the client", str(sent_again(events))),
        ("changes of voters", str(sum(1 for _ in of(events, What.VOTERS)))),
        ("elections", str(elections(events))),
        ("longest time without an active controller", f"{longest_without_leader_s(events):.1f} s"),
        ("longest time between acknowledged changes", f"{longest_between_changes_s(events):.1f} s"),
        ("memory at the end", _range(events, "memory_mb", "{:.0f} MB")),
        ("processor at the end, of a core", _range(events, "cpu_share", "{:.1%}")),
        ("violations", str(len(violations))),
    ]
    return found


def text(events: Sequence[Event], violations: Sequence[Violation]) -> str:
    """The summary as aligned lines, and the violations."""
    lines = rows(events, violations)
    width = max(len(name) for name, _ in lines)
    return "\n".join([*(f"{name:<{width}}  {value}" for name, value in lines), *map(str, violations)])


def markdown(events: Sequence[Event], violations: Sequence[Violation]) -> str:
    """The summary as a table."""
    lines = [f"| {name} | {value} |" for name, value in rows(events, violations)]
    return "\n".join(["| what | value |", "|---|---|", *lines])


def sent_again(events: Iterable[Event]) -> int:
    """How many records are there more than once."""
    found = (list(numbers_of(event.facts["ranges"])) for event in of(events, What.CONSUMED))
    return sum(len(numbers) - len(set(numbers)) for numbers in found)


def elections(events: Iterable[Event]) -> int:
    """In how many epochs there was a leader."""
    reported = of(events, What.STATUS, What.LEADER)
    return len({event.facts["epoch"] for event in reported if event.facts["leader"] >= 0})


def longest_without_leader_s(events: Iterable[Event]) -> float:
    """The longest time between two polls of a leader of the latest epoch; polls are half a second apart."""
    times: list[float] = []
    epoch = -1
    for event in of(events, What.STATUS, What.CALM):
        if event.what is What.CALM:
            break
        if event.facts["leader"] == event.facts["node"] and event.facts["epoch"] >= epoch:
            epoch = event.facts["epoch"]
            times.append(event.at_s)
    return _longest(times)


def longest_between_changes_s(events: Iterable[Event]) -> float:
    """The longest time between two changes of metadata that were acknowledged to clients."""
    return _longest(
        sorted(
            event.facts["returned_s"]
            for event in of(events, What.OPERATION)
            if event.facts["result"] == "ok" and event.facts["action"] != "read"
        )
    )


def at_once(events: Iterable[Event]) -> tuple[int, float]:
    """How many faults lasted at the same time at most, and which share of the time at least two did."""
    under_way, most, with_two_s, before_s, begun_s = 0, 0, 0.0, 0.0, None
    for event in of(events, What.FAULT, What.FAULT_ENDED):
        begun_s = event.at_s if begun_s is None else begun_s
        if under_way >= 2:
            with_two_s += event.at_s - before_s
        under_way += 1 if event.what is What.FAULT else -1
        most, before_s = max(most, under_way), event.at_s
    return most, with_two_s / (before_s - begun_s) if begun_s is not None and before_s > begun_s else 0.0


def _overlap(events: Iterable[Event]) -> str:
    most, share = at_once(events)
    return f"up to {most}; two or more for {share:.0%} of the time"


def _longest(times: Sequence[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0)


def _counted(words: Iterable[str]) -> str:
    counts = Counter(words).most_common()
    return ", ".join(f"{word} {count}" for word, count in counts) or "none"


def _with_results(events: Iterable[Event], kind: str, count: int) -> str:
    results = [
        event.facts["outcome"]
        for event in of(events, What.FAULT_ENDED)
        if event.facts["kind"] == kind and event.facts["outcome"]
    ]
    return f"{count} ({_counted(results)})" if results else str(count)


def _range(events: Iterable[Event], fact: str, form: str) -> str:
    values = [event.facts[fact] for event in of(events, What.RESOURCES)]
    return f"{form.format(min(values))} to {form.format(max(values))}" if values else "not measured"
