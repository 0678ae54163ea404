"""Passwords of nodes change user by user: a restarted node and one that still runs must let each other in. Pure.

With PLAIN, a controller knows one password of a user. So another password is brought in with another user: first all
controllers let that user in, then nodes log in as it, then the former user is removed. A change that skips a step is
refused.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, Role
from quorate_operator.planning.steps import Plan, Refusal, StartNode, StopNode

LOGIN: Final = "login"
"""The part of a node's revision that has a `Login`."""
CODE: Final = "UnsafeLogin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The user of a node at controllers, and by user the fingerprints of the passwords that it knows.

    A controller accepts these users.
    """

    user: str
    users: Mapping[str, str]

    def as_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def with_logins(
    plan: Plan,
    desired: DesiredCluster,
    running: Mapping[int, Mapping[str, str]],
    listeners: Mapping[int, str] | None = None,
) -> Plan:
    """Return the plan without starts and restarts after which nodes could not log in to each other.

    It has the refusal in their place. `running` are the revisions of the nodes that run, and `listeners` those of the
    controllers by which they connect, as far as they are known: logins at different listeners need not agree.
    """
    if not desired.running or desired.lifecycle is not Lifecycle.RUNNING:
        return plan
    of_controllers = {node.node_id: node.controllers_listener for node in desired.nodes}
    asked = frozenset(of_controllers.values())
    fault = None
    if len(asked) <= 1:
        known = listeners or {}
        same = {node_id: of for node_id, of in running.items() if known.get(node_id) in (None, *asked)}
        fault = _fault(desired, same)
    if fault is None:
        return plan
    kept = tuple(step for step in plan.steps if not isinstance(step, StartNode | StopNode))
    return replace(plan, steps=kept, refusals=(*plan.refusals, Refusal(CODE, fault)))


def _fault(desired: DesiredCluster, running: Mapping[int, Mapping[str, str]]) -> str | None:
    controllers = frozenset(node.node_id for node in desired.of_role(Role.CONTROLLER))
    wanted = _login_of(next(node.revision for node in desired.of_role(Role.CONTROLLER)))
    field = f"KafkaController {desired.name}: spec.listeners[0].sasl"
    for node_id, revision in sorted(running.items()):
        has = _login_of(revision)
        if has is None or wanted is None:
            continue
        if wanted.users.get(has.user) != has.users.get(has.user):
            return (
                f"{field}.secretName: the password of {has.user!r} can't be changed or removed while nodes log in "
                f"as it, as {node_id} does: add another user to the Secret, set username to it when all controllers "
                f"have restarted, and remove {has.user!r} when all nodes have"
            )
        if node_id in controllers and has.users.get(wanted.user) != wanted.users.get(wanted.user):
            return (
                f"{field}.username: {wanted.user!r}: controller {node_id} does not let this user in yet: add it to "
                f"the Secret while username is {has.user!r}, and set username when all controllers have restarted"
            )
    return None


def _login_of(revision: Mapping[str, str]) -> Login | None:
    text = revision.get(LOGIN)
    return None if text is None else Login(**json.loads(text))
