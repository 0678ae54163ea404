"""Changes of good input, by a seeded source: what damage and attackers do to bytes."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

SIZE_BYTES_MAX: Final = 16_384
_EXTREMES: Final = tuple(
    number.to_bytes(size, "big", signed=True)
    for size in (1, 2, 4, 8)
    for number in (-1, 0, 1, -(1 << 8 * size - 1), (1 << 8 * size - 1) - 1)
)
"""Lengths, counts and offsets that programs get wrong."""

Mutation = Callable[[bytearray, Random], None]


def _flip_bit(data: bytearray, rng: Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(data: bytearray, rng: Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _write_extreme(data: bytearray, rng: Random) -> None:
    position = rng.randint(0, len(data))
    extreme = rng.choice(_EXTREMES)
    data[position : position + len(extreme)] = extreme


def _cut(data: bytearray, rng: Random) -> None:
    del data[rng.randint(0, len(data)) :]


def _remove(data: bytearray, rng: Random) -> None:
    start = rng.randint(0, len(data))
    del data[start : start + rng.randint(1, 64)]


def _insert(data: bytearray, rng: Random) -> None:
    position = rng.randint(0, len(data))
    data[position:position] = rng.randbytes(rng.randint(1, 64))


def _repeat(data: bytearray, rng: Random) -> None:
    start = rng.randint(0, len(data))
    part = bytes(data[start : start + rng.randint(1, 64)])
    data[start:start] = part * rng.choice((1, 2, 100))


_IN_PLACE: Final[Sequence[Mutation]] = (_flip_bit, _set_byte, _write_extreme)
"""Changes that keep most lengths right, so that more of the input is read."""
_MOVING: Final[Sequence[Mutation]] = (_cut, _remove, _insert, _repeat)


def mutated(corpus: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` inputs, each an input of the corpus with one to four changes; the same for the same seed."""
    rng = Random(seed)
    for _ in range(count):
        data = bytearray(rng.choice(corpus))
        for _ in range(rng.choice((1, 1, 2, 4))):
            rng.choice(_IN_PLACE if rng.random() < 0.8 else _MOVING)(data, rng)
        yield bytes(data[:SIZE_BYTES_MAX])
