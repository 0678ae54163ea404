"""`python -m kit.hostile.attacker ATTACK VICTIM SIZE SECONDS`: runs one attack, prints what it did as JSON."""

import asyncio
import json
import resource
import sys

from kit.hostile.attacks import ATTACKS, Attacker
from kit.hostile.victim import Victim


def main() -> None:
    """Attack."""
    name, victim, size, seconds = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    attacker = Attacker(Victim.from_json(victim), float(seconds))

    async def attack() -> None:
        # TLS errors of closed connections are no news here.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        await ATTACKS[name].run(attacker, int(size))

    asyncio.run(attack())
    sys.stdout.write(json.dumps(attacker.did))


if __name__ == "__main__":
    main()
