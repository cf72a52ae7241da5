"""What servers of others send: read strictly, or quoted.
Nothing that they send is more than text and numbers here."""

from typing import Any, TypeVar

import msgspec

from agentr.secrets import quoted

Form = TypeVar("Form")
#: Longest answer that is read, in bytes.
MOST_BYTES = 64 << 20


class Unreadable(Exception):
    """What was sent is not what it should be: the sentence says what is wrong, and quotes it."""


def read(data: bytes | str, form: type[Form] | Any = Any) -> Any:
    """Reads JSON in UTF-8 with finite numbers and whole characters.

    Raises:
        Unreadable: It is none, or not of this form.
    """
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    try:
        return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=form)
    except (ValueError, RecursionError) as error:  # the first is what msgspec's errors are
        raise Unreadable(
            f"no JSON of finite numbers and whole characters ({quoted(error, 120)}): {quoted(data, 200)!r}"
        ) from None


def message_of(data: bytes) -> tuple[str, str]:
    """Returns the message and the code of an error, in whichever way a provider writes one; all of it if it is none
    that is known."""
    try:
        found = read(data)
    except Unreadable:
        return quoted(data), ""
    codes = []
    while isinstance(found, dict | list) and found:
        if isinstance(found, list):
            found = found[0]
            continue
        codes += [str(found[key]) for key in ("code", "type", "status") if isinstance(found.get(key), str | int)]
        inside = next((found[key] for key in ("error", "errors", "message", "detail", "msg") if found.get(key)), None)
        if inside is None:
            break
        found = inside
    return quoted(found if isinstance(found, str) else data), quoted(" ".join(dict.fromkeys(codes)), 100)
