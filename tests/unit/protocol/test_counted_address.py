"""What counts as one address."""

import pytest
from quorate_protocol.counted_address import counted_address


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("localhost", "localhost"),
        ("", ""),
    ],
)
def test_one_machine_is_one_address(host: str, counted: str) -> None:
    assert counted_address(host) == counted
