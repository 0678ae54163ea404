"""Changes of several resources with few requests: those of one type together."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError

CHANGES_PER_REQUEST_MAX = 50
WEIGHT_PER_REQUEST_MAX = 2_000
"""A controller refuses a request that leads to more than 10,000 records."""

Errors = Sequence[AdminError | None]
"""The error of each change, in the order of the changes."""


class Request(NamedTuple):
    """How changes of one type are made: `weight` is about the number of records that one leads to."""

    make: Callable[[AdminClient, Sequence[Any]], Awaitable[Errors]]
    """Make changes of different objects. Raises AdminError if none was made."""
    weight: Callable[[Any], int] = lambda _: 1


async def make_changes(
    client: AdminClient, changes: Sequence[object], requests: Mapping[type, Request]
) -> Errors:
    """Make changes of different objects; one that was made already is no error.

    The error of a request is that of each of its changes.
    """
    errors: list[AdminError | None] = [None] * len(changes)
    for kind in dict.fromkeys(map(type, changes)):
        request = requests[kind]
        places = [place for place, change in enumerate(changes) if type(change) is kind]
        for batch in _batches(places, [request.weight(changes[place]) for place in places]):
            try:
                found = await request.make(client, [changes[place] for place in batch])
            except AdminError as error:
                found = [error] * len(batch)
            for place, result in zip(batch, found, strict=True):
                errors[place] = result
    return errors


def first_error(errors: Iterable[AdminError | None]) -> AdminError | None:
    """Return the first error, None without one."""
    return next((error for error in errors if error is not None), None)


def _batches(places: Sequence[int], weights: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places in batches within the limits. A change that is heavier than the limit is alone."""
    batch: list[int] = []
    total = 0
    for place, weight in zip(places, weights, strict=True):
        if batch and (len(batch) == CHANGES_PER_REQUEST_MAX or total + weight > WEIGHT_PER_REQUEST_MAX):
            yield batch
            batch, total = [], 0
        batch.append(place)
        total += weight
    if batch:
        yield batch
