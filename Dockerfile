# Two images: the job (Python, Java, Spark and its Kafka connector) and the service (Python only).
#
#   docker build -t streamjoin-job .
#   docker build -t streamjoin-service --target service .
#
# Both run as user 10001 on a read-only root. They write to /var/lib/streamjoin (the checkpoint),
# /run/streamjoin (the socket between them), /scratch (Spark's temporary files) and /tmp.
# The build downloads everything, by uv.lock and jars.toml; a container downloads nothing.
# A third target, `demo`, adds the demo's load generator to the job; docker-compose.yml uses it.

# Any Debian 12, or a system with its package names, such as a mirror or a hardened image.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS python
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        ca-certificates python3 tini >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/* \
    && groupadd --gid 10001 streamjoin \
    # The user needs a name: Hadoop's login reads it.
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/streamjoin --no-create-home \
        --shell /usr/sbin/nologin --no-log-init streamjoin \
    # A new volume gets owner and mode of the folder at its mount point.
    && install -d -o 10001 -g 10001 /var/lib/streamjoin /run/streamjoin /scratch
ENV PATH=/opt/streamjoin/bin:$PATH \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    STREAMJOIN_SOCKET=/run/streamjoin/job.sock

# Build stages, which are not part of the images.
FROM python AS uv
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        python3-venv >/dev/null
ARG UV_VERSION=0.13.8
RUN python3 -m venv /opt/uv \
    && /opt/uv/bin/pip install --quiet --no-cache-dir "uv==${UV_VERSION}"
ENV PATH=/opt/uv/bin:$PATH \
    UV_PROJECT_ENVIRONMENT=/opt/streamjoin \
    UV_PYTHON=/usr/bin/python3 \
    UV_NO_PROGRESS=1 \
    # uv cannot hard-link from a cache on another file system.
    UV_LINK_MODE=copy \
    # The root is read-only at run time: without this each start would compile the modules again.
    UV_COMPILE_BYTECODE=1
WORKDIR /src

FROM uv AS job-packages
COPY pyproject.toml uv.lock ./
# Another extra of the package: msk.
ARG EXTRA=job
RUN --mount=type=cache,target=/root/.cache/uv \
    uv sync --quiet --frozen --no-dev --extra job --extra "${EXTRA}" --no-install-project \
    && cd /opt/streamjoin/lib/python3.*/site-packages \
    # Nothing in the image uses them.
    && rm -rf pyspark/examples pyspark/data /opt/streamjoin/bin/*.cmd

FROM uv AS service-packages
COPY pyproject.toml uv.lock ./
# The service imports neither these packages nor their dependencies; tests/unit/project/test_groups.py checks it.
RUN --mount=type=cache,target=/root/.cache/uv \
    uv export --quiet --frozen --no-dev --no-emit-project --output-file requirements.txt \
        --prune confluent-kafka --prune cryptography --prune fastavro --prune grpcio-tools \
        --prune openlineage-python --prune protobuf --prune psutil --prune pyyaml \
        --prune rich --prune typer \
    && uv venv --quiet /opt/streamjoin \
    && uv pip install --quiet --require-hashes --python /opt/streamjoin -r requirements.txt

FROM uv AS jars
COPY jars.toml ./
COPY job/__init__.py job/errors.py job/java_jar.py job/
COPY job/installation job/installation
# Mirror of Maven Central, if there is one.
ARG MAVEN_CENTRAL
# Other sets of jars.toml that the job needs, e.g. "s3 msk".
ARG JARS=""
RUN python3 -m job.installation.jars spark compiler ${JARS} \
    && for set in ${JARS}; do cp ".jars/${set}"/*.jar .jars/spark/; done

FROM python AS java
# Java's installer makes links to manuals, for which slim images have no folder.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        openjdk-17-jre-headless >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*

# The Java classes of the job, compiled.
FROM java AS processor
WORKDIR /src
COPY jars.toml ./
COPY job/__init__.py job/errors.py job/java_jar.py job/
COPY job/join job/join
COPY job/writer job/writer
COPY job/encoding job/encoding
COPY job/sql job/sql
COPY job/installation job/installation
COPY --from=jars /src/.jars .jars
COPY --from=job-packages /opt/streamjoin/lib /packages
RUN python3 -m job.installation.compiler --spark /packages/python3.*/site-packages/pyspark/jars

# The project alone: a change of the code keeps the layers with the packages.
FROM uv AS project
COPY pyproject.toml hatch_build.py jars.toml README.md ./
COPY job job
COPY service service
COPY streamjoin streamjoin
COPY --from=processor /src/.jars/spark/streamjoin .jars/spark/streamjoin
RUN --mount=type=cache,target=/root/.cache/uv \
    uv venv --quiet /opt/streamjoin \
    && uv pip install --quiet --no-deps --python /opt/streamjoin --prefix /project . \
    && find /project -name direct_url.json -delete

# The content of each image in CycloneDX: from the installed packages, not from the requested ones.
FROM uv AS sbom-tool
ARG CYCLONEDX_VERSION=7.5.0
RUN --mount=type=cache,target=/root/.cache/uv \
    uv tool install --quiet "cyclonedx-bom==${CYCLONEDX_VERSION}"
FROM sbom-tool AS service-sbom
COPY --from=service-packages /opt/streamjoin /opt/streamjoin
COPY --from=project /project /opt/streamjoin
RUN /root/.local/bin/cyclonedx-py environment --output-reproducible --output-file /sbom.cdx.json \
    /opt/streamjoin
FROM sbom-tool AS job-sbom
COPY --from=job-packages /opt/streamjoin /opt/streamjoin
COPY --from=project /project /opt/streamjoin
RUN /root/.local/bin/cyclonedx-py environment --output-reproducible --output-file /sbom.cdx.json \
    /opt/streamjoin

FROM python AS service
COPY --from=service-packages /opt/streamjoin /opt/streamjoin
COPY --from=project /project /opt/streamjoin
COPY --from=service-sbom /sbom.cdx.json /usr/share/streamjoin/
ENV STREAMJOIN_HOST=0.0.0.0
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Streamjoin service" \
    org.opencontainers.image.description="Shows and controls a Streamjoin job: HTTP API, metrics, health." \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
USER 10001:10001
WORKDIR /var/lib/streamjoin
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-m", "streamjoin.service.healthcheck", "service"]
ENTRYPOINT ["tini", "--"]
CMD ["streamjoin-service"]

FROM java AS job-image
COPY --from=job-packages /opt/streamjoin /opt/streamjoin
COPY --from=processor /src/.jars/spark /opt/streamjoin/jars
COPY --from=project /project /opt/streamjoin
COPY --from=job-sbom /sbom.cdx.json /usr/share/streamjoin/
COPY --chmod=755 job/entrypoint.sh /usr/local/bin/entrypoint
ENV STREAMJOIN_JARS=/opt/streamjoin/jars \
    STREAMJOIN_KEEP_RUNNING=true \
    SPARK_LOCAL_DIRS=/scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Streamjoin job" \
    org.opencontainers.image.description="Joins two Kafka topics as streams with Spark." \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
USER 10001:10001
WORKDIR /var/lib/streamjoin
# Checks that the process answers. The service's /readyz reports the state of the query.
HEALTHCHECK --interval=10s --timeout=5s --start-period=90s \
    CMD ["python", "-m", "streamjoin.service.healthcheck", "job"]
# Signals go to the Python process alone: the JVM ends after the query.
ENTRYPOINT ["tini", "--", "entrypoint"]
CMD ["streamjoin", "run", "/etc/streamjoin/join.yaml"]

FROM job-image AS demo
COPY deploy /opt/streamjoin/demo/deploy
COPY job /opt/streamjoin/demo/job
ENV PYTHONPATH=/opt/streamjoin/demo
CMD ["python", "-m", "deploy.docker.load"]

# The last target is the one that `docker build .` builds.
FROM job-image AS job
