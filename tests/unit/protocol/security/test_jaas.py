"""`sasl.jaas.config` as it is written and read again."""

from hypothesis import given
from hypothesis import strategies as st
from quorate_protocol.security.jaas import LOGIN_MODULES, format_jaas, parse_jaas

KEYS = st.text("abcdefghijklmnopqrstuvwxyz_-.", min_size=1)


@given(mechanism=st.sampled_from(sorted(LOGIN_MODULES)), options=st.dictionaries(KEYS, st.text()))
def test_each_value_is_read_as_it_was_written(mechanism: str, options: dict[str, str]) -> None:
    """A password may have quotes, backslashes and line breaks."""
    read = parse_jaas(format_jaas(mechanism, options))
    assert read.name == LOGIN_MODULES[mechanism]
    assert read.options == options
