"""Serves one environment over HTTP: ``python -m env_servers serve textcraft --option distractors=3``.

Once it listens it prints one line of JSON on stdout, ``{"url": .., "epoch": .., "pid": ..}``, and nothing else ever;
whatever an environment prints goes to stderr. The bearer token comes from an environment variable, never from the
command line, where every user of the machine could read it.
"""

import argparse
import ctypes
import ipaddress
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence

from env_servers.protocol import EXPERT_TIMEOUT_S, TOKEN_ENV
from env_servers.registry import describe, load, option

_PR_SET_PDEATHSIG = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after a clean stop, 2 for arguments that cannot be used."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "list":
        for found in describe():
            lacking = found.fault or ", ".join(r.name for r in found.missing)
            print(f"{found.name}\t{found.title}" + (f"\tnot available: {lacking}" if lacking else ""))
        return 0
    if arguments.die_with_parent is not None:
        die_with_parent(arguments.die_with_parent)
    try:
        serve(arguments)
    except (ValueError, OSError) as error:
        print(f"env_servers: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    sys.stderr.flush()
    # A thread that is stuck in an environment would keep the interpreter from ending.
    os._exit(0)


def serve(arguments: argparse.Namespace) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        ValueError: Unknown environment or options, or a host that others can reach without a token.
        OSError: The address cannot be bound.
    """
    answer = os.dup(1)
    os.dup2(2, 1)
    listener, token, url = bind(arguments.host, arguments.port, arguments.token_env)
    loopback = ipaddress.ip_address(listener.getsockname()[0]).is_loopback

    import uvicorn

    from env_servers.app import create_app
    from env_servers.connections import limited
    from env_servers.sessions import Limits

    environment = load(arguments.environment, dict(arguments.option))
    limits = Limits(
        max_sessions=arguments.max_sessions,
        idle_s=arguments.idle_s,
        step_timeout_s=arguments.step_timeout_s,
        wait_s=arguments.wait_s,
        expert_timeout_s=arguments.expert_timeout_s,
        threads=arguments.threads,
    )
    app = create_app(
        environment, token=token, limits=limits, agentgym=arguments.agentgym, agentgym_needs_token=not loopback
    )
    line = {"url": url, "epoch": app.state.sessions.epoch, "pid": os.getpid()}

    if arguments.agentgym and loopback:
        print(
            "env_servers: AgentGym's paths need no token: whoever is on this machine may play and close its games",
            file=sys.stderr,
        )

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                os.write(answer, json.dumps(line).encode() + b"\n")
                os.close(answer)

    # Connections are kept longer than any client of ours keeps them, so that none is closed under a request.
    config = limited(app, connections=4096, timeout_keep_alive=120, timeout_graceful_shutdown=2)
    Announcing(config).run(sockets=[listener])


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies (Linux; elsewhere the parent's clean-up must do).

    The kernel counts the end of the *thread* that started this process as the parent's death.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent is gone")


def bind(host: str, port: int, token_env: str) -> tuple[socket.socket, str | None, str]:
    """A bound socket, the bearer token that the environment holds, which leaves it, and the server's address.

    Raises:
        ValueError: There is no token, and others can reach the host.
        OSError: The address cannot be bound.
    """
    token = os.environ.pop(token_env, "") or None
    listener = listen(host, port)
    found, number = listener.getsockname()[:2]
    if token is None and not ipaddress.ip_address(found).is_loopback:
        listener.close()
        raise ValueError(f"{found} can be reached from elsewhere: set a token in {token_env}, or bind 127.0.0.1")
    return listener, token, f"http://{f'[{found}]' if ':' in found else found}:{number}"


def listen(host: str, port: int) -> socket.socket:
    """A bound socket.
    The protocol is named because asyncio sets TCP_NODELAY only then; without, a request takes 48 ms."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)[0]
    listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m env_servers", description="Environment servers.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the environments that there are")
    run = commands.add_parser("serve", help="serve one environment")
    run.add_argument("environment", help="name, or module:class")
    run.add_argument("--host", default="127.0.0.1")
    run.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    run.add_argument(
        "--option", type=option, action="append", default=[], metavar="NAME=VALUE", help="of the environment"
    )
    run.add_argument(
        "--token-env", default=TOKEN_ENV, metavar="NAME", help="environment variable that holds the bearer token"
    )
    run.add_argument(
        "--agentgym", action="store_true", help="also speak AgentGym's protocol; on loopback its paths need no token"
    )
    run.add_argument("--max-sessions", type=int, default=20_000)
    run.add_argument("--idle-s", type=float, default=900.0, help="sessions that nobody uses for so long are closed")
    run.add_argument("--step-timeout-s", type=float, default=60.0, help="deadline of one environment call")
    run.add_argument(
        "--wait-s", type=float, default=300.0, help="longest wait of a call for its turn, before that deadline begins"
    )
    run.add_argument(
        "--expert-timeout-s", type=float, default=EXPERT_TIMEOUT_S, help="deadline of listing a split, and of an expert"
    )
    run.add_argument("--threads", type=int, default=16, help="environment calls at the same time")
    run.add_argument(
        "--die-with-parent", type=int, metavar="PID", help="end when the process PID, which started this one, ends"
    )
    return parser
