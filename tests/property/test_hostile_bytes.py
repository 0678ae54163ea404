"""Everything that reads what others wrote takes damaged bytes, or refuses them by the errors that it promises."""

from collections.abc import Iterator

import pytest
from kit.fuzz.mutations import mutated
from kit.fuzz.target import KEPT
from kit.fuzz.targets import release, targets

INPUTS = {
    "batches": 300,
    "controller-pages": 200,
    "lake-rows": 200,
    "lake-scans": 500,
    "logs": 300,
    "manifests": 150,
    "operator-pages": 300,
    "properties": 200,
    "requests": 5_000,
    "shell-lines": 500,
    "starts": 100,
    "status-page": 300,
}
INPUTS_DEFAULT = 2_000


@pytest.fixture(autouse=True, scope="module")
def released() -> Iterator[None]:
    """Nothing stays open behind these tests."""
    yield
    release()


@pytest.mark.parametrize("name", sorted(targets()))
def test_a_reader_refuses_what_it_can_not_read(name: str) -> None:
    """No exception but those promised, and none that a controller logs."""
    target = targets()[name]
    corpus = target.corpus()
    for seed, inputs in enumerate((corpus, mutated(corpus, 1, INPUTS.get(name, INPUTS_DEFAULT)))):
        for number, data in enumerate(inputs):
            try:
                target.attempt(data)
            except Exception as error:
                raise AssertionError(f"{name}, seed {seed}, input {number}: {data[:200]!r}") from error


def test_good_input_is_read() -> None:
    for target in targets().values():
        for data in target.good():
            target.read(data)


def test_what_is_kept_belongs_to_a_target() -> None:
    assert {path.name for path in KEPT.glob("*") if path.is_dir()} <= targets().keys()
