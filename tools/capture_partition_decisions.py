"""Ask Kafka how it changes and places partitions in made-up situations, and keep the answers as golden files.

PartitionDecisions.java, beside this file, runs against Kafka's jars (``java`` in source-file mode).

    python tools/capture_partition_decisions.py --jars ~/kafka/libs
"""

import argparse
import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

TOOLS = Path(__file__).resolve().parent
GOLDEN = TOOLS.parent / "tests" / "golden" / "control"
METADATA_VERSIONS = (7, 11, 12, 17, 22, 23, 30)
MIGRATING, UNASSIGNED, LOST = 0, 1, 2


def make_change(rng: Random) -> dict[str, Any]:
    """A partition in some state that a cluster can come to, and something that is wanted of it."""
    metadata_version = rng.choice(METADATA_VERSIONS)
    elr_enabled = metadata_version >= 23 and rng.random() < 0.6
    replicas = rng.sample(range(1, 8), rng.randint(1, 5))
    isr = rng.sample(replicas, rng.randint(0 if elr_enabled else 1, len(replicas)))
    outside = [replica for replica in replicas if replica not in isr]
    leader = rng.choice([*isr, *([-1] if rng.random() < 0.5 else [])]) if isr else -1
    partition = {
        "replicas": replicas,
        "directories": make_directories(rng, len(replicas))
        if metadata_version >= 17
        else [0] * len(replicas),
        "isr": isr,
        "removing_replicas": [],
        "adding_replicas": [],
        "elr": sorted(rng.sample(outside, rng.randint(0, len(outside)))) if elr_enabled else [],
        "last_known_elr": [rng.choice(replicas)]
        if elr_enabled and (leader < 0 or rng.random() < 0.4)
        else [],
        "leader": leader,
        "leader_recovery_state": int(len(isr) == 1 and rng.random() < 0.2),
    }
    if rng.random() < 0.3:
        partition["removing_replicas"] = rng.sample(replicas, rng.randint(0, len(replicas) - 1))
        rest = [replica for replica in replicas if replica not in partition["removing_replicas"]]
        partition["adding_replicas"] = rng.sample(rest, rng.randint(0, len(rest)))
    may_lead = set(rng.sample(replicas, rng.randint(0, len(replicas))))
    return {
        "metadata_version": metadata_version,
        "elr_enabled": elr_enabled,
        "min_insync_replicas": rng.randint(1, len(replicas)),
        "partition": partition,
        "wanted": make_wanted(rng, partition, may_lead),
        "may_lead": sorted(may_lead),
    }


def make_wanted(rng: Random, partition: dict[str, Any], may_lead: set[int]) -> dict[str, Any]:
    """A broker that goes (``may_lead`` changes then), a leader that alters its ISR, or just an election."""
    wanted: dict[str, Any] = {"election": rng.choice(("ONLINE", "UNCLEAN")), "directories": {}}
    kind = rng.choice(("leave", "alter", "elect", "move"))
    if kind == "leave":
        broker = rng.choice(partition["replicas"])
        may_lead.discard(broker)
        wanted["isr"] = [replica for replica in partition["isr"] if replica != broker]
        if rng.random() < 0.3:
            wanted["lost_replica"] = broker
    elif kind == "alter" and partition["leader"] >= 0:
        leader = partition["leader"]
        may_lead.add(leader)
        others = [replica for replica in partition["replicas"] if replica != leader]
        wanted["isr"] = rng.sample([leader], 1) + rng.sample(others, rng.randint(0, len(others)))
        wanted["leader_recovery_state"] = 0 if len(wanted["isr"]) > 1 else partition["leader_recovery_state"]
    elif kind == "move":
        broker = rng.choice(partition["replicas"])
        wanted["directories"] = {str(broker): rng.choice((LOST, 100 + broker))}
    else:
        wanted["election"] = rng.choice(("PREFERRED", "ONLINE", "UNCLEAN"))
    return wanted


def make_reassignment(rng: Random) -> dict[str, Any]:
    """A partition, reassigned or not, that is to get other replicas, or those of before."""
    case = make_change(rng)
    partition = case["partition"]
    wanted: dict[str, Any] = {"election": "ONLINE", "directories": {}}
    if partition["removing_replicas"] or partition["adding_replicas"]:
        kept = [
            broker_id for broker_id in partition["replicas"] if broker_id not in partition["adding_replicas"]
        ]
        if kept and rng.random() < 0.5:
            is_unclean = rng.random() < 0.5
            wanted |= {
                "cancel": True,
                "unclean": is_unclean,
                "election": "UNCLEAN" if is_unclean else "ONLINE",
            }
    if "cancel" not in wanted:
        wanted["reassign"] = rng.sample(range(1, 9), rng.randint(1, 5))
        if rng.random() < 0.3:
            wanted["reassign"] = rng.sample(partition["replicas"], rng.randint(1, len(partition["replicas"])))
    return {**case, "wanted": wanted}


def make_directories(rng: Random, count: int) -> list[int]:
    if rng.random() < 0.2:
        return [MIGRATING] * count
    return [rng.choice((UNASSIGNED, LOST, 100, 101, 102)) for _ in range(count)]


def make_placement(rng: Random) -> dict[str, Any]:
    """Brokers in racks, some of them fenced, at least one not.

    No more partitions than unfenced brokers: after that Kafka mixes up its turns now and then, and some
    brokers get less than their share.
    """
    racks = rng.choice(([None], ["a", "b"], ["a", "b", "c"], [None, "a"]))
    brokers = [[broker, rng.choice(racks), rng.random() < 0.25] for broker in range(rng.randint(1, 9))]
    brokers[rng.randrange(len(brokers))][2] = False
    return {
        "brokers": brokers,
        "num_partitions": rng.randint(1, sum(not fenced for _, _, fenced in brokers)),
        "replication_factor": rng.randint(1, len(brokers)),
    }


def ask(jars: Path, java: str, cases: list[dict[str, Any]]) -> list[Any]:
    """Kafka's response to each case."""
    command = [java, "-cp", str(jars / "*"), str(TOOLS / "PartitionDecisions.java")]
    printed = subprocess.run(
        command,
        input="".join(f"{json.dumps(case)}\n" for case in cases),
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return [json.loads(line) for line in printed.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jars", type=Path, required=True, help="directory of Kafka's jars")
    parser.add_argument("--java", default="java")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--to", type=Path, default=GOLDEN)
    options = parser.parse_args()
    rng = Random(options.seed)
    options.to.mkdir(parents=True, exist_ok=True)
    for name, make, number in (
        ("partition_changes.json", make_change, options.cases),
        ("replica_placements.json", make_placement, options.cases // 4),
        ("reassignments.json", make_reassignment, options.cases),
    ):
        cases = [make(rng) for _ in range(number)]
        responses = ask(options.jars, options.java, cases)
        lines = [
            json.dumps({**case, "answer": response}) for case, response in zip(cases, responses, strict=True)
        ]
        (options.to / name).write_text("[\n" + ",\n".join(lines) + "\n]\n")
        print(f"{number} cases in {options.to / name}")


if __name__ == "__main__":
    main()
