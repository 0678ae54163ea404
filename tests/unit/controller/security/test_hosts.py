"""Addresses and blocks of addresses in ACLs, as Java writes and reads them."""

import pytest
from quorate_controller.security.hosts import check_block, is_in_block, java_address


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::00ff:0", "2001:db8:0:0:0:0:ff:0"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("", ""),
    ],
)
def test_an_address_is_compared_as_java_prints_it(address: str, printed: str) -> None:
    assert java_address(address) == printed


@pytest.mark.parametrize(
    ("block", "address", "is_in"),
    [
        ("10.1.0.0/16", "10.1.255.255", True),
        ("10.1.0.0/16", "10.2.0.0", False),
        ("10.1.2.3/16", "10.1.0.0", True),
        ("10.1.2.3/32", "10.1.2.3", True),
        ("10.1.2.2/31", "10.1.2.3", True),
        ("0.0.0.0/0", "203.0.113.9", True),
        ("0.0.0.0/0", "0.0.0.0", False),
        ("0.0.0.0/0", "0:0:0:0:0:0:0:1", False),
        ("2001:db8::/32", "2001:db8:0:0:0:0:0:1", True),
        ("2001:db8::/32", "2001:db9:0:0:0:0:0:1", False),
        ("[2001:db8::]/32", "2001:db8:0:0:0:0:0:1", True),
        ("::/0", "10.1.2.3", False),
        ("fe80::/10", "fe80:0:0:0:0:0:0:1%eth0", True),
        ("no/block", "10.1.2.3", False),
        ("10.1.0.0/16", "no address", False),
    ],
)
def test_an_address_is_in_a_block(block: str, address: str, is_in: bool) -> None:
    assert is_in_block(block, address) is is_in


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("256.0.0.0/8", "Value [256] not in range [0,255]"),
        ("10.0.0/8", "Could not parse [10.0.0/8]"),
        ("a/b", "Could not parse [a/b]"),
        ("2001:db8::/129", "Could not parse [2001:db8::/129] - prefix length must be between 0 and 128"),
        ("2001:db8::/-1", "Could not parse [2001:db8::/-1] - prefix length must be between 0 and 128"),
        ("2001:db8::/x", "Could not parse [2001:db8::/x] - invalid prefix length"),
        ("2001:db8::/99999999999", "Could not parse [2001:db8::/99999999999] - invalid prefix length"),
        ("2001::db8::/32", "Could not parse [2001::db8::]"),
        ("::ffff:10.0.0.0/104", "Could not parse [::ffff:10.0.0.0] - not an IPv6 address"),
    ],
)
def test_what_is_no_block_is_refused_with_kafkas_words(block: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^") as refusal:
        check_block(block)
    assert str(refusal.value) == message
