"""Objects below an address: on S3 and what speaks like it, on Google Cloud Storage, or in a folder.

Objects are named by their hash and size, and created, never changed: a file is hashed, and then sent by obstore in one
request, or in parts, which become an object at the end. So an upload that is torn or repeated is never visible. (Of two
who send an object at the same time both write it, and what they write is equal.)

One object is changed, the manifest of a mirror: by compare-and-swap on its tag. Folders have no such operation. There
it is renamed into place after a look at what is there, which is safe between processes that take the lease of the same
run directory.

Credentials come from the environment, as the tools of these stores find them: ``AWS_ACCESS_KEY_ID`` and so on,
``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``, the role of the machine. They are kept nowhere, and no error
shows them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from blake3 import blake3
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import LocalStore, from_url

from agentr import background
from agentr.errors import InfraError
from agentr.secrets import SecretKind, quoted, read_all
from agentr.store.files import writing
from agentr.store.seal import FileRecord

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

#: Where objects are, below the address.
OBJECTS = "objects/"

#: Bytes that are sent or asked for at a time; objects that are not larger go in one request.
PART = 8 << 20
#: S3 allows 10,000 parts.
_MOST_PARTS = 9_000
#: Files that are on their way at a time, and parts of each: 128 MiB in all.
_FILES, _PARTS = 4, 4

#: A part has two minutes, and a request that failed is repeated for a minute: what is beyond is for the caller.
_CLIENT: Any = {"timeout": timedelta(seconds=120), "connect_timeout": timedelta(seconds=10), "allow_http": True}
_RETRY: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}

#: How S3 and Google answer that the bucket is what was not found, and not the object.
_NO_BUCKET = r"NoSuchBucket|bucket does not exist"
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or GOOGLE_APPLICATION_CREDENTIALS,"
#: What an error comes down to, by what it says, and what to do about it. The first one that fits holds.
_CAUSES = (
    (
        r"169\.254\.\d|metadata\.google",
        "no credentials were found",
        f"Set {_KEYS} where the run is started, or give the machine a role.",
    ),
    (_NO_BUCKET, "there is no such bucket", "Create it, or correct run.mirror."),
    (r"Unable to canonicalize", "there is no such folder, nor the one above it", "Create it, or correct run.mirror."),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|invalid_grant|status: 401",
        "the credentials are refused",
        f"Check {_KEYS} where the run is started.",
    ),
    (
        r"status: 403|(code:|Errno) (1|13|30)\b",
        "access is denied",
        "The credentials need the rights to list, read and write there.",
    ),
    (r"QuotaExceeded|status: 507|(code:|Errno) (28|122)\b", "there is no space left", "Free some, or raise the quota."),
    (r"kind: Timeout|[Tt]imed ?[Oo]ut", "it does not answer in time", "Check the network and AWS_ENDPOINT_URL."),
    (
        r"kind: (Connect|Request|Interrupted)|error sending request",
        "it cannot be reached",
        "Check the network and AWS_ENDPOINT_URL.",
    ),
    (
        r"status: 501|not yet implemented",
        "it knows no conditional requests",
        "Choose a store that has If-None-Match and If-Match.",
    ),
    (r"status: (5\d\d|429)", "it is overloaded or out of order", ""),
)


class BucketError(InfraError):
    """Objects cannot be read or written: wrong keys, no rights, no bucket, no network, no space.
    Asking again may help."""


class DamagedObject(InfraError):
    """An object is missing, or not what its name says."""


class Changed(Exception):
    """The manifest is not the one that was to be replaced."""


class Torn(Exception):
    """A file here is not what it should be, or not any more. No object was made of it."""


#: What distinguishes the states of an object: its tag, and its version where the store keeps versions.
Version = dict[str, str]


def object_name(entry: FileRecord) -> str:
    """Returns the name of the object that holds a file."""
    return f"{OBJECTS}{entry.blake3}-{entry.size}"


def entry_of(name: str) -> FileRecord:
    """Returns size and hash from the name of an object.

    Raises:
        ValueError: It is no such name.
    """
    found = re.fullmatch(rf"{OBJECTS}([0-9a-f]{{32}})-(\d+)", name)
    if found is None:
        raise ValueError(f"{name!r} names no object")
    return FileRecord(int(found[2]), found[1])


class Bucket:
    """The objects below an address.

    Args:
        url: ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``file:///folder``.

    Attributes:
        moved: Bytes that were sent or received so far.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.moved = 0
        parts = urlsplit(self.url)
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None

    @cached_property
    def _store(self) -> ObjectStore:
        if self._folder is None:
            read_all(SecretKind.STORE, ("AWS_", "GOOGLE_", "AZURE_"))
            return from_url(self.url, client_options=_CLIENT, retry_config=_RETRY)
        if not self._folder.exists() and self._folder.parent.is_dir():
            self._folder.mkdir(exist_ok=True)
        return LocalStore(self._folder)

    # objects ----------------------------------------------------------------------------------------------------------

    async def create(self, entry: FileRecord, source: Path | bytes) -> None:
        """Stores a file under the name of what it holds, unless it is there.

        Raises:
            Torn: The file does not have this hash, or is gone.
            DamagedObject: What is there has another size.
            BucketError: Nothing can be written there.
        """
        if await self._is_there(entry):
            return
        if await hashed(source) != entry:
            raise Torn(
                f"{source if isinstance(source, Path) else 'what was to be sent'} has another hash than when it was "
                "sealed"
            )
        name, part = object_name(entry), max(PART, -(-entry.size // _MOST_PARTS))
        await self._ask(lambda store: store.put_async(name, source, chunk_size=part, max_concurrency=_PARTS))
        self._sync(name)
        self.moved += entry.size

    async def fetch(self, entry: FileRecord, target: Path) -> None:
        """Writes what an object holds into a file, in one step.

        Raises:
            DamagedObject: It is missing, or its hash is another one. ``target`` is as it was.
            BucketError: It cannot be read.
        """
        name, hasher = object_name(entry), blake3()
        if not await self._is_there(entry):
            raise DamagedObject(f"{self.url}/{name} is missing")
        with writing(target) as file:
            for start in range(0, entry.size, PART):
                piece = bytes(
                    await self._ask(lambda store, start=start: store.get_range_async(name, start=start, length=PART))
                    or b""
                )
                await asyncio.to_thread(hasher.update, piece)
                await asyncio.to_thread(file.write, piece)
                self.moved += len(piece)
            if hasher.hexdigest(length=16) != entry.blake3:
                raise DamagedObject(f"{self.url}/{name} is damaged: it has another hash")

    async def objects(self) -> list[tuple[str, int]]:
        """Returns names and sizes of all objects.

        Raises:
            BucketError: They cannot be listed.
        """
        found = await self._ask(lambda store: obstore.list(store, OBJECTS).collect_async())
        return sorted((entry["path"], entry["size"]) for entry in found or ())

    async def _is_there(self, entry: FileRecord) -> bool:
        name = object_name(entry)
        found = await self._ask(lambda store: store.head_async(name))
        if found is not None and found["size"] != entry.size:
            raise DamagedObject(f"{self.url}/{name} is damaged: it has {found['size']:,} bytes")
        return found is not None

    # the manifest -----------------------------------------------------------------------------------------------------

    async def read(self, name: str) -> tuple[bytes, Version] | None:
        """Returns what an object holds, and its version; None if there is none.

        Raises:
            BucketError: It cannot be read.
        """

        async def whole(store: ObjectStore) -> tuple[bytes, Version]:
            found = await store.get_async(name)
            return bytes(await found.bytes_async()), _version(found.meta)

        return await self._ask(whole)

    async def swap(self, name: str, data: bytes, version: Version | None) -> Version:
        """Replaces an object, if its version is still this one (None: if there is none), and returns the new version.

        Raises:
            Changed: It is another one.
            BucketError: Nothing can be written there.
        """
        mode: Any = "create" if version is None else version
        if self._folder is not None and version is not None:
            found = await self._ask(lambda store: store.head_async(name))
            if found is None or _version(found) != version:
                raise Changed
            mode = "overwrite"
        made = await self._ask(lambda store: store.put_async(name, data, mode=mode))
        if made is None:  # it was deleted
            raise Changed
        self._sync(name)
        return _version(made)

    # ------------------------------------------------------------------------------------------------------------------

    def _sync(self, name: str) -> None:
        """Lets a file of a folder survive a crash of the machine."""
        if self._folder is None:
            return
        for path in (self._folder / name, (self._folder / name).parent):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    async def _ask(self, request: Callable[[ObjectStore], Awaitable[T]]) -> T | None:
        """Returns what the store answers; None if it has no such object.

        Raises:
            Changed: The condition of the request does not hold.
            BucketError: The store cannot be used; says why, and no secrets.
        """
        try:
            return await request(self._store)
        except (AlreadyExistsError, PreconditionError):
            raise Changed from None
        except FileNotFoundError as error:
            if not re.search(_NO_BUCKET, str(error)):
                return None
            raise self._error(str(error)) from None
        # obstore raises the last for stores without conditional requests
        except (BaseError, OSError, NotImplementedError) as error:
            raise self._error(str(error)) from None  # what it says may hold credentials

    def _error(self, text: str) -> BucketError:
        fits = ((what, hint) for pattern, what, hint in _CAUSES if re.search(pattern, text))
        what, hint = next(fits, (quoted(re.sub(r"\?\S+", "", text.partition("\n")[0]), 200), ""))
        code = re.search(r"<Code>(\w+)</Code>", text)
        return BucketError(f"{self.url} cannot be used: {what}{f' ({code[1]})' if code else ''}", hint=hint)


def _version(found: Any) -> Version:
    return {key: found[key] for key in ("e_tag", "version") if found[key] is not None}


async def hashed(source: Path | bytes) -> FileRecord:
    """Hashes a file, with one core: whoever works here comes first.

    Raises:
        Torn: It cannot be read, or is gone.
    """
    if isinstance(source, bytes):
        return FileRecord(len(source), blake3(source).hexdigest(length=16))

    def read() -> FileRecord:
        with source.open("rb") as file:
            hasher: Any = hashlib.file_digest(file, blake3)  # type: ignore[arg-type]
            return FileRecord(file.tell(), hasher.hexdigest(length=16))

    try:
        return await asyncio.to_thread(read)
    except OSError as error:
        raise Torn(f"{source} cannot be read: {error.strerror}") from None


async def together(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Makes calls, several at a time. If one fails, so do the others."""
    gate = asyncio.Semaphore(_FILES)

    async def one(call: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            await call()

    await background.together(map(one, calls))
