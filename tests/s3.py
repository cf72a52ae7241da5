"""A local server that speaks S3, for tests."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3

_SERVER = """
import sys
import logging
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class S3:
    """A server that speaks S3, and a new bucket for each test."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = self.talk("s3")
        self.buckets = 0

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which others reach it."""
        keys = {"AWS_ACCESS_KEY_ID": "anybody", "AWS_SECRET_ACCESS_KEY": "whatever-it-is"}
        return {**keys, "AWS_ENDPOINT_URL": self.address, "AWS_REGION": "us-east-1"}

    def talk(self, service: str) -> Any:
        keys = {"aws_access_key_id": "root", "aws_secret_access_key": "root", "region_name": "us-east-1"}
        return boto3.client(service, endpoint_url=self.address, **keys)  # type: ignore[call-overload]

    def new(self, made: bool = True) -> str:
        self.buckets += 1
        if made:
            self.client.create_bucket(Bucket=f"bucket-{self.buckets}")
        return f"s3://bucket-{self.buckets}/runs/one"

    def check_keys(self, after: str) -> None:
        request = urllib.request.Request(
            f"{self.address}/moto-api/reset-auth", after.encode(), {"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(request).close()


@contextmanager
def s3_server() -> Iterator[S3]:
    """Serves while the block runs."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield S3(f"http://127.0.0.1:{int(process.stdout.readline())}")
        process.terminate()
