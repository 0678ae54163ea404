"""Python imports this by itself from PYTHONPATH: names of Services lead where a file says, as DNS would have it.

Controllers run on asyncio's own loop then: uvloop asks the C library for names, where nothing can be put in between.
"""

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import uvloop

NAMES_FILE = "NAMES_OF_SERVICES"

_getaddrinfo = socket.getaddrinfo


def _resolved(host: Any, *args: Any, **kwargs: Any) -> Any:
    """As `socket.getaddrinfo`; the name of a missing Service is unknown."""
    name = host.decode() if isinstance(host, bytes) else host
    if isinstance(name, str) and name.endswith(".svc"):
        names = json.loads(Path(os.environ[NAMES_FILE]).read_text())
        if name not in names:
            raise socket.gaierror(socket.EAI_NONAME, f"no Service has the name {name}")
        host = names[name]
    return _getaddrinfo(host, *args, **kwargs)


if NAMES_FILE in os.environ:
    socket.getaddrinfo = _resolved
    uvloop.run = asyncio.run
