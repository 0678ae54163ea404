"""The metadata of a cluster as it was, read from a lake without Spark."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kit.lake.directories import CLUSTER
from kit.lake.lakes import store_rows
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.past.image import Moment, Playback, choose_cluster, read_end, read_history, replay
from pyspark_quorate.tables.contract import GAP_ORDINAL, Line
from quorate.main import app
from quorate.tools.metadata_shell.sources import load_directory, visible
from quorate_protocol.image.loading import NotedImage
from typer.testing import CliRunner

GOLDEN = Path(__file__).parents[2] / "golden" / "data" / "current"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the rows of a directory that stock Kafka wrote, as the source of Spark reads them."""
    where = tmp_path_factory.mktemp("lake") / "lake"
    store_rows(where, GOLDEN, CLUSTER)
    return where


def at(lake: Path, moment: Moment) -> NotedImage:
    """The metadata at a moment."""
    found = Lake.open(str(lake))
    return Playback(read_history(found, choose_cluster(found, None))).to(moment)


def test_the_end_of_a_history_is_what_the_log_says(lake: Path) -> None:
    past, expected = at(lake, Moment()), load_directory(GOLDEN)
    assert past.notes == []
    state, provenance = visible(expected.image)
    assert past.image.provenance.end_offset <= provenance.end_offset
    for image in (past.image, state):
        for key in list(image.scram):
            image.scram.write(key, None)
    assert past.image.same_as(state)


def test_each_offset_has_the_metadata_of_its_time(lake: Path) -> None:
    found = Lake.open(str(lake))
    lines = list(read_history(found, CLUSTER))
    history = Playback(lines)
    end = lines[-1].offset + 1
    for offset in range(0, end + 1, 7):
        known = set[str]()
        for line in lines:
            if line.placed < offset and line.type == "TopicRecord":
                known.add(line.fields["topicId"])
            elif line.placed < offset and line.type == "RemoveTopicRecord":
                known.discard(line.fields["topicId"])
        going_on = history.to(Moment(offset=offset)).image
        assert len(going_on.topics.by_id) == len(known)
        assert going_on.same_as(at(lake, Moment(offset=offset)).image)


def line(offset: int, kind: str, fields: dict[str, object], *, is_snapshot: bool = False) -> Line:
    """A line of a history in epoch 1, its time the offset."""
    return Line(offset, -1 if is_snapshot else 0, 1, offset, kind, fields, 0, is_snapshot)


LEVEL = {"name": "metadata.version", "featureLevel": 20}


def test_what_is_missing_is_noted_unless_a_snapshot_makes_up_for_it() -> None:
    gap = Line(5, GAP_ORDINAL, None, 5, "gap", {}, 1)
    past = NotedImage()
    replay(past, [line(0, "FeatureLevelRecord", LEVEL), gap])
    assert past.notes == ["records before offset 5 are missing"]
    assert past.image.metadata_version == 20
    replay(past, [line(5, "FeatureLevelRecord", LEVEL | {"featureLevel": 21}, is_snapshot=True)])
    assert (past.notes, past.image.metadata_version) == ([], 21)
    replay(past, [line(5, "RemoveTopicRecord", {"topicId": "A" * 21 + "B"}), line(6, "TopicRecord", {})])
    assert len(past.notes) == 2
    assert past.image.metadata_version == 21


def test_a_time_ends_at_the_first_later_line() -> None:
    """Clocks of leaders that go back do not mix two moments."""
    lines = [line(0, "FeatureLevelRecord", LEVEL)]
    lines += [
        line(1, "FeatureLevelRecord", LEVEL | {"featureLevel": 21})._replace(time_us=9),
        line(2, "FeatureLevelRecord", LEVEL | {"featureLevel": 22})._replace(time_us=3),
    ]
    history = Playback(lines)
    assert history.to(Moment(time_us=5)).image.metadata_version == 20
    assert history.to(Moment()).image.metadata_version == 22


def ask(*arguments: str) -> str:
    """What a command of `quorate` prints on stdout."""
    ran = CliRunner().invoke(app, arguments, prog_name="quorate")
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


def test_the_metadata_shell_shows_a_moment(lake: Path) -> None:
    shell = ("metadata-shell", "--lake", str(lake))
    assert ask(*shell, "--at", "0", "ls", "/image/topics/byName").split() == []
    topics = ask(*shell, "--cluster-id", CLUSTER, "ls", "/image/topics/byName").split()
    assert topics == ask("metadata-shell", "-d", str(GOLDEN), "ls", "/image/topics/byName").split()
    assert topics


@pytest.mark.parametrize("late", ["2099-01-01", "1000000"])
def test_a_moment_after_the_end_of_the_history_is_warned_of(lake: Path, late: str) -> None:
    """The metadata of the last known time is shown, which may be old."""
    end = read_end(Lake.open(str(lake)), CLUSTER)
    assert end is not None
    assert end.time is not None
    shell = ("metadata-shell", "--lake", str(lake))
    words = f"the history ends at offset {end.offset}, {end.time:%Y-%m-%dT%H:%M:%S}"
    for command in ((*shell, "--at", late, "ls", "/image"), ("lake", "diff", str(lake), "0", late)):
        ran = CliRunner().invoke(app, command, prog_name="quorate")
        assert ran.exit_code == 0
        assert words in " ".join(ran.stderr.split())
    for moment in (str(end.offset), end.time.isoformat()):
        ran = CliRunner().invoke(app, (*shell, "--at", moment, "ls", "/image"), prog_name="quorate")
        assert (ran.exit_code, ran.stderr) == (0, "")
    assert CliRunner().invoke(app, (*shell, "ls", "/image"), prog_name="quorate").stderr == ""


def test_a_difference_tells_what_came_went_and_changed(lake: Path) -> None:
    everything = json.loads(ask("lake", "diff", str(lake), "0", "-o", "json"))
    assert everything["from"]["offset"] == 0
    assert not everything["removed"]
    assert {path.split("/")[1] for path in everything["added"]} >= {"cluster", "features", "topics"}
    middle = str(everything["to"]["offset"] // 2)
    reported = json.loads(ask("lake", "diff", str(lake), middle, "-o", "json"))
    first, second, *lines = ask("lake", "diff", str(lake), middle).splitlines()
    assert (first.split()[:2], second.split()[0]) == (["from", "offset"], "to")
    for sign, key in (("+", "added"), ("-", "removed"), ("~", "changed")):
        assert [each.split()[1] for each in lines if each.startswith(f"{sign} ")] == list(reported[key])
    assert reported["changed"]
    assert ask("lake", "diff", str(lake), "5", "5").splitlines()[-1] == "nothing changed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lake", "diff", "LAKE", "yesterday"), "'yesterday' is neither a time"),
        (("lake", "diff", "LAKE", "7", "5"), "5 is before 7"),
        (("lake", "diff", "LAKE", "0", "--cluster-id", "other"), "--cluster-id other"),
        (("lake", "diff", "nowhere", "0"), "is not a lake"),
        (("metadata-shell", "--lake", "LAKE", "--at", "x", "ls"), "'x' is neither a time"),
        (("metadata-shell", "--lake", "nowhere", "ls"), "is not a lake"),
        (("metadata-shell", "-d", ".", "--at", "5", "ls"), "--at 5: only with --lake"),
        (("metadata-shell", "-d", ".", "--lake", "LAKE", "ls"), "give one of"),
    ],
)
def test_what_can_not_be_is_refused_with_a_reason(lake: Path, arguments: tuple[str, ...], words: str) -> None:
    given = [str(lake) if argument == "LAKE" else argument for argument in arguments]
    ran = CliRunner().invoke(app, given, prog_name="quorate")
    assert ran.exit_code in (1, 2)
    assert words in " ".join(ran.stderr.split())


def test_a_lake_of_several_clusters_needs_a_name(tmp_path: Path) -> None:
    with Lake.writing(str(tmp_path / "lake")) as made:
        with pytest.raises(LakeError, match="no clusters"):
            choose_cluster(made, None)
        made.commit(Change(), replace(made.state, clusters={"a": 1, "b": 1}))
        with pytest.raises(LakeError, match="one of a, b"):
            choose_cluster(made, None)
        assert choose_cluster(made, "b") == "b"
