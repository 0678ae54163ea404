"""A controller's registration as text and as JSON."""

from typing import Any

from quorate_admin.types.cluster import ControllerRegistration
from quorate_protocol.uuids import uuid_to_text


def registration_text(registration: ControllerRegistration, *, dry_run: bool) -> str:
    """What was sent for a controller, or would be."""
    done = "DRY RUN of refreshing" if dry_run else "Refreshed"
    lines = [
        f"{done} the registration of controller {registration.controller_id}:\n",
        f"  incarnation id: {uuid_to_text(registration.incarnation_id)}\n",
        f"  listeners: {', '.join(one.name for one in registration.listeners) or 'none'}\n",
    ]
    lines += [f"  {name}: {low} to {high}\n" for name, (low, high) in sorted(registration.features.items())]
    return "".join(lines)


def registration_json(registration: ControllerRegistration, *, dry_run: bool) -> dict[str, Any]:
    """The same for programs."""
    return {
        "dryRun": dry_run,
        "controllerId": registration.controller_id,
        "incarnationId": uuid_to_text(registration.incarnation_id),
        "listeners": [
            {
                "name": one.name,
                "host": one.host,
                "port": one.port,
                "securityProtocol": one.security_protocol,
            }
            for one in registration.listeners
        ],
        "features": {
            name: {"minSupportedVersion": low, "maxSupportedVersion": high}
            for name, (low, high) in sorted(registration.features.items())
        },
    }
