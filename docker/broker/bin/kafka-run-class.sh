#!/bin/sh
# Runs a class of Kafka. It knows the variables of Kafka's own script that containers set:
# KAFKA_HEAP_OPTS, KAFKA_OPTS, KAFKA_JVM_PERFORMANCE_OPTS, KAFKA_LOG4J_OPTS, KAFKA_JMX_OPTS, CLASSPATH, LOG_DIR.
set -eu

here=$(dirname "$(readlink -f "$0")")
performance=${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:+ExitOnOutOfMemoryError -Djava.awt.headless=true}

# Each of these holds any number of options, which are to be split into words.
# shellcheck disable=SC2086
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" ${KAFKA_HEAP_OPTS:--Xmx256m} $performance ${KAFKA_JMX_OPTS:-} \
    "-Dkafka.logs.dir=${LOG_DIR:-/tmp/kafka-logs}" ${KAFKA_LOG4J_OPTS:--Dlog4j2.configurationFile=$here/log4j2.xml} \
    ${KAFKA_OPTS:-} \
    -cp "${CLASSPATH:+$CLASSPATH:}$here/../libs/*" "$@"
