"""Matching patterns of client metrics: whatever a client sends is taken or refused, and nothing else happens."""

from hypothesis import example, given
from hypothesis import strategies as st
from quorate_controller.control.api import ControlError
from quorate_controller.control.config_validation import validate_client_metrics
from quorate_protocol.errors import ErrorCode

atoms = st.text("ab01,.-^$|*+?\\[]{}()<>=!:&PQEdpux\U0010ffff", max_size=12)
repeated = st.builds("{}{{{},{}}}".format, atoms, st.integers(0, 10**12), st.integers(0, 10**12))
nested = st.builds(lambda depth, atom: "(" * depth + atom + ")" * depth, st.integers(0, 600), atoms)
expressions = st.one_of(atoms, repeated, nested, st.text(max_size=40))


@given(expression=expressions)
@example(expression="a{99999999999}")
@example(expression="(" * 16_000 + ")" * 16_000)
def test_a_pattern_is_taken_or_refused(expression: str) -> None:
    refusal = None
    try:
        validate_client_metrics({"match": f"client_id={expression}"})
    except ControlError as error:
        refusal = error
    if refusal is not None:
        assert refusal.error_code is ErrorCode.invalid_config
        assert refusal.message.startswith(("Illegal client matching pattern: ", "Configuration 'match' "))
