"""Names that topics may have."""

from typing import Any
from uuid import UUID

import pytest
from quorate_controller.control.topic_names import why_invalid
from quorate_protocol.image.topics import TopicsImage


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "_", "x" * 249, "..."])
def test_valid_names(name: str) -> None:
    assert why_invalid(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        (
            "\u00e4",
            "'\u00e4' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_invalid_names(name: str, reason: str) -> None:
    assert why_invalid(name) == f"Topic name is invalid: {reason}"


def topics(*names: str) -> TopicsImage:
    """An image of topics of these names."""
    image = TopicsImage()
    for number, name in enumerate(names):
        image.write_name(UUID(int=number), name)
    return image


@pytest.mark.parametrize(
    ("name", "collides"),
    [
        ("a.b", "a_b"),
        ("a_b", "a.b"),
        ("a.b_c", "a_b.c"),
        ("a_b_c_d_e_f_g_h_i_j", "a.b.c.d.e.f.g.h.i.j"),
    ],
)
def test_names_that_differ_in_dots_and_underscores_collide(name: str, collides: str) -> None:
    """Found with few such characters and with many."""
    assert topics("ab", "unrelated", collides).named_alike(name) == (collides,)


@pytest.mark.parametrize("name", ["ab", "a-b", "a.bc", "a_b_c_d_e_f_g_h_i_k"])
def test_other_names_do_not_collide(name: str) -> None:
    assert topics("a.b", "a_b_c_d_e_f_g_h_i_j", "ab").named_alike(name) == ()


def test_looking_for_collisions_does_not_scan_all_topics() -> None:
    class Unlistable(dict[Any, Any]):
        def __iter__(self):
            raise AssertionError("scanned")

        items = values = keys = __iter__

    image = topics("x", "a_b")
    for table in ("by_name", "by_id", "_by_metric_name"):
        setattr(image, table, Unlistable(getattr(image, table)))
    assert image.named_alike("a.b") == ("a_b",)
    assert image.named_alike(".".join("team.orders.v1_dlq" * 10)) == ()


def test_collisions_follow_the_image() -> None:
    """No trace of a removed topic, and none of a copy's."""
    image = topics("a.b", "a_b")
    assert image.named_alike("a.b") == ("a.b", "a_b")
    copied = image.copy()
    image.write_name(UUID(int=0), None)
    assert image.named_alike("a.b") == ("a_b",)
    removed = image.write_whole(UUID(int=1), None)
    assert image.named_alike("a.b") == ()
    image.write_whole(UUID(int=1), removed)
    assert image.named_alike("a.b") == ("a_b",)
    assert copied.named_alike("a_b") == ("a.b", "a_b")
