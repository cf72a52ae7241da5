"""Who is let in, and what leaves."""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from agentr.cli import app as program
from agentr.errors import DataError, RunError
from agentr.ui.library import Library
from agentr.ui.server import COOKIE, app, listen
from tests.ui.conftest import ORIGIN, get, started


def client(
    folder: Path, host: str = "127.0.0.1", token: str = "", base: str = ORIGIN, names: tuple[str, ...] = ()
) -> TestClient:
    return TestClient(app(Library([folder]), host, 8300, token, names), base_url=base)


def test_the_page_and_its_answers_may_run_and_load_nothing_else(made: Path) -> None:
    for path in ("/", "/api/home", "/api/nothing"):
        headers = client(made).get(path).headers
        assert (
            "default-src 'none'" in headers["content-security-policy"]
            and "unsafe" not in headers["content-security-policy"]
        )
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_get_is_all_that_is_answered(made: Path, method: str) -> None:
    assert client(made).request(method, "/api/home").status_code == 405


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8300"}, 200),
        ({"host": "evil.example:8300"}, 421),
        ({"host": "127.0.0.1:9999"}, 421),
        ({"host": ""}, 421),
        ({"origin": ORIGIN}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:8300"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_other_hosts_and_other_sites_are_turned_away(made: Path, headers: dict[str, str], status: int) -> None:
    assert client(made).get("/api/home", headers=headers).status_code == status


def test_beyond_this_machine_only_with_a_token(made: Path) -> None:
    for host in ("0.0.0.0", "192.0.2.1", "example.org", "::"):
        with pytest.raises(DataError, match="can be reached from other machines"):
            app(Library([made]), host, 8300)
    base = "http://192.0.2.1:8300"
    outside = client(made, "192.0.2.1", "secret", base)
    assert outside.get("/api/home").status_code == 401 and outside.get("/?token=wrong").status_code == 401
    assert outside.get("/?token=").status_code == 401
    opened = outside.get("/?token=secret")
    assert (
        opened.status_code == 200
        and "HttpOnly" in opened.headers["set-cookie"]
        and "strict" in opened.headers["set-cookie"].lower()
    )
    assert outside.cookies.get(COOKIE) == "secret" and outside.get("/api/home").status_code == 200, "the cookie goes on"
    assert client(made, token="secret").get("/api/home").status_code == 401, "a token holds on this machine, too"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("192.0.2.1:8300", 200),  # where the request came in
        ("192.0.2.2:8300", 421),
        ("192.0.2.1:9999", 421),
        ("localhost:8300", 200),
        ("127.0.0.1:8300", 200),
        (f"{socket.gethostname()}:8300", 200),
        (f"{socket.gethostname().upper()}:8300", 200),
        ("evil.example:8300", 421),
        ("192.0.2.1.evil.example:8300", 421),
        ("0.0.0.0:8300", 200),
        ("", 421),
        ("given.example", 200),
        ("given.example:9999", 200),
        ("other.example:9999", 200),
        ("other.example:8300", 421),
    ],
)
@pytest.mark.parametrize("any_host", ["0.0.0.0", "::"])
def test_at_all_addresses_a_server_knows_its_own_names_and_those_that_were_given(
    made: Path, any_host: str, host: str, status: int
) -> None:
    if (any_host, host) == ("::", "0.0.0.0:8300"):
        status = 421
    asked = client(made, any_host, "secret", "http://192.0.2.1:8300", ("given.example", "Other.example:9999"))
    answer = asked.get("/api/home?token=secret", headers={"host": host})
    assert answer.status_code == status, answer.text
    assert status == 200 or ("--allow-host" in answer.text and repr(host) in answer.text)


def test_a_name_in_the_address_of_the_request_is_no_address(made: Path) -> None:
    assert (
        client(made, "0.0.0.0", "secret", "http://evil.example:8300").get("/api/home?token=secret").status_code == 421
    )


def test_a_server_at_all_addresses_as_one_starts_it(runs: Path) -> None:
    with started(runs, "--host", "0.0.0.0", "--token", "secret", "--allow-host", "given.example") as printed:
        url = urlsplit(printed)
        assert url.hostname == socket.gethostname().lower() and url.query == "token=(AGENTR_UI_TOKEN)"
        address, question = f"http://127.0.0.1:{url.port}/", "api/home?token=secret"
        assert get(address, question)[0] == 200 and get(address, "api/home")[0] == 401
        assert get(address, question, Host="given.example")[0] == 200
        status, said = get(address, question, Host=f"evil.example:{url.port}")
        assert status == 421 and "--allow-host 'evil.example" in said
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward, suppress(OSError):
            outward.connect(("192.0.2.1", 9))  # sends nothing: the system chooses this machine's address
            assert get(f"http://{outward.getsockname()[0]}:{url.port}/", question)[0] == 200


def test_a_post_of_another_site_is_turned_away_unread(made: Path) -> None:
    answer = client(made).post(
        "/api/home", headers={"origin": "http://evil.example", "content-type": "text/plain"}, content="{}"
    )
    assert answer.status_code == 405 and "GET" in answer.text


@pytest.mark.parametrize(
    "path", ["/../server.py", "/..%2fserver.py", "/%2e%2e/server.py", "/web", "/api.ts", "/static/app.js", "/x"]
)
def test_only_the_built_page_is_served(made: Path, path: str) -> None:
    assert client(made).get(path).status_code == 404


@pytest.mark.parametrize(
    "run", ["../first", "..", "first/..", "\u202efirst", "</script>", "first/../first", "/etc", "", "first\0", "%2e%2e"]
)
@pytest.mark.parametrize("name", ["run", "state", "forest", "log"])
def test_a_run_is_looked_up_and_never_a_path(made: Path, run: str, name: str) -> None:
    answer = client(made).get(f"/api/{name}", params={"run": run, "stage": "x", "name": "../config.yaml"})
    assert answer.status_code == 404 and "no run" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "stage", ["../first/rounds/01/revise", "rounds/01/../01/revise", "/etc", "rounds/01/revise/../../..", "", "\0"]
)
def test_stages_and_keys_are_names_and_never_paths(made: Path, stage: str) -> None:
    asked: dict[str, Any] = {"run": "first", "key": "../../../config.yaml", "index": 0, "nodes": "1", "at": 1}
    for name in ("forest", "tree", "turns", "dataset", "row", "probe", "steps"):
        answer = client(made).get(f"/api/{name}", params={**asked, "stage": stage})
        assert answer.status_code == 404 and answer.json()["error"]["message"], name
        answer = client(made).get(f"/api/{name}", params={**asked, "stage": "rounds/01/collect"})
        assert answer.status_code in (200, 404), name
    for log in ("../config.yaml", "/etc/passwd", "..", ""):
        assert client(made).get("/api/log", params={"run": "first", "name": log}).status_code == 404


def test_a_missing_parameter_is_named(made: Path) -> None:
    for query, said in (({}, "'run' is missing"), ({"run": "first"}, "'stage' is missing")):
        assert said in client(made).get("/api/tree", params=query).json()["error"]["message"]
    answer = client(made).get("/api/forest", params={"run": "first", "stage": "rounds/01/collect", "offset": "many"})
    assert "'offset' is no whole number" in answer.json()["error"]["message"]


def test_hostile_texts_leave_as_json_alone(runs: Path) -> None:
    config = runs / "first/config.yaml"
    config.write_text(config.read_text().replace("name: experiment", "name: '</script><img src=x onerror=alert(1)>'"))
    answer = client(runs).get("/api/run", params={"run": "first"})
    assert (
        answer.headers["content-type"] == "application/json"
        and answer.json()["card"]["name"] == "</script><img src=x onerror=alert(1)>"
    )
    assert "alert" not in client(runs).get("/").text


def test_a_port_that_is_taken_and_a_folder_that_is_none_are_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(RunError, match=r"cannot listen at 127\.0\.0\.1.*--port"),
            listen("127.0.0.1", taken.getsockname()[1]),
        ):
            pass
    said = CliRunner().invoke(program, ["ui", str(tmp_path / "nothing")])
    assert isinstance(said.exception, DataError) and "is no folder" in str(said.exception)


def test_runs_have_ids_that_no_other_has(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "more/deep").mkdir(parents=True)
    (runs / "first").rename(tmp_path / "more/deep/first")
    library = Library([tmp_path / "more", tmp_path / "more/deep", tmp_path / "more/deep/first"])
    assert list(library.runs()) == ["deep/first", "first"], "one folder, under the last name that it was found by"
    assert library.id_of(tmp_path / "more/deep/first") in library.runs() and library.id_of(tmp_path) == ""
