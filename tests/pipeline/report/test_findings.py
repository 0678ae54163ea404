"""What a report says of rows: sentences, pictures within bounds, and nothing that a name could break."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from kit.histories import END, START, at, bad_day, calm_day, interval
from pyspark_quorate.report.charts import BARS_MAX, LANES_MAX, POINTS_MAX, Bar, Period, draw_bars, thinned
from pyspark_quorate.report.history import History, counted, in_words
from pyspark_quorate.report.page import render
from pyspark_quorate.report.sections import ROWS_SHOWN, sections_of

SPAN = Period(START, END)


def findings(history: History) -> dict[str, str]:
    """The sentences, by section."""
    return {section.title: section.finding for section in sections_of(history)}


def test_sentences_say_what_happened() -> None:
    said = findings(bad_day())
    assert said == {
        "Voters of the quorum": "At the end 3000, 3002 and 3003 are voters; 3001 left; 3002 returned with another "
        "directory.",
        "Active controller": "3 changes of the active controller; longest led 3001 (56% of the time).",
        "Brokers in and out of service": "Went out of service: broker 1 (4 times, 1 h 12 min fenced), broker 3 "
        "(once, 10 min fenced).",
        "Partitions at risk": "At most 16 partitions lacked replicas at once, at 2026-03-14 09:04:24; up to 4 "
        "partitions had no leader, 8 min in all. Most affected topic: orders.",
        "Addresses that moved between nodes": "2 addresses of 3 moved from one node to another, once so soon that "
        "clients may still have cached it; the fastest was 10.0.0.11:9093, from 3001 to 3003 after 3 min.",
        "What blocked upgrades": "The longest block was by controller 3001, of metadata.version 4.3-IV0 for 6 h "
        "40 min; it is a ghost: registered, but not a voter; controller 3001 still blocks a level.",
        "Missing records": "Torn-tail once, missing-offsets once, truncated-epoch once. 400 records are missing "
        "in all files: intervals that start or end there are drawn pale.",
    }
    assert findings(calm_day())["Active controller"] == "3000 led all the time."
    assert not any(section.is_bad for section in sections_of(calm_day()))


def test_a_part_of_the_time_is_cut_out() -> None:
    first_hour = replace(bad_day(), until=at(59))
    said = findings(first_hour)
    assert said["Brokers in and out of service"] == "None of 5 brokers went out of service."
    assert said["Partitions at risk"].startswith("All partitions had")
    assert said["Active controller"] == "3001 led all the time."


def test_tables_that_a_lake_lacks_are_left_out() -> None:
    history = bad_day()
    only = replace(history, tables={"leadership": history.tables["leadership"]})
    assert list(findings(only)) == ["Active controller"]
    assert "Active controller" in render([only], END)
    assert "no clusters yet" in render([], END)


def test_names_do_not_break_the_page() -> None:
    evil = "<script>alert(1)</script>"
    row = dict(bad_day().tables["under_replicated"][0], topic=evil)
    page = render([replace(bad_day(), cluster_id=evil, tables={"under_replicated": [row]})], END)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 3


@pytest.mark.parametrize("name", [r"$\frac{$:9092", "$a$b", r"\n_{2}^", "50%"])
def test_names_are_drawn_as_they_are(name: str) -> None:
    for lane in (name, name + "x" * 40):
        drawn = draw_bars([Bar(lane, "good", START, END, "")], SPAN, [("good", name)], "lanes", "")
        assert all(f">{lane}</text>" in svg and f">{name}</text>" in svg for svg in drawn.svgs.values())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("minutes", [0, 0.01, 2.9, 30, 90, 179, 4_300, 30_000, 130_000, 1_500_000, 5_256_000])
def test_any_period_has_few_labels_of_time(minutes: float) -> None:
    until = START + timedelta(minutes=minutes)
    drawn = draw_bars([Bar("broker", "good", START, until, "")], Period(START, until), [], "lanes", "")
    for name, most in (("wide", 10), ("narrow", 6)):
        assert 1 <= drawn.svgs[name].count("</text>") - 1 <= most


def test_pictures_are_bounded() -> None:
    lanes = [Bar(f"broker {number}", "good", START, END, "") for number in range(LANES_MAX + 5)]
    drawn = draw_bars(lanes, SPAN, [], "lanes", "")
    assert drawn.left_out == f"Shown are the {LANES_MAX} of {LANES_MAX + 5} lanes with the most bars."
    bars = [Bar("broker", "bad", at(0), at(number / 60), "") for number in range(BARS_MAX + 3)]
    drawn = draw_bars(bars, SPAN, [], "bars", "")
    assert drawn.left_out == f"Shown are the {BARS_MAX} longest of {BARS_MAX + 3} intervals."
    assert drawn.svgs["wide"].count("<g><title>") == BARS_MAX
    points = [(START + timedelta(seconds=number), number % 7) for number in range(30_000)]
    kept = thinned(points, SPAN)
    assert len(kept) <= POINTS_MAX + 2
    assert max(value for _, value in kept) == 6
    assert kept == sorted(kept)
    many = [
        interval(number / 10, None, epoch=number, leader_id=1, granting_voters=[])
        for number in range(ROWS_SHOWN + 1)
    ]
    assert f"the first {ROWS_SHOWN} of {ROWS_SHOWN + 1} rows" in render(
        [replace(bad_day(), tables={"leadership": many})], END
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0124, "12 ms"),
        (59.4, "59 s"),
        (60, "1 min"),
        (245, "4 min 5 s"),
        (3600, "1 h"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_lengths_in_words(seconds: float, words: str) -> None:
    assert in_words(timedelta(seconds=seconds)) == words


def test_numbers_with_nouns() -> None:
    assert [counted(1, "address"), counted(2, "address"), counted(2, "broker")] == [
        "1 address",
        "2 addresses",
        "2 brokers",
    ]


def test_a_report_is_the_same_each_time() -> None:
    made_at = datetime(2026, 3, 14, tzinfo=UTC)
    assert render([bad_day()], made_at) == render([bad_day()], made_at)
