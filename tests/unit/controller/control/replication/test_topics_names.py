"""Names that topics may have."""

import pytest
from quorate_controller.control.topic_names import colliding_name, why_invalid


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "_", "x" * 249, "..."])
def test_valid_names(name: str) -> None:
    """Goal: what Kafka allows is allowed. Method: every kind of character, and the greatest length."""
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
    """Goal: Kafka's text for each rule. Method: one name per rule; a line end must not slip through."""
    assert why_invalid(name) == f"Topic name is invalid: {reason}"


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
    """Goal: found with few such characters (by probing) and with many (by scanning). Method: both."""
    existing = {"ab": 1, "unrelated": 2, collides: 3}
    assert colliding_name(name, existing) == collides


@pytest.mark.parametrize("name", ["ab", "a-b", "a.bc", "a_b_c_d_e_f_g_h_i_k"])
def test_other_names_do_not_collide(name: str) -> None:
    """Goal: no false alarm. Method: names close to existing ones."""
    existing = {"a.b": 1, "a_b_c_d_e_f_g_h_i_j": 2}
    assert colliding_name(name, existing) is None


def test_looking_for_collisions_does_not_scan_all_topics() -> None:
    """Goal: CreateTopics costs the same in any cluster. Method: names that refuse to be listed."""

    class Unlistable(dict[str, int]):
        def __iter__(self):
            raise AssertionError("scanned")

    assert colliding_name("team.orders.v1_dlq", Unlistable({"x": 1})) is None
