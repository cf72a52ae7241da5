"""The mirror of a run, on a real S3 server and in a folder: what it names is whole, and what is lost comes back."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree, rmtree
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from agentr.backoff import Backoff
from agentr.cli import app
from agentr.cluster.causes import CauseKind
from agentr.commands.doctor import examine
from agentr.commands.run import opened
from agentr.config.identity import Identity
from agentr.config.schema import Config
from agentr.errors import ConfigError, DataError, RunError
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter
from agentr.observe.troubles import troubles
from agentr.rounds.plan import Plan
from agentr.rounds.prune import Prunable, delete
from agentr.store import mirror as mirror_module
from agentr.store.bucket import PART, Bucket, BucketError, Changed, entry_of, object_name
from agentr.store.files import read_lines, write_json
from agentr.store.lease import Lease
from agentr.store.mirror import Mirror
from agentr.store.mirror_manifest import MANIFEST, Manifest, garbage, read_manifest
from agentr.store.restore import RESTORING, restore
from agentr.store.run import RunStore
from agentr.store.seal import hash_file
from agentr.store.summaries import Summary, TrainSummary
from agentr.store.working import working
from agentr.train.checkpoints import is_complete, latest, seal
from agentr.train.job import TrainJob
from tests.commands.test_doctor import contents, make
from tests.runs import TINY
from tests.s3 import S3, s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with s3_server() as served:
        yield served


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(params=["s3", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.getfixturevalue("s3").new() if request.param == "s3" else f"file://{tmp_path}/mirror"


@pytest.fixture
def bucket(s3: S3) -> str:
    return s3.new()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"file://{tmp_path}/mirror"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "run"
    make(root)
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    return Path(copytree(sound, tmp_path / "run"))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "_PAUSES", Backoff(first_s=0.05, longest_s=0.1))


#: An empty text, as YAML has it.
_NOWHERE = "''"


def config_of(url: str, *overrides: str) -> Config:
    return load(None, [*TINY, f"run.mirror={url or _NOWHERE}", *overrides])


@contextlib.contextmanager
def driver(
    root: Path, url: str, said: list[str] | None = None, overrides: Sequence[str] = (), change: bool = False
) -> Iterator[RunStore]:
    """A driver that has taken the run, and restored it if there was none. Its mirror is `mirrors`."""
    config = config_of(url, *overrides)
    store = RunStore(root, (said if said is not None else []).append)
    identity, task = Identity.of(config), Reporter().task
    restored = partial(restore, store, identity, config.run.mirror, task, allow_change=change)
    store.open(identity, allow_change=change, restore=restored)
    try:
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def mirrors(
    store: RunStore, url: str, said: list[str] | None = None, overrides: Sequence[str] = ()
) -> Iterator[Mirror]:
    """The thread of a driver."""
    mirror = Mirror(
        store,
        Identity.of(config_of(url, *overrides)),
        url,
        (said if said is not None else []).append,
        is_complete,
        poll_s=0.02,
    )
    mirror.start()
    try:
        yield mirror
    finally:
        mirror.stop()


def mirror(root: Path, url: str, wait_s: float = 30.0, overrides: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Starts a driver that does nothing but mirror. Returns what was not mirrored, and what was said."""
    said: list[str] = []
    with driver(root, url, said, overrides) as store, mirrors(store, url, said, overrides) as thread:
        return thread.finish(wait_s), said


def manifest_of(url: str) -> Manifest:
    found = asyncio.run(read_manifest(Bucket(url)))
    assert found is not None
    return found[0]


def require_whole(url: str, there: Path) -> Manifest | None:
    """Fetches every object that the manifest names, which compares its hash."""
    found = asyncio.run(read_manifest(Bucket(url)))
    if found is None:
        return None
    for name in found[0].objects():
        asyncio.run(Bucket(url).fetch(entry_of(name), there))
    return found[0]


def until(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def stage(store: RunStore, name: str, **files: bytes) -> None:
    """Seals a stage with these files in its ``model``."""

    def work(folder: Path) -> TrainSummary:
        (folder / "model").mkdir(exist_ok=True)
        for file, data in files.items():
            (folder / "model" / file).write_bytes(data)
        return TrainSummary(checkpoint=f"{name}/model")

    store.stages.run(name, TrainSummary, work)


def weights(seed: int, size: int = 100) -> bytes:
    return (f"{seed}-".encode() * size)[:size]


# and back -------------------------------------------------------------------------------------------------------------


def test_a_run_that_is_lost_comes_back_as_it_was(root: Path, url: str) -> None:
    assert mirror(root, url) == ([], [])
    expected, seals = contents(root), {path.relative_to(root): path.read_bytes() for path in root.rglob("stage.json")}
    records = RunStore(root).records()
    assert len(seals) == 7
    rmtree(root)
    with driver(root, url):
        pass
    assert list(examine(root)) == [] and contents(root) == expected
    assert {path.relative_to(root): path.read_bytes() for path in root.rglob("stage.json")} == seals
    assert RunStore(root).records() == records, "in the same order"
    assert not (root / RESTORING).exists()
    lines = [json.loads(line) for line in (root / "events.jsonl").read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert "stage_sealed" in events and events[-2:] == ["restored", "opened"], "the log goes on"
    assert lines[-2]["stages"] == len(records) and lines[-2]["mirror"]
    make(root)
    assert contents(root) == expected, "and nothing is made again"
    assert mirror(root, url) == ([], []) and manifest_of(url).epoch == 2


def test_the_mirror_follows_the_run(tmp_path: Path, url: str) -> None:
    with driver(tmp_path / "run", url) as store, mirrors(store, url):
        for number in (1, 2):
            stage(store, f"rounds/0{number}/train", weights=weights(number))
            until(lambda number=number: len(stages_at(url)) == number, "it is mirrored before the run ends")

        def outer(folder: Path) -> Summary:
            stage(store, "rounds/03/inner", weights=weights(4))
            until(lambda: len(stages_at(url)) == 3, "what is sealed within another one, too")
            return Summary()

        store.stages.run("rounds/03/outer", Summary, outer)
        until(lambda: len(stages_at(url)) == 4, "then the other one")
        assert (
            list(stages_at(url)) == [record.name for record in store.records()] and "outer" in list(stages_at(url))[2]
        )


def stages_at(url: str) -> dict[str, Any]:
    found = asyncio.run(read_manifest(Bucket(url)))
    return found[0].stages if found is not None else {}


def test_equal_files_are_stored_once(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Counter[str]()
    sync = Bucket._sync

    def counted(self: Bucket, name: str) -> None:
        sent[name] += 1
        sync(self, name)

    monkeypatch.setattr(Bucket, "_sync", counted)
    same = weights(1, PART + 5)
    with driver(tmp_path / "run", bucket) as store:
        for name in ("rounds/00/train", "rounds/01/train"):
            stage(store, name, large=same, again=same, small=b"small")
        with mirrors(store, bucket) as thread:
            assert thread.finish(30) == []
        names = [object_name(hash_file(tmp_path / "run/rounds/00/train/model" / name)) for name in ("large", "small")]
        assert [sent[name] for name in names] == [1, 1]
        stage(store, "rounds/02/train", large=same)
        with mirrors(store, bucket) as thread:  # of another driver, that has yet to see what is there
            assert thread.finish(30) == []
        assert sent[names[0]] == 1
    require_whole(bucket, tmp_path / "fetched")


def test_what_is_there_is_not_overwritten(tmp_path: Path, url: str) -> None:
    for size in (100, PART + 1):
        (tmp_path / "file").write_bytes(weights(1, size))
        entry, other = hash_file(tmp_path / "file"), weights(2, size)
        asyncio.run(Bucket(url)._store.put_async(object_name(entry), other, use_multipart=False))
        asyncio.run(Bucket(url).create(entry, tmp_path / "file"))
        found = asyncio.run(Bucket(url).read(object_name(entry)))
        assert found is not None and found[0] == other


def test_a_run_directory_that_holds_a_run_is_not_touched(root: Path, folder: str) -> None:
    mirror(root, folder)
    rmtree(root / "rounds/01/eval")
    (root / "manifest.json").unlink()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.parts[-2] == "train"}
    said: list[str] = []
    with driver(root, folder, said) as store, mirrors(store, folder, said) as thread:
        assert thread.finish(30) == []
    assert not (root / "rounds/01/eval").exists()
    assert {
        path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.parts[-2] == "train"
    } == before
    assert "also has rounds/01/eval, which" in said[0] and "rounds/01/eval" in stages_at(folder), (
        "what is only there stays there"
    )


def test_a_mirror_without_a_run_gives_nothing(tmp_path: Path, folder: str) -> None:
    with driver(tmp_path / "run", folder) as store:
        assert store.records() == [] and not (tmp_path / "run" / RESTORING).exists()
        with mirrors(store, folder) as thread:
            assert thread.finish(30) == []
    with driver(tmp_path / "other", folder) as store:
        assert store.records() == []


# what dies, what is torn ----------------------------------------------------------------------------------------------

DRIVER = """
    import sys, time
    from pathlib import Path
    from agentr.config.identity import Identity
    from agentr.methods import load
    from agentr.store import mirror
    from agentr.store.bucket import Bucket, PART
    from agentr.store.mirror import Mirror
    from agentr.store.run import RunStore
    from agentr.train.checkpoints import is_complete

    def stuck(path):
        with path.open("rb") as file:
            for piece in (1, 2, 3):
                yield file.read(PART)
        print("sending", flush=True)
        time.sleep(600)

    class Stuck(Bucket):
        @property
        def _store(self):
            inner = super()._store

            class Store:
                def __getattr__(self, name):
                    return getattr(inner, name)

                def put_async(self, name, source, **how):
                    large = isinstance(source, Path) and source.stat().st_size > PART
                    return inner.put_async(name, stuck(source) if large else source, **how)

            return Store()

    mirror.Bucket = Stuck
    config = load(None, sys.argv[3:])
    store = RunStore(Path(sys.argv[1]))
    store.open(Identity.of(config))
    Mirror(store, Identity.of(config), config.run.mirror, print, is_complete).start()
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_in_an_upload_leaves_nothing_torn(tmp_path: Path, url: str) -> None:
    root = tmp_path / "run"
    with driver(root, url) as store:
        stage(store, "rounds/00/train", weights=weights(0))
        stage(store, "rounds/01/train", weights=weights(1, 4 * PART))
        stage(store, "rounds/02/train", weights=weights(2))
    large = hash_file(root / "rounds/01/train/model/weights")
    arguments = [sys.executable, "-c", textwrap.dedent(DRIVER), str(root), url, *TINY, f"run.mirror={url}"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "sending\n"
        process.kill()
    found = require_whole(url, tmp_path / "fetched")
    assert found is not None and list(found.stages) == ["rounds/00/train"]
    assert object_name(large) not in dict(asyncio.run(Bucket(url).objects()))
    assert mirror(root, url) == ([], [])
    found = require_whole(url, tmp_path / "fetched")
    assert found is not None and list(found.stages) == [f"rounds/0{n}/train" for n in range(3)] and found.epoch == 2


class Killed(BaseException):
    """The process is gone."""


class Cut(Bucket):
    """A store whose n-th request is the last of this process: it is carried out or not, and no answer comes."""

    at, carried_out, count = 0, False, 0

    @property
    def _store(self) -> Any:  # type: ignore[override]
        inner = super()._store

        def call(name: str) -> Any:
            async def request(*args: Any, **how: Any) -> Any:
                Cut.count += 1
                if Cut.count == Cut.at and not Cut.carried_out:
                    raise Killed
                answer = await getattr(inner, name)(*args, **how)
                if Cut.count == Cut.at:
                    raise Killed
                return answer

            return request

        return SimpleNamespace(**{name: call(name) for name in ("put_async", "head_async", "get_async")})


@pytest.mark.slow
@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
def test_whatever_request_is_the_last_the_next_driver_finishes(
    tmp_path: Path, folder: str, carried_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cut.carried_out = carried_out
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with driver(tmp_path / "run", folder) as store:
        stage(store, "rounds/00/train", large=weights(0, PART + 1), small=weights(0))
        points = 0
        while True:
            url, Cut.count, Cut.at = f"{folder}-{points}", 0, points + 1
            with monkeypatch.context() as patch:
                patch.setattr(mirror_module, "Bucket", Cut)
                with mirrors(store, url) as thread:
                    left = thread.finish(30)
            if Cut.count < Cut.at:
                break
            points += 1
            found = require_whole(url, tmp_path / "fetched")
            with mirrors(store, url) as thread:
                assert thread.finish(30) == [], points
            after = require_whole(url, tmp_path / "fetched")
            assert after is not None and len(after.stages) == 1 and after.epoch == (found.epoch if found else 0) + 1
    assert left == [] and points > 6


def test_a_restore_that_was_cut_off_goes_on(root: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror(root, bucket)
    expected = contents(root)
    rmtree(root)
    fetched: list[Path] = []
    fetch = Bucket.fetch

    async def cut(self: Bucket, entry: Any, target: Path) -> None:
        if len(fetched) >= 8:
            raise KeyboardInterrupt
        await fetch(self, entry, target)
        fetched.append(target)

    monkeypatch.setattr(Bucket, "fetch", cut)
    with pytest.raises(KeyboardInterrupt), driver(root, bucket):
        pass
    assert set(json.loads((root / RESTORING).read_text())) == {"mirror", "epoch"}
    with (
        pytest.raises(
            RunError, match=r"was not restored to the end\. Set run\.mirror, and start .* delete .*restoring\.json"
        ),
        driver(root, ""),
    ):
        pass
    first, fetched[:] = list(fetched), []
    monkeypatch.setattr(Bucket, "fetch", fetch)

    async def counted(self: Bucket, entry: Any, target: Path) -> None:
        await fetch(self, entry, target)
        fetched.append(target)

    monkeypatch.setattr(Bucket, "fetch", counted)
    with driver(root, bucket):
        pass
    assert list(examine(root)) == [] and contents(root) == expected and not (root / RESTORING).exists()
    assert fetched and not set(first) & set(fetched), "what was there is not fetched again"


# two drivers ----------------------------------------------------------------------------------------------------------


def test_the_driver_of_an_earlier_epoch_stops(root: Path, url: str, tmp_path: Path) -> None:
    copy = Path(copytree(root, tmp_path / "copy"))
    said: list[str] = []
    with driver(root, url, said) as old, mirrors(old, url, said) as thread:
        until(lambda: len(stages_at(url)) == 7, "all is mirrored")
        with driver(copy, url) as new, mirrors(new, url) as other:
            stage(new, "rounds/02/train", weights=b"of the new one")
            until(lambda: "rounds/02/train" in stages_at(url), "the new one mirrors")
            stage(old, "rounds/02/train", weights=b"of the old one")
            until(lambda: said, "the old one notices")
            assert said == [
                f"another driver mirrors this run to {url}: {new.owner()}. Nothing more is mirrored from here to {url}."
            ]
            assert thread.finish(30) == [], "nothing that is left is its own to mirror"
            stage(new, "rounds/03/train", weights=b"of the new one")
            assert other.finish(30) == []
        found = manifest_of(url)
        assert found.epoch == 2 and found.stages["rounds/02/train"].record == RunStore(copy).record("rounds/02/train")
        assert "rounds/03/train" in found.stages


def test_of_drivers_that_begin_together_one_goes_on(root: Path, bucket: str, tmp_path: Path) -> None:
    roots = [Path(copytree(root, tmp_path / f"copy-{number}")) for number in range(4)]
    said: list[list[str]] = [[] for _ in roots]
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(driver(root, bucket)) for root in roots]
        threads = [
            stack.enter_context(mirrors(store, bucket, heard)) for store, heard in zip(stores, said, strict=True)
        ]
        assert [thread.finish(30) for thread in threads] == [[]] * 4
    found = require_whole(bucket, tmp_path / "fetched")
    assert found is not None and len(found.stages) == 7
    assert all("another driver mirrors this run" in text for heard in said for text in heard)


def test_an_answer_that_was_lost_is_no_other_driver(root: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    swap = Bucket.swap

    async def unheard(*args: Any) -> Any:
        await swap(*args)
        raise Changed  # what a repeated request is told

    monkeypatch.setattr(Bucket, "swap", unheard)
    assert mirror(root, bucket) == ([], [])
    assert len(stages_at(bucket)) == 7


def test_a_manifest_that_was_deleted_is_written_anew(root: Path, url: str, tmp_path: Path) -> None:
    said: list[str] = []
    with driver(root, url, said) as store, mirrors(store, url, said) as thread:
        until(lambda: len(stages_at(url)) == 7, "all is mirrored")
        asyncio.run(Bucket(url)._store.delete_async(MANIFEST))
        stage(store, "rounds/02/train", weights=b"w")
        assert thread.finish(30) == []  # it may have said that the file went away while it was read
    assert len(stages_at(url)) == 8


def test_a_driver_that_lost_the_run_mirrors_nothing_more(
    root: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with driver(root, folder, said) as store:

        def lost(self: Lease) -> None:
            raise RunError("it was taken over by pid 1 on other.")

        with monkeypatch.context() as patch, mirrors(store, folder, said) as thread:
            patch.setattr(Lease, "check", lost)
            until(lambda: said, "it notices")
            assert thread.finish(30) == []
        assert "taken over by pid 1 on other. Nothing more is mirrored" in said[0]


# another run, another configuration -----------------------------------------------------------------------------------


def test_the_mirror_of_another_run_is_refused(root: Path, folder: str, tmp_path: Path) -> None:
    mirror(root, folder)
    before = manifest_of(folder)
    with (
        pytest.raises(
            RunError, match=r"is the mirror of a run with another configuration: run\.seed: 0 -> 7.*another run\.mirror"
        ),
        driver(tmp_path / "new", folder, overrides=["run.seed=7"]),
    ):
        pass
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [".lease"], "nothing was restored"
    with driver(tmp_path / "own", "", overrides=["run.seed=7"]) as store:
        stage(store, "model", weights=b"w")
    left, said = mirror(tmp_path / "own", folder, overrides=["run.seed=7"])
    assert (
        left == []
        and len(said) == 1
        and "another configuration: run.seed: 0 -> 7. Give each run one of its own." in said[0]
    )
    assert manifest_of(folder) == before
    with driver(tmp_path / "new", folder, overrides=["run.seed=7"], change=True):
        assert list(examine(tmp_path / "new")) == []


def test_where_a_run_is_mirrored_may_change(root: Path, folder: str) -> None:
    for url in ("", f"{folder}-a", f"{folder}-b"):
        with driver(root, url, overrides=["run.mirror_wait_s=3"]):
            pass


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "ftp://host/x",
            "'ftp' is no kind of mirror. Give s3://bucket/prefix, gs://bucket/prefix, file:///folder, or nothing.",
        ),
        ("/backup", "'/backup' is no kind of mirror."),
        ("s3://", "s3:// names no bucket."),
        ("gs:///prefix", "gs:///prefix names no bucket."),
        ("file://host/x", "file://host/x names no folder from the root on."),
        ("file:///", "file:/// names no folder from the root on."),
        ("s3://key:hidden@bucket/x", "the address has a user or a password in it. Leave them out"),
        ("s3://bucket/x?secret=hidden", "an address s3:// holds a bucket and a prefix, and no credentials or options."),
    ],
)
def test_a_wrong_address_is_a_problem_of_the_configuration(url: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, [*TINY, f"run.mirror={url}"])
    assert f"run.mirror: {message}" in str(raised.value) and "hidden" not in str(raised.value).replace(url, "")


# mirrors that do not work ---------------------------------------------------------------------------------------------


def mended(root: Path, url: str, cause: str, mend: Callable[[], Any]) -> None:
    """Lets a driver with a mirror that does not work go on, and mends it."""
    said: list[str] = []
    with driver(root, url, said) as store, mirrors(store, url, said) as thread:
        until(lambda: said, "it is said")
        stage(store, "rounds/02/train", weights=b"w")
        time.sleep(0.5)
        assert len(said) == 1 and cause in said[0] and "The run goes on" in said[0], said
        assert "whatever-it-is" not in said[0]
        mend()
        assert thread.finish(30) == []
    assert len(stages_at(url)) == 8


def test_a_bucket_that_is_missing_is_said_once_and_mended(root: Path, s3: S3) -> None:
    url = s3.new(made=False)
    bucket = url.split("/")[2]
    mended(
        root,
        url,
        f"{url} cannot be used: there is no such bucket (NoSuchBucket). Create it",
        lambda: s3.client.create_bucket(Bucket=bucket),
    )


def test_rights_that_are_missing_are_said_once_and_mended(root: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    url, iam = s3.new(), s3.talk("iam")
    iam.create_user(UserName="driver")
    key = iam.create_access_key(UserName="driver")["AccessKey"]
    policy = json.dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "whatever-it-is")
    s3.check_keys("0")
    try:
        left, said = mirror(root, url, wait_s=1.0)
        assert (
            len(left) == 7
            and len(said) == 1
            and "the credentials are refused (SignatureDoesNotMatch). Check AWS_ACC" in said[0]
        )
        assert "whatever-it-is" not in said[0] and key["AccessKeyId"] not in said[0]
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])

        def allow() -> None:
            s3.check_keys("3")  # for the request that mends it
            iam.put_user_policy(UserName="driver", PolicyName="all", PolicyDocument=policy)

        mended(root, url, "access is denied (AccessDenied). The credentials need", allow)
    finally:
        s3.check_keys("inf")


def test_a_server_that_is_gone_is_said_once(root: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    url = s3.new()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("agentr.store.bucket._RETRY", {"max_retries": 0})
    left, said = mirror(root, url, wait_s=1.0)
    assert len(left) == 7 and len(said) == 1 and "it cannot be reached. Check the network" in said[0]


def test_a_folder_that_is_gone_is_said_once_and_mended(root: Path, tmp_path: Path) -> None:
    mended(
        root, f"file://{tmp_path}/disk/one", "there is no such folder, nor the one above it", (tmp_path / "disk").mkdir
    )


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "Unable to copy data to file: No space left on device (os error 28)\n"
            "source: Os { code: 28, kind: StorageFull }",
            "no space left",
        ),
        ("Error performing PUT http://169.254.169.254/latest/api/token in 1ms", "no credentials were found"),
        ("status: 503, body: <Code>SlowDown</Code>", "it is overloaded or out of order (SlowDown)"),
        (
            "Generic: strange http://h/x?X-Signature=123 whatever-it-is\nmore",
            "cannot be used: Generic: strange http://h/x (AWS_SECRET_ACCESS_KEY)",
        ),
    ],
)
def test_causes(text: str, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "whatever-it-is")
    assert cause in Bucket("s3://bucket")._error(text).message


def test_a_run_that_may_be_in_a_mirror_is_not_begun_anew(tmp_path: Path, s3: S3) -> None:
    """A mirror that cannot be read may hold finished work, which would be done again."""
    url = s3.new(made=False)
    with (
        pytest.raises(
            RunError,
            match=r"holds no run, and whether its mirror does is not known: .*no such bucket.*take run\.mirror out\.$",
        ),
        driver(tmp_path / "run", url),
    ):
        pass
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lease"]


# stages that change ---------------------------------------------------------------------------------------------------


def test_a_stage_that_is_made_anew_replaces_its_entry(root: Path, bucket: str, tmp_path: Path) -> None:
    with driver(root, bucket) as store, mirrors(store, bucket) as thread:
        stage(store, "rounds/02/train", weights=b"before")
        assert thread.finish(30) == []
    before = manifest_of(bucket)
    with driver(root, bucket) as store:
        store.stages.set_aside("rounds/02/train")
    mirror(root, bucket)
    assert manifest_of(bucket).stages == before.stages, "it stays until there is another one"
    with driver(root, bucket) as store:
        stage(store, "rounds/02/train", weights=b"afterwards")
    assert mirror(root, bucket)[0] == []
    after = require_whole(bucket, tmp_path / "fetched")
    assert after is not None and after.stages["rounds/02/train"].record == RunStore(root).record("rounds/02/train")
    old = before.stages["rounds/02/train"].files["model/weights"]
    assert (f"{bucket}/{object_name(old)}", 6) in garbage(bucket)
    assert not {f"{bucket}/{name}" for name in after.objects()} & dict(garbage(bucket)).keys()


def test_weights_that_were_pruned_leave_the_manifest(root: Path, folder: str) -> None:
    name, path = "rounds/01/train", "model/model.safetensors"
    with driver(root, folder) as store, mirrors(store, folder):
        until(lambda: len(stages_at(folder)) == 7, "all is mirrored")
        file = manifest_of(folder).stages[name].files[path]
        delete(store, [Prunable(f"{name}/{path}", file.size, "weights", name)])
        until(lambda: path not in stages_at(folder)[name].files, "they leave it")
    assert f"{folder}/{object_name(file)}" in dict(garbage(folder))
    rmtree(root)
    with driver(root, folder):
        pass
    assert list(examine(root)) == [] and not (root / name / path).exists()


def test_a_stage_that_is_damaged_here_is_left_out_and_said_once(root: Path, folder: str, tmp_path: Path) -> None:
    weights_ = root / "rounds/01/train/model/model.safetensors"
    data = bytearray(weights_.read_bytes())
    data[5] ^= 1
    weights_.write_bytes(data)
    left, said = mirror(root, folder)
    assert left == ["rounds/01/train"] and len(said) == 1
    assert (
        "rounds/01/train is not mirrored" in said[0]
        and "model.safetensors has another hash than when it was sealed. 'agentr doctor" in said[0]
    )
    found = require_whole(folder, tmp_path / "fetched")
    assert found is not None and "rounds/01/eval" in found.stages and "rounds/01/train" not in found.stages


def test_a_large_file_that_is_damaged_here_becomes_no_object(tmp_path: Path, bucket: str) -> None:
    with driver(tmp_path / "run", bucket) as store:
        stage(store, "model", weights=weights(1, 2 * PART))
        (tmp_path / "run/model/model/weights").write_bytes(weights(2, 2 * PART))
        with mirrors(store, bucket) as thread:
            assert thread.finish(1.0) == ["model"]
    sizes = [size for _, size in asyncio.run(Bucket(bucket).objects())]
    assert all(size < PART for size in sizes), "nothing but the log"


# damage in the mirror -------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def drop(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(("damage", "what"), [(flip, "it has another hash"), (cut, "bytes"), (drop, "is missing")])
def test_damage_in_the_mirror_is_named_and_everything_else_restored(
    root: Path, folder: str, damage: Callable[[Path], None], what: str
) -> None:
    mirror(root, folder)
    expected, name = contents(root), "rounds/01/train"
    path = Path(folder.removeprefix("file://")) / object_name(
        manifest_of(folder).stages[name].files["model/model.safetensors"]
    )
    kept = path.read_bytes()
    damage(path)
    rmtree(root)
    with pytest.raises(DataError) as raised, driver(root, folder):
        pass
    text = str(raised.value)
    assert f"{folder}/objects/{path.name}" in text and what in text and f"({name}/model/model.safetensors)" in text
    assert "Put earlier versions of these objects back" in text and str(root / RESTORING) in text
    assert sorted(path.parent.name for path in root.rglob("stage.json")) == sorted(
        ["model", "demonstrations", "collect", "revise", "dataset", "eval"]
    )
    assert not (root / name).exists(), "no part of a stage looks like its work"
    if damage is flip:  # put back
        path.write_bytes(kept)
        with driver(root, folder):
            pass
    else:  # made anew
        path.unlink(missing_ok=True)
        (root / RESTORING).unlink()
        make(root)
        assert mirror(root, folder) == ([], [])
        rmtree(root)
        with driver(root, folder):
            pass
    assert list(examine(root)) == [] and contents(root) == expected


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_manifest_that_is_damaged_is_named(root: Path, folder: str, damage: Callable[[Path], None]) -> None:
    mirror(root, folder)
    damage(Path(folder.removeprefix("file://")) / MANIFEST)
    left, said = mirror(root, folder, wait_s=0.5)
    assert len(left) == 7 and len(said) == 1 and f"{folder}/{MANIFEST} is damaged" in said[0]
    rmtree(root)
    with pytest.raises(DataError, match=r"manifest\.json is damaged.*or delete it"), driver(root, folder):
        pass


def test_a_mirror_of_a_later_version_or_that_leads_elsewhere_is_refused(
    root: Path, folder: str, tmp_path: Path
) -> None:
    mirror(root, folder)
    found, path = manifest_of(folder), Path(folder.removeprefix("file://")) / MANIFEST
    stolen = replace(found.stages["model"], files={"../../stolen": found.log})
    path.write_bytes(replace(found, stages={"model": stolen}).stored())
    with pytest.raises(DataError, match="leads out of the run directory"), driver(tmp_path / "new", folder):
        pass
    stored = json.loads(found.stored())
    path.write_text(json.dumps({**stored, "format": 9}))
    with (
        pytest.raises(DataError, match="format 9; this version of agentr reads up to 1"),
        driver(tmp_path / "new", folder),
    ):
        pass


# trainings that are not finished --------------------------------------------------------------------------------------


def attempt(store: RunStore, folder: Path, steps: Sequence[int], name: str = "train") -> TrainJob:
    """A training that has come so far."""
    job = TrainJob(store.root / "data", store.root / "start", folder, name=name, epoch=store.lease.next_epoch())
    folder.mkdir(exist_ok=True)
    write_json(folder / "job.json", {"start": "a", "of": name})
    job = replace(job, attempt=job.next_attempt())
    for step in steps:
        checkpoint(job, step)
    job.reference.write_bytes(b"reference")
    job.metrics.write_text("".join(json.dumps({"step": step}) + "\n" for step in steps) + '{"st')
    return job


def checkpoint(job: TrainJob, step: int, whole: bool = True) -> Path:
    folder = job.checkpoints / f"checkpoint-{step}"
    (folder / "global_step").mkdir(parents=True)
    (folder / "global_step/optimiser.pt").write_bytes(weights(step, 1000))
    (folder / "trainer_state.json").write_text(str(step))
    if whole:
        seal(folder)
    return folder


def test_an_unfinished_training_goes_on_from_its_newest_whole_checkpoint(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, name = tmp_path / "run", "rounds/01/train"
    create = Bucket.create

    async def grow(self: Bucket, entry: Any, source: Any) -> None:
        for path in root.glob(f"{name}/work-*/metrics.jsonl"):
            path.write_text(path.read_text() + "more")
        await create(self, entry, source)

    monkeypatch.setattr(Bucket, "create", grow)
    with driver(root, url) as store, mirrors(store, url) as thread:
        stage(store, "model", weights=b"base")

        def train(folder: Path) -> Summary:
            job = attempt(store, folder, [5, 10])
            checkpoint(job, 15, whole=False)
            until(lambda: name in stages_at(url), "a checkpoint is mirrored")

            def mirrored() -> set[str]:
                return {path.split("/")[2] for path in stages_at(url)[name].files if "checkpoints" in path}

            until(lambda: mirrored() == {"checkpoint-10"}, "the newest whole one takes the place of the one before")
            rmtree(job.checkpoints / "checkpoint-15")
            rmtree(checkpoint(job, 20).parent / "checkpoint-5")
            until(lambda: any("checkpoint-20" in file for file in stages_at(url)[name].files), "the next one is, too")
            assert not any("checkpoint-10" in file for file in stages_at(url)[name].files), "and takes its place"
            raise SystemExit

        with pytest.raises(SystemExit):
            store.stages.run(name, TrainSummary, train)
        assert thread.finish(30) == []
    rmtree(root)
    with driver(root, url) as store:
        assert working(root / name) == root / name / "work-000000.0000"
        record = store.record(name)
        assert record is not None and record.state == "running"
        job = TrainJob(tmp_path, tmp_path, root / name, epoch=store.lease.next_epoch())
        job = replace(job, attempt=job.next_attempt())
        newest = latest(job.checkpoints)
        assert newest is not None and newest.name == "checkpoint-20" and is_complete(newest)
        assert (newest / "global_step/optimiser.pt").read_bytes() == weights(20, 1000)
        assert [line["step"] for line in job.read_metrics()] == [5, 10] and job.reference.read_bytes() == b"reference"
        assert json.loads((root / name / "job.json").read_text())["start"] == "a"
        stage(store, name, weights=b"trained")
        with mirrors(store, url) as thread:
            assert thread.finish(30) == []
    assert stages_at(url)[name].files.keys() == {"model/weights", "job.json"}, (
        "once it is sealed, that is what there is"
    )


def test_a_chain_of_trainings_goes_on_in_the_middle(tmp_path: Path, folder: str) -> None:
    root, name = tmp_path / "run", "control/train"
    with driver(root, folder) as store, mirrors(store, folder) as thread:

        def train(place: Path) -> Summary:
            job = attempt(store, place / "01", [5])
            (job.work / "model").mkdir()
            (job.work / "model/weights").write_bytes(b"of the first")
            (job.work / "result.json").write_text("{}")
            for made in ("model", "metrics.jsonl", "result.json"):
                (job.work / made).rename(place / "01" / made)
            rmtree(job.work)
            attempt(store, place / "02", [3])
            raise SystemExit

        with pytest.raises(SystemExit):
            store.stages.run(name, TrainSummary, train)
        assert thread.finish(30) == []
    rmtree(root)
    with driver(root, folder):
        assert (root / name / "01/model/weights").read_bytes() == b"of the first" and (
            root / name / "01/result.json"
        ).exists()
        newest = latest(root / name / "02/work-000000.0000/checkpoints")
        assert newest is not None and newest.name == "checkpoint-3"


def test_an_online_training_is_mirrored_once_it_is_sealed(tmp_path: Path, folder: str) -> None:
    """Its checkpoints are worth something only with the steps that it was fed."""
    with driver(tmp_path / "run", folder) as store, mirrors(store, folder) as thread:

        def train(place: Path) -> Summary:
            (place.parent / "rollouts").mkdir()
            attempt(store, place, [5])
            raise SystemExit

        with pytest.raises(SystemExit):
            store.stages.run("rounds/01/train", TrainSummary, train)
        assert thread.finish(30) == []
    assert stages_at(folder) == {}


def test_checkpoints_that_are_gone_before_they_are_mirrored_are_told(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with driver(tmp_path / "run", folder, said) as store, mirrors(store, folder, said):

        def train(place: Path) -> Summary:
            job = attempt(store, place, [])
            create = Bucket.create

            async def slow(self: Bucket, entry: Any, source: Any) -> None:
                if "checkpoint-5" in str(source):
                    checkpoint(job, 10)
                    rmtree(job.checkpoints / "checkpoint-5")
                    monkeypatch.setattr(Bucket, "create", create)
                await create(self, entry, source)

            monkeypatch.setattr(Bucket, "create", slow)
            checkpoint(job, 5)
            until(
                lambda: any("checkpoint-10" in f for e in stages_at(folder).values() for f in e.files),
                "the next one is mirrored",
            )
            raise SystemExit

        with pytest.raises(SystemExit):
            store.stages.run("rounds/01/train", TrainSummary, train)
    assert (
        len(said) == 1
        and "a checkpoint of rounds/01/train was not mirrored" in said[0]
        and "raise train.checkpoint_every" in said[0]
    )


# the driver -----------------------------------------------------------------------------------------------------------


class Idle:
    """Services of which nothing is asked."""

    def take_over(self, plan: Plan, store: RunStore) -> None:
        self.store = store


def test_the_driver_waits_for_its_mirror_and_restores_from_it(
    root: Path, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, config = contents(root), config_of(bucket, f"run.dir={root}")
    with opened(plan_of(config), Reporter(), services=cast(Any, Idle())):
        pass
    assert len(stages_at(bucket)) == 7
    rmtree(root)
    with opened(plan_of(config), Reporter(), services=cast(Any, Idle())):
        assert contents(root) == expected
    told = capsys.readouterr().out
    assert "restoring 7 stages, " in told and f" KiB from {bucket}" in told and f"mirroring to {bucket}" in told


def test_the_driver_says_what_is_not_mirrored_and_after_an_error_does_not_wait(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path}/disk/one"
    with opened(
        plan_of(config_of(url, f"run.dir={root}", "run.mirror_wait_s=0.5")), Reporter(), services=cast(Any, Idle())
    ):
        pass
    assert f"not mirrored to {url}: model, rounds/00/demonstrations, " in capsys.readouterr().out
    started = time.monotonic()
    with (
        pytest.raises(DataError, match=r"^broken$"),
        opened(plan_of(config_of(url, f"run.dir={root}")), Reporter(), services=cast(Any, Idle())),
    ):
        raise DataError("broken")
    assert time.monotonic() - started < 20


def test_a_mirror_that_fails_is_a_trouble_until_it_works(root: Path, tmp_path: Path) -> None:
    def found() -> list[str]:
        return [
            str(cause["kind"]) for trouble in troubles(read_lines(root / "events.jsonl")) for cause in trouble["causes"]
        ]

    url = f"file://{tmp_path}/disk/one"
    with opened(plan_of(config_of(url, f"run.dir={root}")), Reporter(), services=cast(Any, Idle())):
        until(lambda: found() == [CauseKind.mirror_failing], "the trouble")
        said = CliRunner().invoke(app, ["status", str(root)]).output
        assert (
            f"mirror: nothing is mirrored to {url} (" in said
            and "there is no such folder" in said
            and "run.mirror" in said
        )
        (tmp_path / "disk").mkdir()
    assert found() == []


STOPPED = """
    import sys, time
    from typing import Any, cast
    from pathlib import Path
    from agentr.commands.run import opened
    from agentr.observe.progress import Reporter
    from agentr.methods import load, plan_of

    class Idle:
        def take_over(self, plan, store):
            pass

    with opened(plan_of(load(None, sys.argv[1:])), Reporter(), services=cast(Any, Idle())):
        print("running", flush=True)
        time.sleep(600 if sys.stdin.readline() == "run\\n" else 0)
"""


@pytest.mark.parametrize("when", ["run", "end"])
def test_a_signal_to_end_does_not_wait_for_a_server_that_hangs(root: Path, s3: S3, when: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked: list[socket.socket] = []
        threading.Thread(target=lambda: asked.append(silent.accept()[0]), daemon=True).start()
        environment = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        arguments = [
            sys.executable,
            "-c",
            textwrap.dedent(STOPPED),
            *TINY,
            f"run.mirror={s3.new()}",
            f"run.dir={root}",
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(arguments, env=environment, text=True, **pipes) as process:  # pyright: ignore[reportCallIssue]
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            while process.stdout.readline() not in ("running\n", ""):
                pass
            process.stdin.write(f"{when}\n")
            process.stdin.flush()
            until(lambda: asked, "the mirror asks")
            while when == "end" and "mirroring to" not in process.stdout.readline():
                pass
            time.sleep(0.3)
            started = time.monotonic()
            process.terminate()
            told, wrong = process.communicate(timeout=30)
            assert process.returncode == 143, wrong
            assert time.monotonic() - started < 8 and "stopped; what is finished is kept" in told
    assert RunStore(root).owner() == ""


def test_wrong_uses_of_a_store_are_errors_of_it(tmp_path: Path) -> None:
    with pytest.raises(BucketError, match="no such folder"):
        asyncio.run(Bucket(f"file://{tmp_path}/a/b").objects())
    with pytest.raises(DataError, match="holds no manifest"):
        garbage(f"file://{tmp_path}/a")
