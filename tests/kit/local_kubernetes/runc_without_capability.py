"""runc for machines where CAP_SYS_RESOURCE is missing: no container gets it, and no oom score is lowered.

Arguments: the real runc, and what it was called with. Imports next to nothing, since it runs for every command in a
container.
"""

import json
import os
import sys

CAPABILITY = "CAP_SYS_RESOURCE"


def main() -> None:
    """Rewrite the bundle, or the process of an `exec`, and become runc."""
    runc, *arguments = sys.argv[1:]
    if "create" in arguments or "run" in arguments:
        bundle = _option(arguments, "--bundle", "-b") or "."
        _rewrite(f"{bundle}/config.json", "process")
    elif "exec" in arguments and (path := _option(arguments, "--process", "-p")):
        _rewrite(path, None)
    os.execv(runc, [runc, *arguments])


def _option(arguments: list[str], *names: str) -> str | None:
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            return value if equals else arguments[index + 1]
    return None


def _rewrite(path: str, key: str | None) -> None:
    with open(path) as file:  # noqa: PTH123 - pathlib takes longer to load than all the rest
        content = json.load(file)
    process = content.get(key, {}) if key else content
    for name, granted in (process.get("capabilities") or {}).items():
        process["capabilities"][name] = [each for each in granted or [] if each != CAPABILITY]
    if (process.get("oomScoreAdj") or 0) < 0:
        process["oomScoreAdj"] = 0
    with open(path, "w") as file:  # noqa: PTH123 - as above
        json.dump(content, file)


if __name__ == "__main__":
    main()
