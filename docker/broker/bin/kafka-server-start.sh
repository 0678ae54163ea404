#!/bin/sh
# Starts a broker with a file of properties: kafka-server-start.sh server.properties [--override name=value]...
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 server.properties [--override name=value]..." >&2
    exit 1
fi
export KAFKA_HEAP_OPTS="${KAFKA_HEAP_OPTS:--Xms1g -Xmx1g}"
export KAFKA_LOG_LEVEL="${KAFKA_LOG_LEVEL:-INFO}"
exec "$(dirname "$0")/kafka-run-class.sh" kafka.Kafka "$@"
