"""Passwords of nodes change user by user: a restarted node and one that still runs must let each other in. Pure.

With PLAIN, a node knows one password of a user, and so does Kafka with SCRAM for each mechanism. So another password
is brought in with another user: first all nodes let that user in, then nodes log in as it, then the former user is
removed. A change that skips a step is refused, at controllers and between brokers.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, Role
from quorate_operator.planning.steps import Plan, Refusal, StartNode, StopNode

LOGIN: Final = "login"
"""The part of a node's revision that has a `Login`."""
BROKER_LOGIN: Final = "broker-login"
"""The part of a broker's revision that has a `BrokerLogin`."""
LOGINS: Final = frozenset({LOGIN, BROKER_LOGIN})
CODE: Final = "UnsafeLogin"
PLAIN: Final = "PLAIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The user of a node at controllers, and by user the fingerprints of the passwords that it knows.

    A controller accepts these users.
    """

    user: str
    users: Mapping[str, str]

    def as_text(self) -> str:
        return _text_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLogin:
    """The user of a broker at the brokers of its pool, and by user the fingerprints of the passwords that it knows.

    With PLAIN it accepts these users. With SCRAM, it has its own password alone, and Kafka has those of users.
    """

    mechanism: str
    secret: str
    user: str
    users: Mapping[str, str]

    def as_text(self) -> str:
        return _text_of(self)


def _text_of(login: Login | BrokerLogin) -> str:
    return json.dumps(asdict(login), sort_keys=True, separators=(",", ":"))


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
    fault = _fault_between_brokers(desired, running)
    if fault is None and len(asked) <= 1:
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


def _fault_between_brokers(desired: DesiredCluster, running: Mapping[int, Mapping[str, str]]) -> str | None:
    """Return why brokers of a pool could not fetch from each other in the middle of a roll."""
    pools = {node.node_id: node.pool for node in desired.of_role(Role.BROKER)}
    logins = {node.pool: _broker_login_of(node.revision) for node in desired.of_role(Role.BROKER)}
    for node_id, revision in sorted(running.items()):
        has, wanted = _broker_login_of(revision), logins.get(pools.get(node_id, ""))
        if has is None or wanted is None:
            continue
        fault = _fault_between(has, wanted, node_id)
        if fault is not None:
            return f"KafkaBroker {pools[node_id]}: spec.listeners[0].sasl.{fault}"
    return None


def _fault_between(has: BrokerLogin, wanted: BrokerLogin, node_id: int) -> str | None:
    """`has` is what the running broker of this id was started with. Passwords of two Secrets can't be compared."""
    if (has.mechanism, has.secret) != (wanted.mechanism, wanted.secret):
        return None
    is_plain = wanted.mechanism == PLAIN
    if (is_plain or has.user == wanted.user) and wanted.users.get(has.user) != has.users.get(has.user):
        first = (
            "add another user to the Secret, set username to it when all brokers have restarted"
            if is_plain
            else f"create another user in Kafka for {wanted.mechanism}, add it to the Secret, set username to it"
        )
        return (
            f"secretName: the password of {has.user!r} can't be changed or removed while brokers log in as it, as "
            f"{node_id} does: {first}, and remove {has.user!r} when all brokers have"
            f"{'' if is_plain else ' restarted'}"
        )
    if is_plain and has.users.get(wanted.user) != wanted.users.get(wanted.user):
        return (
            f"username: {wanted.user!r}: broker {node_id} does not let this user in yet: add it to the Secret while "
            f"username is {has.user!r}, and set username when all brokers have restarted"
        )
    return None


def _login_of(revision: Mapping[str, str]) -> Login | None:
    text = revision.get(LOGIN)
    return None if text is None else Login(**json.loads(text))


def _broker_login_of(revision: Mapping[str, str]) -> BrokerLogin | None:
    text = revision.get(BROKER_LOGIN)
    return None if text is None else BrokerLogin(**json.loads(text))
