# The image of the operator and of Python controllers; `quorate --help` lists its other commands.
#
#   docker build -t ghcr.io/quorate/quorate:0.1.0 .
#
# --build-arg BASE=... chooses another base, for instance one with Debian's Python; it needs Python 3.11 or newer with
# venv. The image has the compiled codec if there is a wheel of it in dist/native, into which `make native` puts one;
# with --build-arg NATIVE=required there is no image without it.
# Without access to a package index, put the wheels of all dependencies, and of hatchling, into dist/wheels. Without a
# Maven repository, put the jar of Prometheus' JMX exporter into dist/jmx-exporter; MAVEN may then be any image.
ARG BASE=python:3.13-slim-bookworm
ARG MAVEN=maven:3-eclipse-temurin-17

# The operator gives it to nodes of stock Kafka whose metrics are asked for.
FROM ${MAVEN} AS agent
ARG JMX_EXPORTER_VERSION=1.0.1
WORKDIR /agent
COPY LICENSE dist* /agent/dist/
RUN if [ ! -d dist/jmx-exporter ]; then \
        mvn --batch-mode dependency:copy -DoutputDirectory=/agent/dist/jmx-exporter \
            "-Dartifact=io.prometheus.jmx:jmx_prometheus_javaagent:${JMX_EXPORTER_VERSION}"; \
    fi \
    && mv "dist/jmx-exporter/jmx_prometheus_javaagent-${JMX_EXPORTER_VERSION}.jar" jmx_prometheus_javaagent.jar

FROM ${BASE} AS build
ARG NATIVE=optional
WORKDIR /source
COPY . .
RUN python3 -m venv /opt/quorate \
    && if [ -d dist/wheels ]; then offline="--no-index --find-links=dist/wheels"; fi \
    && /opt/quorate/bin/pip install --no-cache-dir --disable-pip-version-check $offline \
        --constraint=constraints.txt '.[operator,oauthbearer]' \
    && PATH="/opt/quorate/bin:$PATH" docker/install-native.sh "$NATIVE" \
    && /opt/quorate/bin/pip uninstall --yes --quiet pip setuptools 2>/dev/null

FROM ${BASE}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="quorate" \
      org.opencontainers.image.description="Runs Apache Kafka KRaft quorums: the operator, and controllers in Python" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /opt/quorate /opt/quorate
# Some bases come without compiled modules of the standard library, and no later start may write them: each one
# would compile what it imports, for seconds.
RUN python3 -m compileall -q -x '/(idlelib|lib2to3|test|tests|turtledemo)/' \
        "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" /opt/quorate
COPY --from=agent /agent/jmx_prometheus_javaagent.jar /opt/quorate/share/
# Libraries ask for a user name; any user id of a pod has one without an entry in /etc/passwd.
ENV PATH=/opt/quorate/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    USER=quorate
# The same user as in the image of stock Kafka, so that both can use a volume.
USER 1000:1000
ENTRYPOINT ["quorate"]
