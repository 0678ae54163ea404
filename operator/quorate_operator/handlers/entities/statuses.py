"""The status of a topic or user: conditions as kstatus defines them, and what is left to do. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quorate_admin.errors import AdminError, ServerError

from quorate_operator.entities.plan import EntityPlan
from quorate_operator.handlers.shared import fault_message
from quorate_operator.handlers.statuses import Condition, conditions_of
from quorate_operator.models.entities import CHANGES_MAX
from quorate_operator.planning.planner import PAUSED

AS_DESIRED = "AsDesired"
CHANGING = "Changing"
WAITING = "Waiting"
OPERATOR_FAULT = "OperatorFault"
API_SERVER = "ApiServer"
UNREACHABLE = "Unreachable"
CHANGE_LENGTH_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a resource was not observed, or a change was not made. `is_retried`: it may pass without intervention."""

    code: str
    message: str
    is_retried: bool

    @property
    def is_fault(self) -> bool:
        """Whether the operator made a mistake."""
        return self.code == OPERATOR_FAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityResult:
    """The result of one pass over a resource; `plan` is None if it could not be observed."""

    plan: EntityPlan | None = None
    failure: Failure | None = None
    is_paused: bool = False
    cluster_id: str | None = None


def failure_of(error: Exception, *, is_first: bool) -> Failure:
    """Return an error as a status reports it. `is_first`: the previous pass did not fail."""
    if not isinstance(error, AdminError):
        return Failure(code=OPERATOR_FAULT, message=fault_message(error), is_retried=is_first)
    if not isinstance(error, ServerError):
        return Failure(code=UNREACHABLE, message=str(error), is_retried=True)
    code = "".join(part.capitalize() for part in error.error_code.name.split("_"))
    return Failure(code=code, message=str(error), is_retried=error.error_code.retriable or is_first)


def entity_status(result: EntityResult, generation: int) -> dict[str, Any]:
    """Return the status without times of conditions. Without a plan, the fields specific to its kind stay."""
    conditions = [_ready(result), _reconciling(result), _stalled(result)]
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions_of(conditions, generation),
    }
    plan = result.plan
    if plan is None:
        return status
    reported = [change.text[:CHANGE_LENGTH_MAX] for change in plan.changes[:CHANGES_MAX]]
    return {**status, **plan.status, "clusterId": result.cluster_id, "changes": reported or None}


def is_ready(status: Mapping[str, Any], generation: int) -> bool:
    """Whether the status says that this generation of the resource is ready."""
    return status.get("observedGeneration") == generation and any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )


def _due(plan: EntityPlan) -> tuple[str, str]:
    """Return a reason and message of the remaining work; empty texts if none remains."""
    if plan.changes:
        return plan.state or CHANGING, "; ".join(change.text for change in plan.changes)
    return (plan.state or WAITING, f"waits for {'; '.join(plan.waits)}") if plan.waits else ("", "")


def _ready(result: EntityResult) -> Condition:
    left = _blocked(result) or _left(result)
    if left is not None:
        return Condition("Ready", False, *left)
    return Condition("Ready", True, _settled(result), "")


def _reconciling(result: EntityResult) -> Condition:
    failure, left = result.failure, _left(result)
    if failure is not None:
        return Condition("Reconciling", failure.is_retried, failure.code, failure.message)
    if result.is_paused:
        return Condition("Reconciling", False, PAUSED, "paused: the operator changes nothing")
    if left is not None:
        return Condition("Reconciling", True, *left)
    return Condition("Reconciling", False, _settled(result), "")


def _settled(result: EntityResult) -> str:
    return (result.plan.state if result.plan is not None else None) or AS_DESIRED


def _stalled(result: EntityResult) -> Condition:
    blocked = _blocked(result)
    if blocked is None or (result.failure is not None and result.failure.is_retried):
        return Condition("Stalled", False, "NothingRefused", "")
    return Condition("Stalled", True, *blocked)


def _blocked(result: EntityResult) -> tuple[str, str] | None:
    if result.failure is not None:
        return result.failure.code, result.failure.message
    refusals = result.plan.refusals if result.plan is not None else ()
    return (refusals[0].code, "; ".join(refusal.message for refusal in refusals)) if refusals else None


def _left(result: EntityResult) -> tuple[str, str] | None:
    code, message = _due(result.plan) if result.plan is not None else ("", "")
    return (code, message) if code else None
