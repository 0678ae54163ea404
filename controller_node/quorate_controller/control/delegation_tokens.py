"""Delegation tokens: CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken (KIP-48, KIP-373, KIP-900).

A token's HMAC, with which its user logs in, is derived from its id and the secret that all nodes share. It is
never stored.
"""

import hmac
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.security import DelegationToken
from quorate_protocol.kafka.enums import AclOperation, ResourceType, SecurityProtocol
from quorate_protocol.kafka.field_types import EPOCH, MILLISECOND
from quorate_protocol.kafka.generated.create_delegation_token_request import CreateDelegationTokenRequest
from quorate_protocol.kafka.generated.create_delegation_token_response import CreateDelegationTokenResponse
from quorate_protocol.kafka.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from quorate_protocol.kafka.generated.expire_delegation_token_response import ExpireDelegationTokenResponse
from quorate_protocol.kafka.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from quorate_protocol.kafka.generated.renew_delegation_token_response import RenewDelegationTokenResponse
from quorate_protocol.records.generated import RemoveDelegationTokenRecord
from quorate_protocol.uuids import uuid_from, uuid_to_text

from quorate_controller.control.api import (
    ANONYMOUS,
    ControlConfig,
    ControlError,
    ControlResult,
    RequestContext,
)
from quorate_controller.control.steps import RECORD, STEP_WORK_MAX, StepBudget, Steps, begun

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.image import MetadataImage
    from quorate_protocol.image.state import FollowedTable

Response = TypeVar("Response", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)

USER_TYPE: Final = "User"
ERROR_TIMESTAMP_MS: Final = -1
REQUESTER_SINCE: Final = 3
"""The first version of CreateDelegationToken whose response names the requester (KIP-373)."""
SWEPT_TOKENS_MAX: Final = STEP_WORK_MAX // RECORD
"""Tokens that one step of a sweep removes. Examining all tokens takes less time than that."""
HMAC_WORK: Final = 4
"""The work of an HMAC, in units of `StepBudget`."""
TIMESTAMP_MS_MAX: Final = (datetime.max.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // MILLISECOND
"""The last millisecond that a response can have: the year 9999 ends."""


def token_hmac(secret: str, token_id: str) -> bytes:
    """The HMAC of a token, with which its owner logs in."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


class DelegationTokenManager:
    """Creates, renews and expires tokens, and removes expired ones."""

    def __init__(self, config: ControlConfig, image: "MetadataImage", rng: "Random") -> None:
        self._secret = config.delegation_token_secret
        self._lifetime_ms_max = config.delegation_token_max_lifetime_ms
        self._renewal_ms_max = config.delegation_token_expiry_time_ms
        self._unix_ms_of = config.unix_ms_of
        self._image = image
        self._rng = rng
        self._by_hmac = _TokensByHmac(image, self._hmac)

    def create(self, request: CreateDelegationTokenRequest, context: RequestContext) -> ControlResult:
        """CreateDelegationToken 1-3. Errors stand in the response, beside owner and requester.

        Raises:
            ControlError: UNKNOWN_SERVER_ERROR for an owner without a type.
        """
        owner = context.principal
        if request.owner_principal_name:
            if request.owner_principal_type is None:
                raise ControlError(ErrorCode.unknown_server_error)
            owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        if not may_request_tokens(context):
            return _refused_creation(ErrorCode.delegation_token_request_not_allowed, owner, context)
        if owner != context.principal and not context.access.allows(
            AclOperation.CREATE_TOKENS, ResourceType.USER, owner
        ):
            return _refused_creation(ErrorCode.delegation_token_authorization_failed, owner, context)
        error_code = self._unavailable()
        if error_code is ErrorCode.none and any(
            renewer.principal_type != USER_TYPE for renewer in request.renewers
        ):
            error_code = ErrorCode.invalid_principal_type
        if error_code is not ErrorCode.none:
            return ControlResult(response=_created(error_code, _no_token(owner, 0), context, b""))
        unix_ms, lifetime_ms = self._unix_ms_of(context.now_ms), request.max_lifetime // MILLISECOND
        max_timestamp_ms = _later(
            unix_ms,
            min(self._lifetime_ms_max, lifetime_ms) if lifetime_ms > 0 else self._lifetime_ms_max,
        )
        token = DelegationToken(
            token_id=uuid_to_text(uuid_from(self._rng)),
            owner=owner,
            requester=context.principal,
            renewers=tuple(
                f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers
            ),
            issue_timestamp_ms=unix_ms,
            max_timestamp_ms=max_timestamp_ms,
            expiration_timestamp_ms=min(max_timestamp_ms, _later(unix_ms, self._renewal_ms_max)),
        )
        response = _created(ErrorCode.none, token, context, self._hmac(token.token_id))
        return ControlResult(records=(token.to_record(),), response=response)

    def renew(self, request: RenewDelegationTokenRequest, context: RequestContext) -> ControlResult:
        """RenewDelegationToken 1-2: the expiry moves, at most to the end of the token's life."""
        if not may_request_tokens(context):
            return _refused(RenewDelegationTokenResponse)
        return begun(self._renewing(request, context))

    def _renewing(self, request: RenewDelegationTokenRequest, context: RequestContext) -> Steps:
        yield from self._reading()
        try:
            token = self._token(request.hmac)
            self._check_time(token, context)
            _check_renewer(token, context)
        except ControlError as error:
            return ControlResult(response=_response(RenewDelegationTokenResponse, error.error_code, 0))
        period_ms = request.renew_period // MILLISECOND
        if period_ms <= 0:
            period_ms = self._renewal_ms_max
        period_ms = min(period_ms, self._renewal_ms_max)
        unix_ms = self._unix_ms_of(context.now_ms)
        return _expires_at(RenewDelegationTokenResponse, token, _later(unix_ms, period_ms))

    def expire(self, request: ExpireDelegationTokenRequest, context: RequestContext) -> ControlResult:
        """ExpireDelegationToken 1-2: the expiry moves; a negative period removes the token at once."""
        if not may_request_tokens(context):
            return _refused(ExpireDelegationTokenResponse)
        return begun(self._expiring(request, context))

    def _expiring(self, request: ExpireDelegationTokenRequest, context: RequestContext) -> Steps:
        yield from self._reading()
        period_ms, unix_ms = request.expiry_time_period // MILLISECOND, self._unix_ms_of(context.now_ms)
        try:
            token = self._token(request.hmac)
            _check_renewer(token, context)
            if period_ms >= 0:
                self._check_time(token, context)
        except ControlError as error:
            return ControlResult(response=_response(ExpireDelegationTokenResponse, error.error_code, 0))
        if period_ms < 0:
            response = _response(ExpireDelegationTokenResponse, ErrorCode.none, unix_ms)
            return ControlResult(records=(_removal(token),), response=response)
        return _expires_at(ExpireDelegationTokenResponse, token, _later(unix_ms, period_ms))

    def sweep(self, now_ms: int) -> tuple[ControlResult, bool]:
        """Remove a bounded number of expired tokens. Also returns whether there may be more."""
        unix_ms = self._unix_ms_of(now_ms)
        over = (token for token in self._image.delegation_tokens.values() if _is_over(token, unix_ms))
        records = tuple(map(_removal, islice(over, SWEPT_TOKENS_MAX)))
        return ControlResult(records=records, atomic=False), len(records) == SWEPT_TOKENS_MAX

    # Parts

    def _unavailable(self) -> ErrorCode:
        """The error of a cluster without tokens; `none` if it has them."""
        if self._secret is None:
            return ErrorCode.delegation_token_auth_disabled
        if self._image.metadata_version < features.DELEGATION_TOKENS_SINCE:
            return ErrorCode.unsupported_version
        return ErrorCode.none

    def _hmac(self, token_id: str) -> bytes:
        assert self._secret is not None
        return token_hmac(self._secret, token_id)

    def _token(self, token_hmac: bytes) -> DelegationToken:
        """The token with this HMAC.

        Raises:
            ControlError: there are no tokens in this cluster, or DELEGATION_TOKEN_NOT_FOUND.
        """
        error_code = self._unavailable()
        if error_code is not ErrorCode.none:
            raise ControlError(error_code)
        token = self._by_hmac.get(token_hmac)
        if token is None:
            raise ControlError(ErrorCode.delegation_token_not_found)
        return token

    def _check_time(self, token: DelegationToken, context: RequestContext) -> None:
        if _is_over(token, self._unix_ms_of(context.now_ms)):
            raise ControlError(ErrorCode.delegation_token_expired)

    def _reading(self) -> Generator[None, None, None]:
        """Compute the HMACs of all tokens, once per table of tokens."""
        if self._unavailable() is ErrorCode.none:
            yield from self._by_hmac.reading()


class _TokensByHmac:
    """Finds tokens by their HMACs. It follows the table of tokens of an image, undone writes included."""

    def __init__(self, image: "MetadataImage", hmac_of: Callable[[str], bytes]) -> None:
        self._image = image
        self._hmac_of = hmac_of
        self._table: FollowedTable[str, DelegationToken] | None = None
        self._token_ids: dict[bytes, str] = {}

    def get(self, token_hmac: bytes) -> DelegationToken | None:
        """Return the token; call it behind `reading`, with no event in between."""
        return self._image.delegation_tokens.get(self._token_ids.get(token_hmac, ""))

    def reading(self) -> Generator[None, None, None]:
        """Compute the HMACs of a new table: at first, and after a snapshot has replaced it."""
        budget = StepBudget()
        while self._table is not self._image.delegation_tokens:
            table = self._image.delegation_tokens
            hmacs: dict[bytes, str] = {}
            changes = table.changes
            for token_id in tuple(table):
                hmacs[self._hmac_of(token_id)] = token_id
                if budget.spend(HMAC_WORK):
                    yield
            if table.changes != changes:  # tokens created in between
                known = frozenset(hmacs.values())
                hmacs |= {self._hmac_of(token_id): token_id for token_id in table if token_id not in known}
            table.on_change = self._on_change
            self._table, self._token_ids = table, hmacs

    def _on_change(self, old: DelegationToken | None, new: DelegationToken | None) -> None:
        if old is None and new is not None:
            self._token_ids[self._hmac_of(new.token_id)] = new.token_id
        elif old is not None and new is None:
            self._token_ids.pop(self._hmac_of(old.token_id), None)


def may_request_tokens(context: RequestContext) -> bool:
    """Return whether the client has authenticated without a token.

    For a forwarded request, the broker has checked that. Source: allowTokenRequests of Kafka's ControllerApis and
    KafkaApis.
    """
    if context.token_authenticated:
        return False
    protocol = context.security_protocol
    has_certificate = protocol is SecurityProtocol.SSL and context.principal != ANONYMOUS
    return context.forwarded or protocol.is_sasl or has_certificate


def _later(unix_ms: int, duration_ms: int) -> int:
    return min(unix_ms + duration_ms, TIMESTAMP_MS_MAX)


def _is_over(token: DelegationToken, unix_ms: int) -> bool:
    return token.max_timestamp_ms < unix_ms or token.expiration_timestamp_ms < unix_ms


def _check_renewer(token: DelegationToken, context: RequestContext) -> None:
    if context.principal != token.owner and context.principal not in token.renewers:
        raise ControlError(ErrorCode.delegation_token_owner_mismatch)


def _removal(token: DelegationToken) -> RemoveDelegationTokenRecord:
    return RemoveDelegationTokenRecord(token_id=token.token_id)


def _timestamp(unix_ms: int) -> datetime:
    return EPOCH + unix_ms * MILLISECOND


def _expires_at(response_class: type[Response], token: DelegationToken, wanted_ms: int) -> ControlResult:
    """The token expires at that time, or at the end of its life."""
    expiry_ms = min(token.max_timestamp_ms, wanted_ms)
    record = replace(token, expiration_timestamp_ms=expiry_ms).to_record()
    return ControlResult(records=(record,), response=_response(response_class, ErrorCode.none, expiry_ms))


def _refused(response_class: type[Response]) -> ControlResult:
    error_code = ErrorCode.delegation_token_request_not_allowed
    return ControlResult(response=_response(response_class, error_code, ERROR_TIMESTAMP_MS))


def _response(response_class: type[Response], error_code: ErrorCode, expiry_ms: int) -> Response:
    return response_class(
        error_code=error_code, expiry_timestamp=_timestamp(expiry_ms), throttle_time=timedelta(0)
    )


def _refused_creation(error_code: ErrorCode, owner: str, context: RequestContext) -> ControlResult:
    return ControlResult(response=_created(error_code, _no_token(owner, ERROR_TIMESTAMP_MS), context, b""))


def _no_token(owner: str, timestamp_ms: int) -> DelegationToken:
    """The token in the response to a refused creation."""
    return DelegationToken(
        token_id="",
        owner=owner,
        requester="",
        renewers=(),
        issue_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        expiration_timestamp_ms=timestamp_ms,
    )


def _created(
    error_code: ErrorCode, token: DelegationToken, context: RequestContext, token_hmac: bytes
) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = token.owner.partition(":")
    requester = context.principal if context.api_version >= REQUESTER_SINCE else ""
    requester_type, _, requester_name = requester.partition(":")
    return CreateDelegationTokenResponse(
        error_code=error_code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=_timestamp(token.issue_timestamp_ms),
        expiry_timestamp=_timestamp(token.expiration_timestamp_ms),
        max_timestamp=_timestamp(token.max_timestamp_ms),
        token_id=token.token_id,
        hmac=token_hmac,
        throttle_time=timedelta(0),
    )
