"""DescribeClientQuotas, DescribeUserScramCredentials, DescribeDelegationToken, also while no broker runs (KIP-919).

Kafka's controllers do not serve them. Source: ClientQuotasImage, ScramImage, KafkaApis and DelegationTokenManager of
its brokers. Authorization of the requests is in `server/authorization.py`.
"""

from collections.abc import Generator, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import CLIENT_ID, IP, USER, AclOperation, ResourceType, ScramMechanism
from quorate_protocol.kafka.generated.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from quorate_protocol.kafka.generated.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from quorate_protocol.kafka.generated.describe_delegation_token_request import DescribeDelegationTokenRequest
from quorate_protocol.kafka.generated.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from quorate_protocol.kafka.generated.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from quorate_protocol.kafka.generated.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from quorate_controller.control.api import ControlError, ControlResult, RequestContext, invalid_request
from quorate_controller.control.delegation_tokens import HMAC_WORK, may_request_tokens, token_hmac
from quorate_controller.control.steps import ITEM, LOOK, StepBudget

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.image.security import DelegationToken, QuotaEntity

K = TypeVar("K")
V = TypeVar("V")

_EXACT: Final = 0
_SPECIFIED: Final = 2
_MATCH_TYPES: Final = {
    _EXACT: "MATCH_TYPE_EXACT",
    1: "MATCH_TYPE_DEFAULT",
    _SPECIFIED: "MATCH_TYPE_SPECIFIED",
}
"""How a filter names an entity: its name, the default of the type, or any of the type."""

_MECHANISMS: Final = tuple(
    mechanism for mechanism in ScramMechanism if mechanism is not ScramMechanism.UNKNOWN
)


class SecurityDescriber:
    """Describes quotas, users of SCRAM and delegation tokens as brokers do. Stateless."""

    def __init__(self, image: "MetadataImage", token_secret: str | None) -> None:
        """`token_secret`: `delegation.token.secret.key`; with None there are no tokens."""
        self._image = image
        self._secret = token_secret

    # Quotas

    def describe_client_quotas(
        self, request: DescribeClientQuotasRequest, _context: RequestContext
    ) -> ControlResult:
        """DescribeClientQuotas 0-1, on any controller.

        Raises:
            ControlError: INVALID_REQUEST or UNSUPPORTED_VERSION for a filter that is not valid.
        """
        return ControlResult(steps=self._describing_quotas(_Filter(request)))

    def _describing_quotas(self, wanted: "_Filter") -> Generator[None, None, DescribeClientQuotasResponse]:
        entries = []
        budget = StepBudget()
        for entity, values in _rows(self._image.client_quotas):
            is_wanted = wanted.matches(entity)
            if is_wanted:
                entries.append(_entry(entity, values))
            if budget.spend(ITEM if is_wanted else LOOK):
                yield
        return DescribeClientQuotasResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            error_message=None,
            entries=tuple(entries),
        )

    # SCRAM credentials

    def describe_user_scram_credentials(
        self, request: DescribeUserScramCredentialsRequest, _context: RequestContext
    ) -> ControlResult:
        """DescribeUserScramCredentials 0, on any controller: each user succeeds or fails alone."""
        return ControlResult(steps=self._describing_users(request))

    def _describing_users(
        self, request: DescribeUserScramCredentialsRequest
    ) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
        budget = StepBudget()
        repeated: dict[str, bool] = {}
        if request.users:
            for user in request.users:
                repeated[user.name] = user.name in repeated
        else:
            for _, name in tuple(self._image.scram):
                repeated[name] = False
                if budget.spend(LOOK):
                    yield
        results = []
        for name, is_repeated in repeated.items():
            results.append(self._user(name, is_repeated=is_repeated))
            if budget.spend(ITEM):
                yield
        return DescribeUserScramCredentialsResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            error_message=None,
            results=tuple(results),
        )

    def _user(self, name: str, *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
        infos = tuple(
            CredentialInfo(mechanism=int(mechanism), iterations=credential.iterations)
            for mechanism in _MECHANISMS
            if (credential := self._image.scram.get((mechanism, name))) is not None
        )
        error_code, message = ErrorCode.none, None
        if is_repeated:
            error_code = ErrorCode.duplicate_resource
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif not infos:
            error_code = ErrorCode.resource_not_found
            message = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=error_code,
            error_message=message,
            credential_infos=infos if error_code is ErrorCode.none else (),
        )

    # Delegation tokens

    def describe_delegation_token(
        self, request: DescribeDelegationTokenRequest, context: RequestContext
    ) -> ControlResult:
        """DescribeDelegationToken 1-3, on any controller: the requested tokens that the sender may see."""
        error_code = ErrorCode.none
        if not may_request_tokens(context):
            error_code = ErrorCode.delegation_token_request_not_allowed
        elif self._secret is None:
            error_code = ErrorCode.delegation_token_auth_disabled
        if error_code is not ErrorCode.none:
            return ControlResult(response=_tokens(error_code, ()))
        return ControlResult(steps=self._describing_tokens(request, context))

    def _describing_tokens(
        self, request: DescribeDelegationTokenRequest, context: RequestContext
    ) -> Generator[None, None, DescribeDelegationTokenResponse]:
        owners = None
        if request.owners is not None:
            owners = frozenset(f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners)
        described = []
        budget = StepBudget()
        rows = () if owners == frozenset() else _rows(self._image.delegation_tokens)
        for _, token in rows:
            work = LOOK
            if owners is None or not owners.isdisjoint(_principals(token)):
                work = ITEM
                if _is_visible(token, context):
                    described.append(self._token(token))
                    work += HMAC_WORK
            if budget.spend(work):
                yield
        return _tokens(ErrorCode.none, tuple(described))

    def _token(self, token: "DelegationToken") -> DescribedDelegationToken:
        assert self._secret is not None
        owner_type, _, owner_name = token.owner.partition(":")
        requester_type, _, requester_name = token.requester.partition(":")
        renewers = (renewer.partition(":") for renewer in token.renewers)
        return DescribedDelegationToken(
            principal_type=owner_type,
            principal_name=owner_name,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester_name,
            issue_timestamp=token.issue_timestamp_ms,
            expiry_timestamp=token.expiration_timestamp_ms,
            max_timestamp=token.max_timestamp_ms,
            token_id=token.token_id,
            hmac=token_hmac(self._secret, token.token_id),
            renewers=tuple(
                DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
                for kind, _, name in renewers
            ),
        )


class _Filter:
    """The filter of a DescribeClientQuotasRequest."""

    def __init__(self, request: DescribeClientQuotasRequest) -> None:
        self._named: dict[str, str | None] = {}
        self._any: set[str] = set()
        self._is_strict = request.strict
        for component in request.components:
            self._add(component)
        types = self._named.keys() | self._any
        if IP in types and types & {USER, CLIENT_ID}:
            raise invalid_request(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )

    def _add(self, component: ComponentData) -> None:
        kind, name = component.entity_type, component.match
        if not kind:
            raise invalid_request("Invalid empty entity type.")
        if kind in self._named or kind in self._any:
            raise invalid_request(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (IP, USER, CLIENT_ID):
            raise ControlError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        match_type = _MATCH_TYPES.get(component.match_type)
        if match_type is None:
            raise invalid_request(f"Unknown match type {component.match_type}")
        if component.match_type == _EXACT and name is None:
            raise invalid_request(f"Request specified {match_type}, but set match string to null.")
        if component.match_type != _EXACT and name is not None:
            raise invalid_request(f"Request specified {match_type}, but also specified a match string.")
        if component.match_type == _SPECIFIED:
            self._any.add(kind)
        else:
            self._named[kind] = name

    def matches(self, entity: "QuotaEntity") -> bool:
        """Whether an entity matches."""
        parts = dict(entity)
        if self._is_strict and len(parts) != len(self._named) + len(self._any):
            return False
        return self._any <= parts.keys() and self._named.items() <= parts.items()


def _rows(table: Mapping[K, V]) -> Iterator[tuple[K, V]]:
    """The present rows, each as it is when it is read; without those that are removed before."""
    for key in tuple(table):
        row = table.get(key)
        if row is not None:
            yield key, row


def _entry(entity: "QuotaEntity", values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
        values=tuple(ValueData(key=key, value=value) for key, value in values.items()),
    )


def _principals(token: "DelegationToken") -> tuple[str, ...]:
    """The owners of a token for a filter (TokenInformation.ownerOrRenewer)."""
    return token.owner, token.requester, *token.renewers


def _is_visible(token: "DelegationToken", context: RequestContext) -> bool:
    """Whether the sender may see a token, by ownership or by an ACL (DelegationTokenManager.filterToken)."""
    access = context.access
    return (
        context.principal in _principals(token)
        or access.allows(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or access.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _tokens(
    error_code: ErrorCode, tokens: tuple[DescribedDelegationToken, ...]
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error_code, tokens=tokens, throttle_time=timedelta(0))
