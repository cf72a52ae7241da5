"""Secrets: what reads them, and every form in which a text might show one."""

import base64
import html
import io
import json
import logging
import os
import pickle
import sys
import urllib.parse
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr import secrets
from agentr.errors import ConfigError
from agentr.logs import JsonLines
from agentr.secrets import Cleaned, Secret, SecretKind, quoted, redact
from agentr.store.files import append_line

#: Ways in which libraries and servers write what they were given.
WRITTEN = {
    "as it is": str,
    "with a line break": lambda v: f"{v}\n",
    "JSON": json.dumps,
    "JSON in JSON": lambda v: json.dumps({"body": json.dumps({"error": v}, ensure_ascii=False)}),
    "a header's repr": lambda v: repr(f"Bearer {v}\n".encode()),
    "repr": repr,
    "HTML": html.escape,
    "URL": lambda v: urllib.parse.quote(v, safe=""),
    "path": urllib.parse.quote,
    "query": lambda v: urllib.parse.urlencode({"key": v}),
    "URL in lower case": lambda v: "".join(
        c if c.isalnum() else f"%{c.encode().hex()}" if c.isascii() else urllib.parse.quote(c) for c in v
    ),
    "JSON in an URL": lambda v: urllib.parse.quote(json.dumps(v)),
    "base64": lambda v: base64.b64encode(v.encode()).decode(),
    "Basic": lambda v: base64.b64encode(f"me:{v}".encode()).decode(),
    "Basic of nobody, with a line break": lambda v: base64.b64encode(f":{v}\n".encode()).decode(),
    "base64 for URLs": lambda v: base64.urlsafe_b64encode(f"user:{v}".encode()).decode(),
    "base64 in an URL": lambda v: urllib.parse.quote(base64.b64encode(f"users:{v}".encode()).decode(), safe=""),
    "an address": lambda v: f"http://me:{urllib.parse.quote(v, safe='')}@host/path",
}


PRINTED = st.characters(codec="utf-8", categories=("L", "N", "P", "S"))


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    value=st.text(PRINTED, min_size=12, max_size=40),
    how=st.sampled_from(sorted(WRITTEN)),
)
def test_no_form_of_a_secret_is_shown(value: str, how: str) -> None:
    with mock.patch.object(secrets, "_KNOWN", {}):  # of this example alone
        Secret(SecretKind.API, "SOME_KEY", value)
        shown = redact(f"before {WRITTEN[how](value)} after")
    assert value not in shown and base64.b64encode(value.encode()).decode()[:-4] not in shown
    assert "(SOME_KEY)" in shown or how == "an address"
    assert shown.startswith("before") and shown.endswith("after")


@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", " {} ", "{}\t"])
def test_what_a_file_leaves_around_a_secret_is_no_part_of_it(around: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", around.format("sk-around"))
    read = Secret.read(SecretKind.API, "SOME_KEY")
    assert read.bearer() == {"Authorization": "Bearer sk-around"}
    assert f"{read} {read!r}" == "(SOME_KEY) (SOME_KEY)"
    assert os.environ["SOME_KEY"] == "sk-around", "a library that reads it gets it as it should be"


@pytest.mark.parametrize("value", ["sk-one\nX-Evil: 1", "sk\0zero", "sk-esc\x1b[1m", "sk\r\nlines"])
def test_a_secret_with_control_characters_is_refused_by_its_name(value: str) -> None:
    with pytest.raises(
        ConfigError, match="the value of SOME_KEY has a line break or another control character"
    ) as refused:
        Secret(SecretKind.API, "SOME_KEY", value)
    assert value[:6] not in str(refused.value)
    with pytest.raises(ConfigError, match="SOME_KEY has a letter in it that no header can hold"):
        Secret(SecretKind.API, "SOME_KEY", "sk-é-x").bearer()


def test_a_process_that_is_handed_a_secret_knows_what_not_to_show() -> None:
    handed = pickle.loads(pickle.dumps(Secret(SecretKind.ENVIRONMENT, "HANDED", "tok-handed-over")))
    assert (handed.reveal(), repr(handed)) == ("tok-handed-over", "(HANDED)")


def test_what_libraries_read_by_themselves_is_known_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-canary")
    monkeypatch.setenv("https_proxy", "http://me:proxy%2Fcanary@proxy:3128")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "falsehood")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path))
    said = redact(f"aws-canary proxy/canary proxy%2Fcanary falsehood {tmp_path} http://me:x@h/p https://h/@me")
    assert said == f"(AWS_SECRET_ACCESS_KEY) (https_proxy) (https_proxy) falsehood {tmp_path} http://h/p https://h/@me"


def test_a_strangers_words_are_cut_only_after_secrets_are_taken_out() -> None:
    Secret(SecretKind.API, "LONG_KEY", "sk-0123456789abcdef")
    assert quoted(b"wrong key:\n sk-0123456789abcdef is not \xff known", 25) == "wrong key: (LONG_KEY) is "


def test_what_is_written_is_clean(tmp_path: Path) -> None:
    Secret(SecretKind.API, "WRITTEN_KEY", "sk-written")
    append_line(
        tmp_path / "events.jsonl",
        {"error": ["sk-written", {"more": ("http://a:b@c", 1)}], "path": Path("/x/sk-written")},
    )
    line = json.loads((tmp_path / "events.jsonl").read_text())
    assert line == {"error": ["(WRITTEN_KEY)", {"more": ["http://c", 1]}], "path": "/x/(WRITTEN_KEY)"}
    handler, output = JsonLines(tmp_path / "log.jsonl", role="driver"), io.StringIO()
    try:
        raise ValueError("Illegal header value b'Bearer sk-written\\n'")
    except ValueError:
        handler.emit(logging.LogRecord("x", 40, "", 0, "with %s", ("sk-written",), sys.exc_info()))
    Cleaned(output).writelines(["it was sk-written\n"])
    assert "sk-written" not in (tmp_path / "log.jsonl").read_text() and output.getvalue() == "it was (WRITTEN_KEY)\n"
