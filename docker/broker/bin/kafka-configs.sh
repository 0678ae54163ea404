#!/bin/sh
here=$(dirname "$0")
# The class moved with Kafka 4.4.
class=org.apache.kafka.tools.ConfigCommand
for jar in "$here"/../libs/kafka-tools-4.[0-3].*.jar; do
    if [ -e "$jar" ]; then class=kafka.admin.ConfigCommand; fi
done
exec "$here/kafka-run-class.sh" "$class" "$@"
