#!/bin/sh
# On Kubernetes, Spark starts its pods with the arguments `driver` and `executor` and passes the rest in the environment;
# other arguments are a command of Quorate. tini reaps the processes that Spark leaves behind, and ends on signals that
# the first process of a container would ignore.
set -eu
case "${1:-}" in
driver)
    shift
    exec tini -- spark-submit \
        --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS}" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=${SPARK_DRIVER_BIND_ADDRESS}" \
        --deploy-mode client "$@"
    ;;
executor)
    set --
    for name in $(env | sed -n 's/^\(SPARK_JAVA_OPT_[0-9]*\)=.*/\1/p' | sort -t _ -k 4 -n); do
        eval "set -- \"\$@\" \"\${$name}\""
    done
    exec tini -- java "$@" "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" \
        -cp "${SPARK_CLASSPATH:-}:${SPARK_HOME}/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "${SPARK_DRIVER_URL}" \
        --executor-id "${SPARK_EXECUTOR_ID}" \
        --cores "${SPARK_EXECUTOR_CORES}" \
        --app-id "${SPARK_APPLICATION_ID}" \
        --hostname "${SPARK_EXECUTOR_POD_IP}" \
        --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID}" \
        --podName "${SPARK_EXECUTOR_POD_NAME}"
    ;;
quorate)
    exec tini -- "$@"
    ;;
*)
    exec tini -- quorate "$@"
    ;;
esac
