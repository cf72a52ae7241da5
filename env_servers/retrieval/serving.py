"""Serves one retriever over HTTP (`app.py`): ``python -m env_servers.retrieval --corpus wiki.jsonl.gz --port 1243``.

Once it listens it prints one line of JSON on stdout, ``{"url": .., "retriever": .., "pid": ..}``. The bearer token
comes from an environment variable, as do the keys of the services that a retriever calls.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence

import uvicorn

from env_servers.connections import limited
from env_servers.registry import option
from env_servers.retrieval.app import create_app
from env_servers.retrieval.build import RETRIEVERS, build
from env_servers.retrieval.cache import Cache, Mode
from env_servers.serving import bind

TOKEN_ENV = "AGENTR_RETRIEVAL_TOKEN"


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT. Exit status: 0 after a clean stop, 2 for arguments that cannot be used."""
    arguments = _parser().parse_args(argv)
    try:
        cache = Cache(arguments.cache, arguments.cache_mode) if arguments.cache else None
        retriever = build(arguments.retriever, dict(arguments.setting), arguments.corpus, cache)
        listener, token, url = bind(arguments.host, arguments.port, arguments.token_env)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"env_servers.retrieval: {error}", file=sys.stderr)
        return 2
    app = create_app(retriever, token=token, timeout_s=arguments.timeout_s, threads=arguments.threads)
    listener.listen()  # from here on a client's connection waits, even if the server needs another moment to take it
    print(json.dumps({"url": url, "retriever": retriever.name, "pid": os.getpid()}), flush=True)
    config = limited(app, connections=4096, timeout_keep_alive=120, timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m env_servers.retrieval", description="A retrieval server.")
    parser.add_argument("--retriever", default="bm25", help=f"{', '.join(RETRIEVERS)}, or module:class")
    parser.add_argument(
        "--setting", type=option, action="append", default=[], metavar="NAME=VALUE", help="of the retriever"
    )
    parser.add_argument("--corpus", help="file of passages; a fictional world without one")
    parser.add_argument("--cache", metavar="FILE", help="where answers are kept")
    parser.add_argument("--cache-mode", choices=list(Mode), default=Mode.RECORD)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1243, help="0 lets the system choose")
    parser.add_argument(
        "--token-env", default=TOKEN_ENV, metavar="NAME", help="environment variable that holds the bearer token"
    )
    parser.add_argument("--timeout-s", type=float, default=60.0, help="deadline of a request's searches")
    parser.add_argument("--threads", type=int, default=16, help="searches at the same time")
    return parser
