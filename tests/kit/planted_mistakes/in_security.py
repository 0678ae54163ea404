"""Mistakes in authorization and authentication."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_CONTROLLER: Final = "controller_node/quorate_controller"
_TESTS: Final = "unit/controller/security"

MISTAKES: Final = (
    Mistake(
        name="a denial of a resource's name is found after a permission of its prefix",
        file=f"{_CONTROLLER}/security/authorizer.py",
        edits=(
            (
                "                allowing = acl\n",
                "                return Decision(is_allowed=True, acl=acl)\n",
            ),
        ),
        harm="a permission wins over a denial",
        tests=(f"{_TESTS}/test_authorizer.py",),
    ),
    Mistake(
        name="a denial implies others",
        file=f"{_CONTROLLER}/security/authorizer.py",
        edits=(
            (
                "_IMPLYING.get(operation, ()) if acl.permission_type == AclPermissionType.ALLOW else ()",
                "_IMPLYING.get(operation, ())",
            ),
        ),
        harm="a denial of READ denies DESCRIBE, otherwise than in Kafka",
        tests=(f"{_TESTS}/test_authorizer.py",),
    ),
    Mistake(
        name="decisions are kept when ACLs change",
        file=f"{_CONTROLLER}/security/authorizer.py",
        edits=(
            (
                "if changes != self._known_of or len(self._known) >= KNOWN_MAX:",
                "if len(self._known) >= KNOWN_MAX:",
            ),
        ),
        harm="a permission that was withdrawn stays",
        tests=(f"{_TESTS}/test_authorizer.py",),
    ),
    Mistake(
        name="a prefix that is the whole name",
        file=f"{_CONTROLLER}/security/authorizer.py",
        edits=(("            if length <= len(name):\n", "            if length < len(name):\n"),),
        harm="a denial by prefix does not hold for the resource of that very name",
        tests=(f"{_TESTS}/test_authorizer.py",),
    ),
    Mistake(
        name="decisions before the ACLs are loaded",
        file=f"{_CONTROLLER}/security/authorizer.py",
        edits=(
            (
                "            return _SUPER_USER\n        self.check_ready(principal)\n",
                "            return _SUPER_USER\n",
            ),
        ),
        harm="with allow.everyone.if.no.acl.found, everybody is a super user for a moment after a start",
        tests=(f"{_TESTS}/test_authorizer.py",),
    ),
    Mistake(
        name="an ACL that is stored twice is gone with one of its records",
        file=f"{_CONTROLLER}/security/authorizer.py",
        edits=(("counts[acl] = counts.get(acl, 0) + by", "counts[acl] = max(0, by)"),),
        harm="a denial does not hold although a record of it is left",
        tests=(f"{_TESTS}/test_authorizer.py",),
    ),
    Mistake(
        name="PLAIN with the authorization id of another",
        file=f"{_CONTROLLER}/security/sasl.py",
        edits=(
            (
                '        if authorization_id not in ("", name):\n',
                "        if authorization_id and not name:\n",
            ),
        ),
        harm="a login in another's name is accepted, otherwise than in Kafka",
        tests=(f"{_TESTS}/test_sasl.py",),
    ),
    Mistake(
        name="SCRAM without the server's nonce",
        file=f"{_CONTROLLER}/security/sasl.py",
        edits=(
            (
                'if match is None or match["nonce"] != challenge.nonce:',
                "if match is None or not challenge.nonce:",
            ),
        ),
        harm="a final message with another nonce is accepted",
        tests=(f"{_TESTS}/test_sasl.py",),
    ),
    Mistake(
        name="the principal changes when a client authenticates again",
        file=f"{_CONTROLLER}/server/sasl.py",
        edits=(
            (
                "if former is not None and str(former) != str(principal):",
                "if former is not None and former.type != principal.type:",
            ),
        ),
        harm="a session that was authorized as one user goes on as another",
        tests=("unit/controller/server/test_sasl.py",),
    ),
    Mistake(
        name="a token's life does not bound its session",
        file=f"{_CONTROLLER}/server/sasl.py",
        edits=(
            (
                "        if client.expires_at_ms is not None:\n",
                "        if client.expires_at_ms is not None and limits_ms:\n",
            ),
        ),
        harm="a session with a delegation token never ends",
        tests=("unit/controller/server/test_sasl.py",),
    ),
    Mistake(
        name="each address of a network guesses anew",
        file="protocol/quorate_protocol/counted_address.py",
        edits=(("return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False))", "return host"),),
        harm="a host with IPv6 has endless guesses",
        tests=("unit/controller/security/test_guesses.py",),
    ),
    Mistake(
        name="a guess more than there are",
        file=f"{_CONTROLLER}/security/guesses.py",
        edits=(("budget.at(now_s) >= 1.0", "budget.at(now_s) > 0.0"),),
        harm="an attacker guesses at once whatever has refilled of the budget",
        tests=("unit/controller/security/test_guesses.py",),
    ),
    Mistake(
        name="wrong passwords of SCRAM are no guesses",
        file=f"{_CONTROLLER}/security/sasl.py",
        edits=(
            (
                "raise SaslRefusalError(challenge.reason, is_guess=True)",
                "raise SaslRefusalError(challenge.reason)",
            ),
        ),
        harm="guesses with SCRAM are not bounded",
        tests=(f"{_TESTS}/test_sasl.py",),
    ),
    Mistake(
        name="a challenge that began in time may be answered at any time",
        file=f"{_CONTROLLER}/security/sasl.py",
        edits=(
            (
                "        if not self._may_guess(self.claimed_name):\n            raise LoginHeldBackError\n",
                "",
            ),
        ),
        harm="an attacker opens many challenges while it may guess, and guesses with all of them",
        tests=(f"{_TESTS}/test_sasl.py",),
    ),
    Mistake(
        name="a user that does not exist has another number of iterations",
        file=f"{_CONTROLLER}/security/sasl.py",
        edits=(
            ("usual = self._credentials.usual_iterations(self._mechanism)", "usual = SCRAM_ITERATIONS_MIN"),
        ),
        harm="a stranger finds out which users exist",
        tests=(f"{_TESTS}/test_sasl.py",),
    ),
)
