"""kafka-metadata-shell, on a copy of a controller's log.

It begins with its commands before it has read the whole file, and sometimes waits for ever for what it has read
already (waitUntilCaughtUp), so that it too has to be asked again at times. It reads only levels that its own release
knows: the cluster "shell" is at one of them.
"""

from kit.parity.harness import Case, Ends, replaced

LOCAL = (
    replaced(
        r"^( *)([0-9a-f]{16}|unknown)$", r"\1<commit>", "the commit of Kafka's build is not one of ours"
    ),
    replaced(r"^( *)\d+\.\d+\.\d+$", r"\1<version>", "each tells its own version"),
)

COMMANDS = (
    *(
        "ls",
        "ls /",
        "ls /image",
        "ls /image/cluster /image/topics",
        "pwd",
        "help",
        "man cat",
        "man ls",
    ),
    *(
        "tree /image/features",
        "tree /image/topics",
        "find /image/cluster",
        "cat /image/features/metadataVersion",
    ),
    *(
        "cat /image/provenance",
        "cat /local/commitId",
        "cat /local/version",
        "ls /image/topics/byName",
        "tree /image/configs",
    ),
    *("tree /image/scram", "find /image/acls", "cat /image/cluster/brokers/0", "ls /image/*"),
    *("find / byName", "cat /no/such", "cat /image", "ls /no/such", "cd /no/such", "man nothing", "sing"),
)

CASES = (
    *(
        Case(
            name=command.replace(" ", "_").replace("/", "."),
            run=f"--snapshot $log {command}",
            at=["server"],
            clusters=["shell"],
            normalise=LOCAL,
        )
        for command in COMMANDS
    ),
    Case(name="in-short", run="-s $log ls /", at=["server"], clusters=["shell"], reads=True),
    Case(
        name="as-process", run="--snapshot $log ls /image", at=["server"], clusters=["shell"], as_process=True
    ),
    Case(
        name="checkpoint", run="--snapshot $checkpoint ls /image/features", at=["server"], clusters=["shell"]
    ),
    Case(
        name="checkpoint-all",
        normalise=LOCAL,
        run="--snapshot $checkpoint tree /",
        at=["server"],
        clusters=["shell"],
    ),
    Case(
        name="no-file", run="--snapshot /no/such.log ls", ends=Ends.FAILED, says="/no/such.log", at=["server"]
    ),
    Case(name="nothing", run="", ends=Ends.USAGE, at=["server"]),
    Case(name="help_of_the_tool", run=["--help", "-h"], ends=Ends.HELP, at=["server"]),
)
