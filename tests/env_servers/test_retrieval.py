"""Retrievers, the cache, the services that they call and the one that they are."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from env_servers.retrieval.app import create_app
from env_servers.retrieval.base import Passage, RetrievalFailure, Retriever
from env_servers.retrieval.bm25 import BM25, best
from env_servers.retrieval.build import build, requirements
from env_servers.retrieval.cache import Cache, Cached
from env_servers.retrieval.corpus import load_corpus
from env_servers.retrieval.http import Key, Service
from env_servers.retrieval.passages import fiction
from env_servers.retrieval.serving import TOKEN_ENV, main
from env_servers.retrieval.summary import ChatSummariser
from env_servers.retrieval.web import Remote, Web
from env_servers.retrieval.world import World
from tests.env_servers.support import ROOT, TOKEN, http_client, serving, wait_until

PASSAGES = (
    Passage("1", "River Tamis", "The river flows past three mills and into the sea."),
    Passage("2", "Mill", "Mills grind grain. A watermill stands on a river."),
    Passage("3", "Ada Orwen", "A composer who was born in a mill."),
    Passage("4", "", "Nothing of the kind."),
)
CHAT = {"choices": [{"message": {"content": "<think>hm</think> The mill is old."}}]}


@contextlib.contextmanager
def endpoint(answer: Callable[[int, dict[str, Any]], tuple[int, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A service on loopback: ``answer(number of the request, request)`` gives status and JSON.
    Yields its address and what it was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            asked.append(
                {
                    "path": self.path,
                    "headers": httpx.Headers(dict(self.headers)),
                    "body": json.loads(body) if body else None,
                }
            )
            status, data = answer(len(asked), asked[-1])
            text = data.encode() if isinstance(data, str) else json.dumps(data).encode()
            with contextlib.suppress(ConnectionError):  # who asked did not wait
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


class Counting(Retriever):
    """Finds a passage that carries the number of the call."""

    def __init__(self, name: str = "counting") -> None:
        self.name = name
        self.calls = 0

    def search(self, query: str, k: int) -> list[Passage]:
        self.calls += 1
        return [Passage(str(self.calls), query, "text", 0.5)][:k]


# the world and the corpus ---------------------------------------------------------------------------------------------


def test_every_fact_stands_in_the_passage_of_its_subject():
    texts = {passage.title: passage.text for passage in fiction()}
    world = World.fiction()
    assert 300 < len(texts) == len(world.entities) == len(fiction())
    for entity in world.entities.values():
        for fact in entity.facts.values():
            assert fact.phrase in texts[entity.name], f"{entity.name}: {fact.relation.name} is not told"
            assert not fact.relation.to or fact.value in texts, f"{fact.value} has no passage"
        sentences = texts[entity.name].count(". ") + 1
        assert 2 <= sentences <= 5 and "{" not in texts[entity.name]


def test_the_world_makes_sense():
    world = World.fiction()
    for country in world.of_kind["country"]:
        assert world.entities[country.facts["capital"].value].facts["country"].value == country.name
    for book in world.of_kind["book"]:
        author = world.entities[book.facts["author"].value]
        assert 24 <= int(book.facts["published"].value) - int(author.facts["born"].value) <= 60


@pytest.mark.parametrize(
    ("name", "text", "titles"),
    [
        (
            "a.jsonl",
            '{"id": 7, "contents": "\\"Title\\"\\nText."}\n\n{"id": "8", "title": "Other", "text": "T"}\n',
            ["Title", "Other"],
        ),
        (
            "b.json",
            (
                '[{"context": {"title": ["A", "B"], "sentences": [["x. ", "y."], ["z"]]}}, {"context": [["A", ["x. ", '
                '"y."]]]}]'
            ),
            ["A", "B"],
        ),
        ("c.json", '{"a query": "Page 1: a text"}', ["a query"]),
    ],
)
def test_a_corpus_file_is_read(tmp_path: Path, name: str, text: str, titles: list[str]):
    (tmp_path / name).write_text(text)
    assert [passage.title for passage in load_corpus(str(tmp_path / name))] == titles
    if name.endswith("l"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        assert load_corpus(str(tmp_path / f"{name}.gz")) == load_corpus(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"id": 1, "text": "x"}\n{"id": 1}', "line 2: a passage needs"),
        ("a.jsonl", '{"id": 1, "text": "x"}\n{', "line 2: not JSON"),
        ("a.json", '[{"question": "x"}]', "entry 0: not a HotpotQA question"),
        ("a.json", "[]", "holds no passages"),
        ("a.txt", "x", "a corpus is a"),
        ("", "", "there is no corpus file"),
    ],
)
def test_a_corpus_file_that_is_none_is_named(tmp_path: Path, name: str, text: str, message: str):
    path = tmp_path / (name or "missing.jsonl")
    if name:
        path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        load_corpus(str(path))
    assert str(path) in str(error.value)


# retrievers -----------------------------------------------------------------------------------------------------------


def test_bm25_ranks_by_words_and_stems():
    retriever = BM25(PASSAGES)
    found = retriever.search("the mills of the RIVER", 3)
    assert [passage.id for passage in found] == ["1", "2", "3"]
    assert found[0].score > found[1].score > found[2].score > 0
    assert retriever.search("composers", 5)[0].title == "Ada Orwen"
    assert (
        retriever.search("xyzzy", 5)
        == retriever.search("the of", 5)
        == retriever.search("", 5)
        == retriever.search("mill", 0)
        == []
    )
    assert retriever.search("mill river", 4) == retriever.search("river mill", 4)


def test_equal_scores_keep_the_order_of_the_corpus():
    twins = [Passage(str(i), "Twin", "the same words") for i in range(50)]
    assert [passage.id for passage in BM25(twins).search("same twin", 7)] == [str(i) for i in range(7)]
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = rng.integers(0, 4, size=20).astype(np.float32)
        k = int(rng.integers(1, 25))
        assert best(scores, k) == sorted(range(20), key=lambda i: (-scores[i], i))[:k]


def test_bm25_answers_alike_under_threads():
    retriever = build()
    queries = [passage.title for passage in fiction()[:100]]
    expected = [retriever.search(query, 3) for query in queries]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda query: retriever.search(query, 3), queries)) == expected
    assert all(query in [passage.title for passage in found] for query, found in zip(queries, expected, strict=True))


def test_hotpotqa_recall_is_that_of_the_published_measurement(shared_data: Path):
    file = shared_data / "qa" / "hotpot_dev_distractor_sample.json"
    retriever = build(corpus=str(file))
    questions = json.loads(file.read_text())
    found_any, found_all = 0, 0
    for question in questions:
        titles = {passage.title for passage in retriever.search(question["question"], 5)}
        gold = set(question["supporting_facts"]["title"])
        found_any += bool(titles & gold)
        found_all += gold <= titles
    assert found_any / len(questions) == pytest.approx(0.97, abs=0.02)
    assert found_all / len(questions) == pytest.approx(0.56, abs=0.03)


@pytest.mark.slow
def test_dense_retrieval_with_a_tiny_encoder(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    words = sorted({word.strip(".").lower() for passage in PASSAGES for word in passage.contents.split()})
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ":", "query", "passage", *words])
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words) + 8, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    encoder = tmp_path / "encoder"
    transformers.BertModel(config).save_pretrained(encoder)
    transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt")).save_pretrained(encoder)

    from env_servers.retrieval.dense import Dense

    settings = {"encoder": str(encoder), "embeddings": str(tmp_path / "vectors"), "batch": 3}
    retriever = Dense(PASSAGES, **settings, query_prefix="passage: ")
    for passage in PASSAGES:
        found = retriever.search(passage.contents, 2)
        assert found[0].id == passage.id and found[0].score == pytest.approx(1.0, abs=1e-4) and found[1].score < 1.0
    queries = ["a river", "who was born in a mill and what did this composer write", "grain"]
    one_by_one = [retriever.search(query, 4) for query in queries]
    batched = retriever.search_many(queries, 10)
    assert [[p.id for p in found] for found in batched] == [[p.id for p in found] for found in one_by_one], (
        "padding must not count"
    )
    [file] = (tmp_path / "vectors").iterdir()
    np.save(file, np.load(file)[::-1])
    again = Dense(PASSAGES, **settings, query_prefix="passage: ")
    assert again.search(PASSAGES[0].contents, 1)[0].id == "4", "the kept vectors are used"
    assert again.name == retriever.name
    assert Dense(PASSAGES[:2], **settings).name != retriever.name and len(list((tmp_path / "vectors").iterdir())) == 2
    with pytest.raises(RuntimeError, match="no folder with a sentence encoder"):
        build("dense", {"encoder": str(tmp_path / "nothing")})


def test_options_that_do_not_fit_are_named(tmp_path: Path):
    for arguments, message in [
        (("bm26",), "no retriever is called"),
        (("bm25", {"k2": 1}), "has no setting k2; it has b, k1"),
        (("bm25", {"passages": []}), "has no setting passages"),
        (("web", {}, str(tmp_path)), "does not search a corpus"),
        (("dense",), "encoder"),
        (("json:loads",), "is not a subclass of Retriever"),
        (("no_such_module:X",), "cannot import"),
    ]:
        with pytest.raises(ValueError, match=message):
            build(*arguments)
    assert isinstance(build(f"{__name__}:Counting", {"name": "mine"}), Counting)
    assert all(requirement.how for requirement in requirements())


# the cache ------------------------------------------------------------------------------------------------------------


def test_what_was_recorded_is_replayed_and_nothing_else(tmp_path: Path):
    inner = Counting()
    recorder = Cached(inner, Cache(str(tmp_path / "cache.sqlite")))
    first = recorder.search("Old  Mill", 2)
    assert recorder.search("old mill", 2) == first and inner.calls == 1
    assert recorder.search("old mill", 3) != first and inner.calls == 2, "k is part of the question"
    cache = Cache(str(tmp_path / "cache.sqlite"), "replay")
    assert Cached(inner, cache).search("old mill", 2) == first and inner.calls == 2
    with pytest.raises(RetrievalFailure, match="holds no answer of counting to '2 new mill'"):
        Cached(inner, cache).search("new mill", 2)
    with pytest.raises(RetrievalFailure, match="holds no answer of other"):
        Cached(Counting("other"), cache).search("old mill", 2)
    assert inner.calls == 2 and len(cache) == 2


def test_a_failed_answer_is_not_kept(tmp_path: Path):
    cache = Cache(str(tmp_path / "cache.sqlite"))

    def fails() -> None:
        raise RetrievalFailure("down")

    with pytest.raises(RetrievalFailure, match="down"):
        cache.get("source", "question", fails)
    assert cache.get("source", "question", lambda: ["up"]) == ["up"]


def test_a_file_that_is_no_cache_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"no recording .*nothing\.sqlite to replay"):
        Cache(str(tmp_path / "nothing.sqlite"), "replay")
    (tmp_path / "text").write_text("not a database, but some text that is long enough to be looked at as one" * 20)
    for mode in ("record", "replay"):
        with pytest.raises(ValueError, match="cannot be used as a cache"):
            Cache(str(tmp_path / "text"), mode)


ASK_MANY = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from env_servers.retrieval.cache import Cache
cache = Cache(sys.argv[1])
with ThreadPoolExecutor(4) as pool:
    print(json.dumps(list(pool.map(lambda i: cache.get("source", str(i), lambda: [sys.argv[2], i]), range(30)))))
"""


def test_threads_and_processes_share_one_answer(tmp_path: Path):
    path = str(tmp_path / "cache.sqlite")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ASK_MANY, path]
    children = [subprocess.Popen([*command, str(worker)], env=environ, stdout=subprocess.PIPE) for worker in range(3)]
    answers = [json.loads(child.communicate(timeout=60)[0]) for child in children]
    assert answers[0] == answers[1] == answers[2] and [i for _, i in answers[0]] == list(range(30))
    assert len(Cache(path, "replay")) == 30


# services that are called ---------------------------------------------------------------------------------------------


def test_a_busy_service_is_asked_again_until_the_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("env_servers.retrieval.http.BACKOFF_S", 0.01)
    monkeypatch.setenv("SOME_KEY", "s3cret")
    with endpoint(lambda number, _: (200, {"x": 1}) if number == 3 else (503, "busy")) as (url, asked):
        service = Service("the service", Key("SOME_KEY"), deadline_s=10, attempts=3)
        assert service.call("GET", url, lambda answer: answer["x"]) == 1
        assert len(asked) == 3 and asked[0]["headers"]["Authorization"] == "Bearer s3cret"
    for answer, attempts, message in [
        ((503, "busy"), 3, "no answer in 3 attempts"),
        ((401, "who are you"), 1, "refuses the request: status 401"),
        ((200, "<html>"), 1, "another form"),
        ((200, {"y": 1}), 1, "another form"),
    ]:
        with endpoint(lambda number, _, answer=answer: answer) as (url, asked):
            with pytest.raises(RetrievalFailure, match=message) as error:
                service.call("GET", url, lambda answer: answer["x"])
            assert len(asked) == attempts and "s3cret" not in str(error.value)


def test_a_call_ends_by_its_deadline():
    with endpoint(lambda number, _: (time.sleep(5.0), (200, {}))[1]) as (url, asked):
        with pytest.raises(RetrievalFailure, match=r"within 0.3 s; the last: ReadTimeout"):
            Service("slow", None, deadline_s=0.3, attempts=5).call("GET", url, lambda answer: answer)
        assert len(asked) <= 1, "it does not begin anew"
    with pytest.raises(RetrievalFailure, match="ConnectError"):
        Service("gone", None, deadline_s=0.3, attempts=1).call("GET", "http://127.0.0.1:9", lambda answer: answer)


def test_a_web_search_is_a_post_or_an_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERPER_API_KEY", "key-1")
    hits = [
        {"title": "Mill", "link": "http://mill", "snippet": "An old mill."},
        {"title": "no text"},
        {"snippet": "untitled", "link": "x"},
    ]
    with endpoint(lambda number, _: (200, {"organic": hits, "web": {"results": hits}} if number < 3 else {})) as (
        url,
        asked,
    ):
        found = build("web", {"url": url}).search("old mill", 2)
        assert found == [Passage("http://mill", "Mill", "An old mill.", 1.0), Passage("x", "", "untitled", 0.333333)]
        assert asked[0]["body"] == {"q": "old mill", "num": 2} and asked[0]["headers"]["X-Api-Key"] == "key-1"
        other = Web(url=f"{url}/s?q={{query}}&n={{k}}", key_header="X-Token", results="web.results")
        assert other.search("a & b", 1) == found[:1]
        assert asked[1]["path"] == "/s?q=a+%26+b&n=1" and asked[1]["headers"]["X-Token"] == "key-1"
        assert other.search("nothing", 3) == []


def test_without_a_key_nothing_is_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SERPER_API_KEY", "key-1")
    with endpoint(lambda number, _: (200, {"organic": [{"title": "Mill", "link": "m", "snippet": "Old."}]})) as (
        url,
        asked,
    ):
        recorded = build("web", {"url": url}, cache=Cache(str(tmp_path / "cache"))).search("mill", 1)
        monkeypatch.delenv("SERPER_API_KEY")
        with pytest.raises(RuntimeError, match="needs a key in the environment variable SERPER_API_KEY"):
            build("web", {"url": url})
        with pytest.raises(RetrievalFailure, match="is not called without it"):
            Web(url=url).search("mill", 1)
        assert len(asked) <= 1, "it does not begin anew"
        replaying = build("web", {"url": url}, cache=Cache(str(tmp_path / "cache"), "replay"))
        assert replaying.search("mill", 1) == recorded and len(asked) == 1, "a replay needs no key"


def test_a_summary_is_asked_for_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SUMMARY_KEY", "key-2")
    cache = Cache(str(tmp_path / "cache"))
    with endpoint(lambda number, _: (200, CHAT)) as (url, asked):
        summariser = ChatSummariser(
            base_url=f"{url}/v1/", model="m", key_env="SUMMARY_KEY", passage_chars=9, cache=cache
        )
        for _ in range(2):
            assert summariser.summarise("Why?", ["first"], "mill", PASSAGES[:2]) == "The mill is old."
        [request] = asked
        assert request["path"] == "/v1/chat/completions" and request["headers"]["Authorization"] == "Bearer key-2"
        prompt = request["body"]["messages"][0]["content"]
        assert (
            "Question: Why?" in prompt
            and "Earlier searches: first" in prompt
            and "[2] Mill\nMills gri\n" in prompt + "\n"
        )
        assert request["body"]["model"] == "m" and request["body"]["temperature"] == 0.0
    monkeypatch.delenv("SUMMARY_KEY")
    with pytest.raises(RuntimeError, match="SUMMARY_KEY"):
        ChatSummariser(base_url=url, model="m", key_env="SUMMARY_KEY")
    with (
        endpoint(lambda number, _: (200, {"choices": []})) as (url, asked),
        pytest.raises(RetrievalFailure, match="another form"),
    ):
        ChatSummariser(base_url=url, model="m").summarise("Why?", [], "mill", PASSAGES)


# the service ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(create_app(BM25(PASSAGES), token=TOKEN)) as url:
        yield url


def test_the_protocol_is_that_of_et_agent(url: str):
    with http_client(url) as client:
        documents = client.post("/search", json={"query": "river mill", "top_n": 2}).json()
        assert documents == [
            {"id": "1", "contents": f"River Tamis\n{PASSAGES[0].text}"},
            {"id": "2", "contents": f"Mill\n{PASSAGES[1].text}"},
        ]
        scored, scores = client.post("/search", json={"query": "river mill", "top_n": 2, "return_score": True}).json()
        assert scored == documents and scores[0] > scores[1] > 0
        body = {"query": ["river mill", "nothing known"], "top_n": 2}
        [first, second] = client.post("/batch_search", json=body).json()
        assert first == documents and second == [{"id": "4", "contents": "Nothing of the kind."}]
        assert client.post("/batch_search", json={**body, "return_score": True}).json()[1][0] == scores
        assert client.get("/health").json() == {"status": "ok", "retrievers": {"total": 16, "available": 16}}
        assert b"env_idle_retrievers" in client.get("/metrics").content


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("search", {"query": "  "}, 400),
        ("batch_search", {"query": ["mill", ""]}, 400),
        ("search", {"queries": "mill"}, 422),
        ("search", {"query": "mill", "top_n": 0}, 422),
        ("search", {"query": "x" * 9000}, 422),
        ("batch_search", {"query": "mill"}, 422),
    ],
)
def test_a_bad_request_is_refused(url: str, path: str, body: dict[str, Any], status: int):
    with http_client(url) as client:
        assert client.post(f"/{path}", json=body).status_code == status


def test_only_the_token_opens_the_door(url: str):
    with http_client(url, token=None) as stranger:
        assert stranger.post("/search", json={"query": "mill"}).status_code == 401
        assert stranger.get("/health").status_code == 200


def test_a_remote_retriever_finds_what_the_server_finds(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AGENTR_RETRIEVAL_TOKEN", TOKEN)
    remote, local = build("remote", {"url": url}), BM25(PASSAGES)
    queries = ["river mill", "composer", "nothing", "xyzzy"]
    assert [remote.search(query, 3) for query in queries] == [local.search(query, 3) for query in queries]
    assert remote.search_many(queries, 3) == local.search_many(queries, 3)
    monkeypatch.delenv("AGENTR_RETRIEVAL_TOKEN")
    with pytest.raises(RetrievalFailure, match="401"):
        Remote(url=url).search("mill", 1)


class Failing(Retriever):
    """Is down, or slow."""

    name = "failing"

    def __init__(self) -> None:
        self.released = threading.Event()

    def search(self, query: str, k: int) -> list[Passage]:
        if query == "slow":
            self.released.wait(30)
        raise RetrievalFailure("the index is elsewhere")


def test_a_search_that_fails_is_a_5xx():
    retriever = Failing()
    with serving(create_app(retriever, token=None, timeout_s=1.0, threads=2)) as url, http_client(url, None) as client:
        down = client.post("/search", json={"query": "x"})
        assert (down.status_code, down.json()["error"]) == (503, "the index is elsewhere")
        assert client.post("/batch_search", json={"query": ["x"]}).status_code == 503
        assert client.post("/search", json={"query": "slow"}).status_code == 504
        assert client.get("/health").json()["retrievers"] == {"total": 2, "available": 1}
        retriever.released.set()
        wait_until(lambda: client.get("/health").json()["retrievers"]["available"] == 2, "the thread to be free again")


def test_the_command_serves(tmp_path: Path):
    command = [sys.executable, "-m", "env_servers.retrieval", "--port", "0"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), TOKEN_ENV: TOKEN}
    more = ["--setting", "k1=0.9", "--cache", str(tmp_path / "cache")]
    with subprocess.Popen([*command, *more], env=environ, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            line = json.loads(child.stdout.readline())
            assert line["pid"] == child.pid and line["retriever"].startswith("bm25(k1=0.9, b=0.75")
            with http_client(line["url"]) as client:
                assert (
                    client.post("/search", json={"query": "Almere", "top_n": 1})
                    .json()[0]["contents"]
                    .startswith("Almere\n")
                )
        finally:
            child.terminate()
            assert child.wait(20) in (0, -signal.SIGTERM)


def test_arguments_that_cannot_be_used_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.delenv(TOKEN_ENV, raising=False)
    for arguments, message in [
        (["--host", "0.0.0.0", "--port", "0"], f"set a token in {TOKEN_ENV}"),
        (["--corpus", "none.jsonl"], "there is no corpus file"),
        (["--cache", "none.sqlite", "--cache-mode", "replay"], "no recording"),
    ]:
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
