#!/usr/bin/env bash
# What a container of agentr runs:
#
#   head [RAY START'S OPTIONS]      the head of a Ray cluster; nothing is scheduled there but what asks for no CPU
#   worker [RAY START'S OPTIONS]    a node that joins the head at RAY_ADDRESS
#   health                          whether this container's node is healthy, for a health check
#   COMMAND ...                     anything else, as it stands: agentr run CONFIG, python -m ray_jobs.experiment ...
#
# Environment:
#   AGENTR_ROLE           what a worker is for: env, rollout or train; becomes the node's label agentr-role. Without it the node has none
#   RAY_ADDRESS           for workers: HOST:PORT of the head
#   RAY_AUTH_TOKEN_PATH   file with the cluster's token, the same on all nodes
#   AGENTR_NODE_IP        address by which the other nodes know this one, and that its dashboard listens on: the container's first
#   AGENTR_PORT, AGENTR_DASHBOARD_PORT, AGENTR_AGENT_PORT    ports of the head, its dashboard and each node's agent: 6379, 8265, 52365
#   AGENTR_HEAD_WAIT_S    seconds that a worker waits for the head: 300
set -euo pipefail

# What the health check has to ask; in a container that is no node it does not exist.
node=${TMPDIR:-/tmp}/agentr-node
agent_port=${AGENTR_AGENT_PORT:-52365}
dashboard_port=${AGENTR_DASHBOARD_PORT:-8265}

fail() {
  echo "error: $*" >&2
  exit 1
}

# Ray would start without a token where RAY_AUTH_MODE is not `token`, and then everybody who reaches its ports runs code here.
need_token() {
  [ "${RAY_AUTH_MODE:-}" = token ] || fail "RAY_AUTH_MODE is '${RAY_AUTH_MODE:-}': agentr's nodes need token authentication (token)"
  [ -n "${RAY_AUTH_TOKEN:-}" ] && return
  local file=${RAY_AUTH_TOKEN_PATH:-}
  [ -n "$file" ] || fail "no token: mount a file with one and name it in RAY_AUTH_TOKEN_PATH"
  [ -r "$file" ] || fail "the token file $file is not there, or user $(id -u) must not read it"
  [ -s "$file" ] || fail "the token file $file is empty"
}

node_ip() {
  local all
  [ -n "${AGENTR_NODE_IP:-}" ] || all=$(hostname -i) || fail "this container's address is not known: set AGENTR_NODE_IP"
  echo "${AGENTR_NODE_IP:-${all%% *}}"
}

wait_for_head() {
  local host=${1%:*} port=${1##*:} limit=${AGENTR_HEAD_WAIT_S:-300}
  until (exec 3<>"/dev/tcp/$host/$port") 2>/dev/null; do
    [ "$SECONDS" -lt "$limit" ] || fail "the head at $1 did not listen within $limit s"
    sleep 1
  done
}

healthy() {
  wget -q -T 5 -t 1 -O - "http://$1" | grep -q success || fail "http://$1 does not answer with success"
}

# How all nodes start. --block: the container ends when the node does, so that whoever supervises it starts another.
start=(ray start --block --disable-usage-stats --dashboard-agent-listen-port "$agent_port")

case "${1:-}" in
  head)
    shift
    need_token
    [ "${AGENTR_ROLE:-head}" = head ] || fail "AGENTR_ROLE=$AGENTR_ROLE is a worker's, not the head's"
    ip=$(node_ip)
    printf '%s\n' "$ip:$agent_port/api/local_raylet_healthz" "$ip:$dashboard_port/api/gcs_healthz" > "$node"
    unset RAY_ADDRESS
    exec "${start[@]}" --head --node-ip-address "$ip" --port "${AGENTR_PORT:-6379}" --num-cpus 0 --labels agentr-role=head \
      --dashboard-host "$ip" --dashboard-port "$dashboard_port" "$@"
    ;;
  worker)
    shift
    need_token
    head=${RAY_ADDRESS:-}
    case "$head" in
      ?*:?*) ;;
      *) fail "RAY_ADDRESS is '$head': a worker needs the head's HOST:PORT" ;;
    esac
    case "${AGENTR_ROLE:-}" in
      "") ;;
      env | rollout | train) start+=(--labels "agentr-role=$AGENTR_ROLE") ;;
      *) fail "AGENTR_ROLE=$AGENTR_ROLE: a worker's role is env, rollout or train" ;;
    esac
    ip=$(node_ip)
    echo "$ip:$agent_port/api/local_raylet_healthz" > "$node"
    wait_for_head "$head"
    unset RAY_ADDRESS
    exec "${start[@]}" --address "$head" --node-ip-address "$ip" "$@"
    ;;
  health)
    [ -f "$node" ] || exit 0
    while read -r url; do
      healthy "$url"
    done < "$node"
    ;;
  "")
    fail "nothing to run: head, worker or a command"
    ;;
  *)
    exec "$@"
    ;;
esac
