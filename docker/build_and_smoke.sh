#!/usr/bin/env bash
# Builds the CPU image and runs a command in a cluster of it: a head and workers with a token, on addresses of the loopback.
#
#   docker/build_and_smoke.sh                # python -m ray_jobs.smoke cluster=cpu_cluster run.dir=/shared/runs/smoke
#   docker/build_and_smoke.sh agentr run configs/demo.yaml cluster=cpu_cluster run.dir=/shared/runs/demo
#
# For a Debian machine, as root, without a daemon or a registry of images:
#
#   apt-get install buildah debootstrap podman runc
#
# The command runs in the head's container as its user, 10001; /shared is the folder that all nodes see. The script's exit status is the
# command's. It uses containers storage of its own, and deletes it and all else that it made.
#
# Environment:
#   BASE      base image; by default Debian bookworm made with debootstrap, whose Python is 3.11 as in python:3.11-slim-bookworm
#   WHEELS    folder of wheels to be used in the build, e.g. PyTorch's CPU build; by default none
#   ENVS      environments with an interpreter of their own: names of docker/envs, by default all. ENVS= builds none
#   ROLES     of the workers, one each: "env rollout". ROLES= makes one without a role
#   CPUS      of each worker, for Ray: 2
#   WORK      folder to work in, kept at the end: the next build has its layers and the run can be looked at. By default one that is deleted
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
image=localhost/agentr:cpu
base=${BASE:-}
# Loopback addresses of their own, so that each node looks like a host and nothing else on this machine is in the way.
network=127.9.0
head_ip=$network.1
read -r -a roles <<< "${ROLES-env rollout}"
[ "${#roles[@]}" -gt 0 ] || roles=("")
user=10001
command=("$@")
[ "$#" -gt 0 ] || command=(python -m ray_jobs.smoke cluster=cpu_cluster run.dir=/shared/runs/smoke)

fail() {
  echo "error: $*" >&2
  exit 1
}

say() {
  echo "[$(date +%T)] $*" >&2
}

[ "$(id -u)" = 0 ] || fail "this needs root"
for tool in buildah podman runc; do
  command -v "$tool" > /dev/null || fail "$tool is not there: apt-get install $tool"
done

# /var/tmp, since layers are large and /tmp may be in memory.
work=${WORK:-$(mktemp -d /var/tmp/agentr-docker.XXXXXX)}
mkdir -p "$work"/{storage,state,tmp,shared}
# buildah keeps its cache mounts below TMPDIR.
export TMPDIR=$work/tmp
storage=(--root "$work/storage" --runroot "$work/state")
# Only its own last word: it would tell at each start and end that it has no systemd to run health checks.
engine=(podman "${storage[@]}" --log-level fatal --runtime runc --cgroup-manager cgroupfs)
name=agentr-$$

cleanup() {
  local status=$?
  trap - EXIT
  set +e
  for number in $(seq "${#roles[@]}" -1 0); do
    "${engine[@]}" rm --force --time 30 --ignore "$name-$number" > /dev/null
  done
  if [ -z "${WORK:-}" ]; then
    buildah "${storage[@]}" rm --all > /dev/null
    "${engine[@]}" rmi --all --force > /dev/null
    umount "$work/storage/overlay" 2> /dev/null
    rm -rf "$work"
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

build=(--isolation chroot --network host --format docker --layers)
[ -z "${ENVS+set}" ] || build+=(--build-arg "ENVS=$ENVS")

if [ -z "$base" ]; then
  base=localhost/debian-python:bookworm
  # The certificates that this machine trusts, in case its packages come through a proxy with one of its own.
  certificates=/etc/ssl/certs/ca-certificates.crt
  build+=(--build-arg "SSL_CERT_FILE=$certificates" --build-arg "PIP_CERT=$certificates")
  if ! buildah "${storage[@]}" inspect --type image "$base" > /dev/null 2>&1; then
    command -v debootstrap > /dev/null || fail "debootstrap is not there: apt-get install debootstrap, or name an image in BASE"
    say "making the base image with debootstrap"
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$work/base" > "$work/debootstrap.log"
    [ ! -f "$certificates" ] || cp "$certificates" "$work/base$certificates"
    rm -rf "$work"/base/var/cache/apt/archives/*.deb "$work"/base/var/lib/apt/lists/*
    container=$(buildah "${storage[@]}" from scratch)
    buildah "${storage[@]}" add --quiet "$container" "$work/base" / > /dev/null
    buildah "${storage[@]}" config --cmd bash "$container"
    buildah "${storage[@]}" commit --quiet --rm "$container" "$base" > /dev/null
    rm -rf "$work/base"
  fi
fi
if [ -n "${WHEELS:-}" ]; then
  build+=(--volume "$(realpath "$WHEELS"):/wheels:ro" --build-arg PIP_FIND_LINKS=/wheels)
fi

say "building $image from $base"
buildah "${storage[@]}" bud "${build[@]}" --build-arg "BASE=$base" --tag "$image" --file "$root/docker/cpu.Dockerfile" "$root" >&2
"${engine[@]}" images --format '{{.Repository}}:{{.Tag}} {{.Size}}' >&2

# A port that nobody listens on, neither at the node's address nor at all addresses, in the range that the system gives out last.
free_port() {
  local port
  for _ in $(seq 100); do
    port=$((20000 + RANDOM % 10000))
    if ! (exec 3<> "/dev/tcp/$1/$port") 2> /dev/null; then
      echo "$port"
      return
    fi
  done
  fail "no free port at $1"
}

token=$work/token
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$token")
chown "$user:$user" "$token" "$work/shared"

# limit KIND MOST: podman's defaults are above what a machine without all privileges may grant, which is what this process has, and of
# processes not more than there are numbers.
limit() {
  local hard
  hard=$(ulimit "-H$1")
  [ "$hard" != unlimited ] && [ "$hard" -lt "$2" ] || hard=$2
  echo "$hard:$hard"
}

gcs=$(free_port "$head_ip")

# node NUMBER [PODMAN'S OPTIONS] -- COMMAND: starts a node, 0 is the head, and waits for it.
node() {
  local number=$1 ip options=()
  shift
  ip=$network.$((number + 1))
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  "${engine[@]}" run --detach --name "$name-$number" --network host --no-hosts \
    --ulimit "nofile=$(limit n 65536)" --ulimit "nproc=$(limit u 32768)" --shm-size 512m --health-interval disable \
    --volume "$work/shared:/shared" --volume "$token:/run/secrets/ray_token:ro" --env RAY_AUTH_TOKEN_PATH=/run/secrets/ray_token \
    --env "RAY_ADDRESS=$head_ip:$gcs" --env "AGENTR_NODE_IP=$ip" --env "AGENTR_AGENT_PORT=$(free_port "$ip")" \
    "${options[@]}" "$image" "$@" --object-store-memory=200000000 > /dev/null
  wait_for "$number"
}

# Waits until the image's health check passes. It is asked for here: podman would have it done by systemd, which may not be there.
wait_for() {
  local deadline=$((SECONDS + 180))
  until "${engine[@]}" healthcheck run "$name-$1" > "$work/health.log" 2>&1; do
    if [ "$("${engine[@]}" inspect --format '{{.State.Running}}' "$name-$1")" != true ] || [ "$SECONDS" -ge "$deadline" ]; then
      "${engine[@]}" logs --tail 50 "$name-$1" >&2
      cat "$work/health.log" >&2
      fail "node $1 is not healthy after 180 s, or ended"
    fi
    sleep 1
  done
}

say "starting the head at $head_ip:$gcs"
node 0 --env "AGENTR_PORT=$gcs" --env "AGENTR_DASHBOARD_PORT=$(free_port "$head_ip")" -- \
  head --ray-client-server-port "$(free_port "$head_ip")"
for number in $(seq "${#roles[@]}"); do
  say "starting a worker, role: ${roles[number - 1]:-none}"
  node "$number" --env "AGENTR_ROLE=${roles[number - 1]}" -- worker --num-cpus "${CPUS:-2}"
done

say "in the head's container: ${command[*]}"
"${engine[@]}" exec "$name-0" "${command[@]}"
