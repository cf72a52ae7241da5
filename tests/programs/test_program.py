"""A program as an environment: what it asks, how it ends, what it may not do, and what is not lost by it."""

import json
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from env_servers.base import Failed, Unavailable, UnknownTask
from env_servers.observation import CallStatus
from env_servers.program import Program
from env_servers.sandbox import launch

pytestmark = pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here")

#: Asks a model by the standard library, and lets its caller see status and body.
CLIENT = """
import json, os, sys, time, threading, urllib.error, urllib.request
task = json.load(open(os.environ["AGENTR_TASK"]))

def post(url, body, key=None, timeout=60):
    headers = {"Authorization": "Bearer " + (key or os.environ["OPENAI_API_KEY"]), "Content-Type": "application/json"}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=timeout) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)

def ask(*messages, **more):
    body = {"model": "m", "messages": list(messages), **more}
    return post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)

def said(*messages, **more):
    return ask(*messages, **more)[1]["choices"][0]["message"]["content"]

def user(text):
    return {"role": "user", "content": text}

def assistant(text):
    return {"role": "assistant", "content": text}

def report(**about):
    return post(os.environ["AGENTR_REPORT"], about)

def reward(value):
    json.dump(value, open("reward.json", "w"))
"""

Make = Callable[..., Program]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes an environment of a program, given as its code."""
    made: list[Program] = []

    def of(code: str, tasks: list[dict[str, Any]] | None = None, **options: Any) -> Program:
        work, file = tmp_path / f"work{len(made)}", tmp_path / "tasks.jsonl"
        work.mkdir()
        (work / "agent.py").write_text(CLIENT + textwrap.dedent(code))
        file.write_text("\n".join(json.dumps(task) for task in tasks or [{"id": "one"}]))
        options = {"command": [sys.executable, "agent.py"], "workdir": str(work), "live": 3} | options
        made.append(Program(tasks={"train": str(file)}, **options))
        return made[-1]

    yield of


TALK = """
    messages = [user("Go.")]
    for n in range(task.get("turns", 3)):
        messages += [assistant(said(*messages)), user(f"seen {n}")]
    reward(0.5)
"""


# the inversion --------------------------------------------------------------------------------------------------------


def test_calls_are_observations_and_answers_are_turns(make: Make) -> None:
    env = make(TALK, reward="")
    state, first = env.reset("one")
    assert first.observation == "Go." and first.asked is not None and not first.done
    assert first.asked.messages == ({"role": "user", "content": "Go."},) and first.asked.after == 0
    seen = [env.step(state, turn) for turn in ("a", "b", "c")]
    assert [o.observation for o in seen] == ["seen 0", "seen 1", ""] and [o.done for o in seen] == [False, False, True]
    assert [(o.asked.after, o.asked.answered) for o in seen[:2] if o.asked] == [(1, True), (2, True)]
    assert seen[-1].reward == 0.5 and seen[-1].asked is not None and seen[-1].asked.messages is None


@pytest.mark.parametrize("live", [1, 2, 8])
def test_a_branch_is_the_program_begun_again(make: Make, live: int) -> None:
    env = make(TALK, live=live)
    state, _ = env.reset("one")
    states = [env.fork(state) for _ in range(3)]
    told = [env.step(s, turn).observation for s, turn in zip(states, ("a", "b", "c"), strict=True)]
    deeper = [env.fork(s) for s in states for _ in range(2)]
    told += [env.step(s, f"deep {n}").observation for n, s in enumerate(deeper)]
    assert told == ["seen 0"] * 3 + ["seen 1"] * 6
    back = env.restore(json.loads(json.dumps(env.snapshot(deeper[3]))))
    assert [answer.content for _, answer in back.history] == ["b", "deep 3"]
    assert env.step(back, "last").done
    for s in (state, *states, *deeper, back):
        env.close(s)
    assert env._programs._live == 0


def test_an_episode_without_branches_is_played_once(make: Make) -> None:
    env = make(TALK, live=1)
    state, observed = env.reset("one")
    while not observed.done:
        state, old = env.fork(state), state
        observed = env.step(state, "on")
        env.close(old)
    assert env._programs.starts == 1


@pytest.mark.parametrize(
    "differs, where",
    [
        ("time.time_ns()", "messages.0.content"),
        ("os.urandom(4).hex()", "messages.0.content"),
        ("open('/proc/sys/kernel/random/uuid').read()", "messages.0.content"),
    ],
)
def test_a_program_that_does_not_repeat_itself_is_refused_with_the_place(make: Make, differs: str, where: str) -> None:
    code = f"""
    mark = {differs}
    messages = [user(f"Go {{mark}}.")]
    while True:
        messages += [assistant(said(*messages)), user("on")]
    """
    env = make(code, limits={"early_s": 0.2})
    state, _ = env.reset("one")
    one, other = env.fork(state), env.fork(state)
    assert env.step(one, "a").observation == "on", "the first goes on with the program that runs"
    refused = env.step(other, "b")
    assert refused.done and not refused.valid and refused.asked is not None
    assert re.search(rf"did not repeat itself: in call 1, {where}: .*, was ", refused.asked.refused)
    assert env._programs.starts == 3, "it is tried again once"
    ignoring = make(code, ignore=[f"{where} /Go .*/"])
    state, _ = ignoring.reset("one")
    states = [ignoring.fork(state) for _ in range(3)]
    assert [ignoring.step(s, "a").observation for s in states] == ["on"] * 3


def test_its_world_is_the_same_in_each_session_and_its_own(make: Make) -> None:
    code = """
    import locale, socket
    here = [os.getcwd(), os.environ["HOME"], socket.gethostname(), time.tzname[0], locale.getlocale(), hash("a"),
            sorted(os.listdir(".")), sorted(os.listdir("/tmp")), sorted(k for k in os.environ), os.getpid()]
    open("left", "w").write("x")
    open("/tmp/left", "w").write("x")
    said(user(json.dumps(here)))
    """
    env = make(code, environment={"MINE": "yes"})
    seen = {env.reset("one")[1].observation for _ in range(3)}
    (here,) = map(json.loads, seen)
    assert here[:4] == ["/tmp/agent/work", "/tmp/agent/home", "agent", "UTC"] and here[6] == ["agent.py"]
    assert "MINE" in here[8] and not any("TOKEN" in name for name in here[8])


def test_it_can_change_nothing_outside_and_reach_nobody(make: Make, tmp_path: Path) -> None:
    code = f"""
    import socket
    def tried(what):
        try:
            what()
            return "done"
        except Exception as error:
            return type(error).__name__
    def connect():
        socket.create_connection(("127.0.0.1", task["port"]), timeout=2)
    found = [tried(lambda: open({str(tmp_path / "made")!r}, "w")), tried(lambda: open(sys.executable, "ab")),
             tried(connect), tried(lambda: socket.create_connection(("10.0.0.1", 80), timeout=2)),
             tried(lambda: open("/proc/sys/kernel/hostname", "w")), tried(lambda: open("/proc/sysrq-trigger", "w")),
             tried(lambda: os.kill(1, 9)), sorted(os.listdir("/run")),
             sorted(os.listdir("/dev")), len([p for p in os.listdir("/proc") if p.isdigit()])]
    said(user(json.dumps(found)))
    """
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        env = make(code, [{"id": "one", "port": listener.getsockname()[1]}])
        found = json.loads(env.reset("one")[1].observation)
    assert "done" not in found[:6] and found[-1] == 2 and found[7] == [], found
    assert found[8] == ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "how, code",
    [
        (["agent.py", "x y"], "sys.exit(3)"),
        (["agent.py"], "1 / 0"),
        (["agent.py"], "os._exit(7)"),
        (["-m", "agent", "x y"], "raise SystemExit('bye')"),
    ],
)
def test_modules_that_are_imported_once_make_no_difference(make: Make, how: list[str], code: str) -> None:
    """What a program sees, prints and ends with is what it is without them."""
    code = f"""
    import atexit, locale, pickle, random, socket, subprocess
    class Mine: pass
    here = [os.getcwd(), os.environ, socket.gethostname(), time.tzname[0], locale.getlocale(), hash("a"), __name__,
            sys.argv, sys.path, sorted(os.listdir(".")), sorted(os.listdir("/tmp")), __file__,
            sys.stdout.encoding, sys.executable, pickle.loads(pickle.dumps(Mine())).__class__ is Mine,
            sys.stdin.read(), sorted(os.listdir("/proc/self/fd")),
            subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout,
            [name for name in sys.modules if name.startswith("env_servers")], os.getpid(), threading.active_count(),
            "sqlite3" in sys.modules]
    atexit.register(lambda: print("at the end"))
    thread = threading.Thread(target=lambda: (time.sleep(0.2), print("a thread")))
    said(user(json.dumps(here, default=dict)))
    thread.start()
    {code}
    """
    seen = []
    for preload in ([], ["email.mime.text", "sqlite3"]):
        env = make(code, command=[sys.executable, *how], preload=preload)
        state, first = env.reset("one")
        here = json.loads(first.observation)
        here[1].pop("OPENAI_API_KEY"), here[1].pop("ANTHROPIC_API_KEY")
        assert here.pop() is bool(preload)
        program = state.program
        assert program is not None
        last = env.step(state, "a")
        printed = re.sub(r'(?s)Traceback.*?File "/tmp/agent', 'File "/tmp/agent', program.output)
        seen.append((here, printed, last.observation, last.done))
    assert seen[0] == seen[1] and ("a thread" in seen[0][1] or "os._exit" in code)


def test_what_cannot_be_imported_once_is_a_sentence(make: Make, tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text("import _thread, time\n_thread.start_new_thread(time.sleep, (60,))\n")
    wrapped = tmp_path / "python"
    wrapped.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    wrapped.chmod(0o755)
    for module, sentence in [
        ("no_such_module", "preload: no_such_module cannot be imported: ModuleNotFoundError: No module named"),
        ("threads", "preload: threads starts a thread, which its forks would not have"),
    ]:
        with pytest.raises(Unavailable, match=sentence):
            make(TALK, command=[str(wrapped), "agent.py"], preload=[module]).reset("one")
    tasks = tmp_path / "tasks.jsonl"
    for arguments in ([], ["-u", "agent.py"], ["-m"]):
        with pytest.raises(ValueError, match="preload is for a command of a Python outside of workdir and a script"):
            Program([sys.executable, *arguments], {"train": str(tasks)}, preload=["json"])
    with pytest.raises(ValueError, match="preload is for a command of a Python outside of workdir"):
        Program(["./python", "agent.py"], {"train": str(tasks)}, workdir=str(tmp_path), preload=["json"])
    with pytest.raises(ValueError, match="must be a list of modules"):
        Program([sys.executable, "agent.py"], {"train": str(tasks)}, preload="json")


# what a program does --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, sentence",
    [
        ("print('a word'); sys.exit(3)", "ended with status 3 before it called the model. It printed last: a word"),
        ("sys.exit(0)", "ended before it called the model"),
        (
            "ask(user('Go.'), n=2)",
            "before it called the model: its request was refused, since n=2 is not served. It printed last: nothing",
        ),
        ("os.kill(os.getpid(), 11)", "was ended by signal 11 before"),
        ("time.sleep(60)", "did not call the model within 1.5 s"),
        ("while True: print('x' * 100000)", "printed more than 1 MB before"),
        ("x = bytearray(300 << 20)\ntime.sleep(60)", "took more than 200 MB of memory before"),
        (
            "import subprocess\nfor _ in range(40): subprocess.Popen(['sleep', '60'])\ntime.sleep(60)",
            "had more than 30 processes",
        ),
    ],
)
def test_one_that_never_asks_is_a_sentence(make: Make, code: str, sentence: str) -> None:
    limits = {"first_call_s": 1.5 if "60" in code and "range" not in code and "byte" not in code else 20}
    env = make(code, limits={**limits, "output_mb": 1, "memory_mb": 200, "processes": 30})
    with pytest.raises(Failed) as failed:
        env.reset("one")
    assert sentence in failed.value.reason and env._programs._live == 0


def test_one_that_is_not_there_is_refused_at_once(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no program 'no-such-agent'"):
        make(TALK, command=["no-such-agent"])


@pytest.mark.parametrize(
    "code, status, text",
    [
        ("sys.exit(4)", CallStatus.error, "ended with status 4"),
        ("time.sleep(60)", CallStatus.timeout, "took too long"),
        ("x = bytearray(300 << 20)\n    time.sleep(60)", CallStatus.error, "took more than 200 MB"),
    ],
)
def test_one_that_breaks_after_an_answer_has_ended_the_episode(
    make: Make, code: str, status: CallStatus, text: str
) -> None:
    limits = {"step_s": 20 if "byte" in code else 2, "memory_mb": 200}
    env = make(
        f"""
    said(user("Go."))
    {code}
    """,
        limits=limits,
    )
    state, _ = env.reset("one")
    observed = env.step(state, "a")
    assert observed.done and observed.status is status and text in observed.observation and observed.reward == 0
    assert env._programs._live == 0


def test_everything_that_it_started_ends_with_it(make: Make, tmp_path: Path) -> None:
    code = """
    import subprocess
    code = "import time; time.sleep(1000) # agentr-left-behind"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    said(user("Go."))
    """

    def left() -> int:
        found = 0
        for entry in Path("/proc").iterdir():
            try:
                found += b"agentr-left-behind" in (entry / "cmdline").read_bytes() if entry.name.isdigit() else 0
            except OSError:
                continue
        return found

    env = make(code)
    state, _ = env.reset("one")
    assert left() == 1
    env.close(state)
    assert left() == 0
    state, _ = env.reset("one")
    assert env.step(state, "a").done and left() == 0


def test_a_client_that_gives_up_and_asks_again_has_asked_once(make: Make) -> None:
    env = make("""
    try:
        body = {"model": "m", "messages": [user("Go.")]}
        post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, timeout=0.5)
    except OSError:
        pass
    said(user("Go."))
    said(user("Go."), assistant("x"), user("On."))
    """)
    state, _ = env.reset("one")
    time.sleep(1)
    assert state.program is not None and len(state.program.waits()) == 1
    assert env.step(state, "x").observation == "On." and len(state.history) == 1


@pytest.mark.parametrize(
    "code, sentence",
    [
        ("os.rename('../work', '../other'); os.symlink('/etc', '../work')", "put a link in the place of its folder"),
        ("open('reward.json', 'w').write(' ' * 20000 + '1')", "reward.json returned no JSON"),
    ],
)
def test_what_it_leaves_is_checked(make: Make, code: str, sentence: str) -> None:
    env = make(f"said(user('Go.'))\n{code}")
    state, _ = env.reset("one")
    with pytest.raises(Failed) as failed:
        env.step(state, "a")
    assert sentence in failed.value.reason and env._programs._live == 0


def test_nothing_is_left_of_a_server(make: Make) -> None:
    env = make(TALK)
    state, _ = env.reset("one")
    root = env._programs._root
    assert root.is_dir()
    env.stop()
    assert not root.exists() and state.program is not None
    assert state.program.wait(lambda _: None, 10) is None and state.program.ended == "was killed"


def test_what_cannot_be_served_is_refused_in_the_providers_form(make: Make) -> None:
    code = """
    url = os.environ["OPENAI_BASE_URL"]
    calls = [ask(), ask(user("a"), n=2), ask({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}),
             ask(user("a"), tools=[{"type": "function"}]), post(url + "/chat/completions", b"{"),
             post(url + "/chat/completions", {"model": "m", "messages": [user("a")]}, key="other"),
             post(url + "/embeddings", {}), ask(user("\\ud800")),
             report(reward=7), report(actoin="x"), report(status="fine"), report(scores={"a": "b"})]
    said(user(json.dumps(calls)))
    """
    observed = make(code).reset("one")[1].observation
    statuses = [(status, body["error"]["message"]) for status, body in json.loads(observed)]
    assert [status for status, _ in statuses] == [400, 400, 400, 400, 400, 401, 404, 400, 400, 400, 400, 400]
    for (_, message), part in zip(
        statuses, ["messages is empty", "n=2", "'image_url'", "no function", "no JSON"], strict=False
    ):
        assert part in message


def test_a_report_is_what_the_wire_does_not_carry(make: Make) -> None:
    env = make("""
    said(user("Go."))
    report(action="look", observation="A door.", valid=False, status="empty", reward=0.25)
    said(user("Go."), assistant("x"), user("A door, and more."))
    report(action="open", observation="It opens.", reward=1.0, scores={"doors": 1.0})
    """)
    state, _ = env.reset("one")
    first, last = env.step(state, "x"), env.step(state, "y")
    assert (first.observation, first.valid, first.status, first.reward) == ("A door.", False, CallStatus.empty, 0.25)
    assert first.asked is not None and first.asked.action == "look" and first.asked.messages is not None
    assert (last.observation, last.reward, last.done, dict(last.scores)) == ("It opens.", 1.0, True, {"doors": 1.0})


# rewards --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "grader, sentence",
    [
        ("return float('nan')", "returned NaN"),
        ("return 7", "returned 7, and not a number from 0 to 1"),
        ("return None", "returned null"),
        ("return object()", "failed: TypeError"),
        ("raise OSError('the disk')", "failed: OSError: the disk"),
        ("import time; time.sleep(60)", "took longer than 2 s"),
    ],
)
def test_a_grader_that_fails_is_a_sentence_and_no_reward(
    make: Make, tmp_path: Path, grader: str, sentence: str
) -> None:
    (tmp_path / "grade.py").write_text(f"def score(task, folder, transcript):\n    {grader}\n")
    env = make("said(user('Go.'))", reward=f"{tmp_path}/grade.py:score", grade_s=2)
    state, _ = env.reset("one")
    with pytest.raises(Failed) as failed:
        env.step(state, "a")
    assert sentence in failed.value.reason and env._programs._live == 0


def test_a_grader_sees_task_folder_and_transcript(make: Make, tmp_path: Path) -> None:
    (tmp_path / "grade.py").write_text(
        "from pathlib import Path\n"
        "def score(task, folder, transcript):\n"
        "    print('to the error output')\n"
        "    assert (Path(folder) / 'written').read_text() == task['text'], folder\n"
        "    assert [m['content'] for m in transcript] == ['Go.', 'the answer'], transcript\n"
        "    return {'reward': 1, 'scores': {'lines': 0.5}}\n"
    )
    code = "said(user('Go.'))\nopen('written', 'w').write(task['text'])"
    env = make(code, [{"id": "one", "text": "é"}], reward=f"{tmp_path}/grade.py:score")
    state, _ = env.reset("one")
    observed = env.step(state, "the answer")
    assert observed.reward == 1 and observed.scores == {"lines": 0.5}


# options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, tasks, sentence",
    [
        ({"command": "python agent.py"}, None, "must be a list"),
        ({"limits": {"seconds": 3}}, None, "limits: there is no seconds; there are first_call_s"),
        ({"ignore": ["messages"]}, None, "is not PATH /regex/"),
        ({"ignore": ["messages /(/"]}, None, "ignore: 'messages /(/'"),
        ({"reward": "grade.py"}, None, "is not FILE.py:FUNCTION"),
        ({"workdir": "/no/such"}, None, "there is no folder"),
        ({"success": 0}, None, r"in \(0, 1\]"),
        ({}, [{"id": "a"}, {"id": "a"}], "another task of train has the id 'a'"),
        ({}, [{"name": "a"}], "a task is an object with an id"),
        ({}, [{"id": "a", "labels": [1]}], "labels are texts and numbers"),
        ({}, [{"id": "a", "demonstration": "x"}], "a demonstration is a list"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(make: Make, options: dict[str, Any], tasks: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("(/", r"\(/")):
        make(TALK, tasks, **options)


def test_tasks_have_labels_and_demonstrations_that_the_program_does_not_see(make: Make) -> None:
    task = {"id": 7, "labels": {"depth": 2}, "demonstration": ["a", "b"], "x": 1}
    env = make("said(user(json.dumps(task)))", [task])
    (info,) = env.split("train")
    assert (info.id, info.labels) == ("7", {"depth": 2})
    assert [step.action for step in env.expert("7") or ()] == ["a", "b"]
    assert json.loads(env.reset("7")[1].observation) == {"id": "7", "x": 1}
    for call in (env.reset, env.expert):
        with pytest.raises(UnknownTask):
            call("8")
    assert env.spec.splits["train"].train


def test_calls_side_by_side_are_matched_by_what_they_ask(make: Make) -> None:
    code = """
    def worker(name, heard):
        messages = [user(name)]
        for n in range(2):
            messages += [assistant(said(*messages)), user(f"{name} {n}")]
        heard[name] = messages[1]["content"] + messages[3]["content"]
    heard = {}
    threads = [threading.Thread(target=worker, args=(name, heard)) for name in ("cats", "dogs")]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    said(user(json.dumps(dict(sorted(heard.items())))))
    """
    env = make(code, live=1)
    state, observed = env.reset("one")
    for turn in "abcd":
        observed = env.step(state, turn)
    told = observed.observation
    assert sorted("".join(json.loads(told).values())) == ["a", "b", "c", "d"]
    for _ in range(3):
        again = env.restore(env.snapshot(state))
        program, call, _ = env._at_its_call(again)
        assert call.request.messages[-1]["content"] == told
        env._end(program)


def test_a_call_in_place_of_the_recorded_one_is_refused_at_once(make: Make) -> None:
    env = make(
        """
    messages = [user("Go.")]
    while True:
        messages += [assistant(said(*messages)), user(f"at {time.time_ns()}")]
    """,
        limits={"early_s": 1000},
    )
    state, _ = env.reset("one")
    env.step(state, "a")
    one, other = env.fork(state), env.fork(state)
    env.step(one, "b")
    asked = env.step(other, "c").asked
    assert asked is not None and re.search(r"in call 2, messages\.2\.content: 'at \d+', was 'at \d+'", asked.refused)
