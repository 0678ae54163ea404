"""What Kafka's tools leave to Java: the order of hash maps, decimal numbers, lists."""

import pytest
from quorate.console.java_text import double_text, hash_order, list_text, map_hash_code


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1024.0, "1024.0"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (5e-4, "5.0E-4"),
        (-2e10, "-2.0E10"),
        (2147483647.0, "2.147483647E9"),
        (9.223372036854775807e18, "9.223372036854776E18"),
        (9.9999999e7, "9.9999999E7"),
        (1e23, "1.0E23"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert double_text(value) == text


def test_texts_come_in_the_order_of_a_hash_map() -> None:
    keys = "retention.ms cleanup.policy segment.bytes max.message.bytes min.insync.replicas compression.type"
    assert " ".join(hash_order([*keys.split(), "délai", *"abcdefg"])) == (
        "compression.type a b délai c d max.message.bytes e f g min.insync.replicas cleanup.policy"
        " retention.ms segment.bytes"
    )


def test_the_order_depends_on_the_capacity() -> None:
    quotas = ["producer_byte_rate", "consumer_byte_rate", "request_percentage"]
    assert hash_order(quotas, capacity=3) == [
        "consumer_byte_rate",
        "producer_byte_rate",
        "request_percentage",
    ]


def test_numbers_come_in_the_order_of_their_buckets() -> None:
    assert hash_order([16, 1, 0, 1]) == [16, 0, 1]
    assert hash_order([3000, 2, 1]) == [1, 2, 3000]


def test_maps_have_the_hash_code_of_java() -> None:
    """Quota entities in Kafka's order."""
    assert map_hash_code({"a": "b"}) == 97 ^ 98
    assert map_hash_code({"a": None}) == 97


def test_lists_have_brackets() -> None:
    assert list_text([]) == "[]"
    assert list_text(["a", 1]) == "[a, 1]"
