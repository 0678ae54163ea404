"""The client's side of SASL on a connection to another controller: requests out, responses in."""

from __future__ import annotations

from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.field_types import MILLISECOND
from quorate_protocol.kafka.generated.sasl_authenticate_request import SaslAuthenticateRequest
from quorate_protocol.kafka.generated.sasl_authenticate_response import SaslAuthenticateResponse
from quorate_protocol.kafka.generated.sasl_handshake_request import SaslHandshakeRequest
from quorate_protocol.security.dialogues import BearerDialogue, PlainDialogue, ScramDialogue
from quorate_protocol.security.oauth import OAUTHBEARER, TokenError
from quorate_protocol.security.scram import ScramClient, ScramError

from quorate_controller.security.sasl import PLAIN

if TYPE_CHECKING:
    from quorate_protocol.security.dialogues import Dialogue
    from quorate_protocol.security.tokens import TokenKeeper

    from quorate_controller.config.listener_sasl import Login


class PeerAuthenticationError(Exception):
    """The peer refuses the login, or has failed to prove that it knows the password; or there is no token."""


class PeerAuthentication:
    """One authentication. `tokens` are needed for OAUTHBEARER."""

    def __init__(self, login: Login, tokens: TokenKeeper | None = None) -> None:
        self._login = login
        self._tokens = tokens
        self._dialogue: Dialogue | None = None
        self.lifetime_ms = 0
        """How long the session lasts; 0: without limit."""

    @property
    def first(self) -> SaslHandshakeRequest:
        """The first request."""
        return SaslHandshakeRequest(mechanism=self._login.mechanism)

    def next(self, response: Any) -> SaslAuthenticateRequest | None:
        """Return the request that follows a response; None when the login is done. Raises PeerAuthenticationError."""
        if not isinstance(response, SaslAuthenticateResponse):
            if response.error_code is not ErrorCode.none:
                raise PeerAuthenticationError(
                    f"{self._login.mechanism}: {response.error_code.name.upper()}; the peer has "
                    f"{', '.join(response.mechanisms) or 'no mechanism'}"
                )
            self._dialogue = _dialogue(self._login, self._tokens)
            return SaslAuthenticateRequest(auth_bytes=self._dialogue.first())
        if response.error_code is not ErrorCode.none:
            raise PeerAuthenticationError(response.error_message or response.error_code.name.upper())
        assert self._dialogue is not None, "it begins after the handshake"
        self.lifetime_ms = response.session_lifetime // MILLISECOND
        try:
            message = self._dialogue.next(response.auth_bytes)
        except ScramError as error:
            raise PeerAuthenticationError(f"{self._login.mechanism}: {error}") from None
        return None if message is None else SaslAuthenticateRequest(auth_bytes=message)


def _dialogue(login: Login, tokens: TokenKeeper | None) -> Dialogue:
    if login.mechanism == OAUTHBEARER:
        assert tokens is not None, "a login with OAUTHBEARER has a keeper of tokens"
        try:
            token = tokens.current()
        except TokenError as error:
            raise PeerAuthenticationError(str(error)) from None
        return BearerDialogue(token.value, tokens.login.extensions)
    if login.mechanism == PLAIN:
        return PlainDialogue(login.username, login.password)
    return ScramDialogue(
        ScramClient(
            mechanism=login.mechanism,
            username=login.username,
            password=login.password,
            nonce=token_urlsafe(24),
            is_token=login.is_token,
        )
    )
