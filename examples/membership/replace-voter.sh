#!/usr/bin/env bash
# Makes a controller that lost its disk a voter again: its new directory replaces the lost one in the voter set.
#
#   replace-voter.sh CONTROLLERS CONFIG
#
# CONTROLLERS: host:port,... of some controllers. CONFIG: the controller's own configuration. Run it on the machine of the
# controller, which is formatted with --no-initial-controllers and runs. See docs/operations/by-hand.md, "Replace a lost disk".
set -euo pipefail

lag_max=100
wait_s=300

die() {
    echo "replace-voter: $*" >&2
    exit 1
}

(($# == 2)) || die "two arguments are needed: CONTROLLERS and CONFIG"
controllers=$1
config=$2

property() { # NAME FILE: the value of a property, the last one counts
    sed -n "s/^$1=//p" "$2" | tail -n 1
}

quorum() { # SUBCOMMAND...
    quorate metadata-quorum --bootstrap-controller "$controllers" "$@"
}

node=$(property node.id "$config")
[[ -n $node ]] || die "$config has no node.id"
directory=$(property metadata.log.dir "$config")
[[ -n $directory ]] || directory=$(property log.dirs "$config" | cut -d, -f1)
[[ -f $directory/meta.properties ]] || die "$directory is not formatted"
new=$(property directory.id "$directory/meta.properties")

# Rows of the quorum's replicas as "nodeId directoryId lag status", separated by blanks.
replicas() {
    quorum describe --replication -o json | python3 -c '
import json, sys
for one in json.load(sys.stdin):
    print(one["nodeId"], one["directoryId"], one["lag"], one["status"])'
}

old=$(replicas | awk -v node="$node" '$1 == node && $4 != "Observer" { print $2 }')
[[ $old != "$new" ]] || die "controller $node is a voter with this directory already; there is nothing to do"

echo "waiting for controller $node to follow the log with directory $new"
deadline=$((SECONDS + wait_s))
until replicas | awk -v node="$node" -v directory="$new" -v lag="$lag_max" \
    '$1 == node && $2 == directory && $4 == "Observer" && $3 <= lag { found = 1 } END { exit !found }'; do
    ((SECONDS < deadline)) || die "it does not follow, or has a lag above $lag_max; does it run?"
    sleep 1
done

if [[ -n $old ]]; then
    quorum remove-controller --controller-id "$node" --controller-directory-id="$old"
fi
quorum --command-config "$config" add-controller
