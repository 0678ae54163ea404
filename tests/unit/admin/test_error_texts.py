"""What an error of a server says."""

from quorate_admin.errors import ServerError
from quorate_protocol.errors import ErrorCode


def test_a_response_without_a_message_has_kafkas_own_text() -> None:
    plain = "CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed."
    assert str(ServerError(ErrorCode.cluster_authorization_failed)) == plain
    assert str(ServerError(ErrorCode.cluster_authorization_failed, "")) == plain
    reported = ServerError(ErrorCode.cluster_authorization_failed, "Not you.")
    assert (str(reported), reported.message) == ("CLUSTER_AUTHORIZATION_FAILED: Not you.", "Not you.")


def test_every_code_has_a_text() -> None:
    assert [code for code in ErrorCode if code is not ErrorCode.none and not code.text] == []
    assert ErrorCode.none.text is None
