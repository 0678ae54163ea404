"""The planted mistakes fit the present code, so that `make mistakes` can't rot unseen."""

import ast
from pathlib import Path

import pytest
from kit.planted_mistakes.catalogue import MISTAKES
from kit.planted_mistakes.mistake import Mistake
from kit.planted_mistakes.planting import REPOSITORY, SourceCopy

TESTS = REPOSITORY / "tests"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_fits_its_file(mistake: Mistake) -> None:
    source = (REPOSITORY / mistake.file).read_text(encoding="utf-8")
    planted = mistake.planted_in(source)
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source))
    assert all((TESTS / test.partition("::")[0]).exists() for test in mistake.tests)


def test_names_are_unique() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)


def test_a_planted_mistake_is_found_and_taken_out_again(tmp_path: Path) -> None:
    mistake = Mistake(
        name="half is a majority",
        file="controller_node/quorate_controller/raft/voters.py",
        edits=(("return voter_count // 2 + 1", "return (voter_count + 1) // 2"),),
        harm="two leaders in one epoch",
        tests=("property/test_raft_voter_arithmetic.py",),
    )
    copy = SourceCopy(tmp_path)
    copy.check_is_used()
    copy.plant(mistake)
    found_by = copy.tests_that_fail(mistake.tests).found_by
    assert found_by is not None
    assert found_by.startswith("property/test_raft_voter_arithmetic.py::")
    copy.mend(mistake)
    assert copy.tests_that_fail(mistake.tests).found_by is None
