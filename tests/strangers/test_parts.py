"""The parts that hold strangers' things at bay, each by itself."""

import ast
import os
from pathlib import Path

import pytest
import zstandard
from rich.table import Table

from agentr.config.named import imported, looking
from agentr.config.schema import EnvConfig
from agentr.console import Console, echo
from agentr.envs.local import serving
from agentr.envs.server import EnvServer
from agentr.errors import ConfigError, DataError
from agentr.methods import load
from agentr.outside import read_file
from agentr.policy import limited
from agentr.search.stored import decompressed, from_json, to_json
from agentr.store.inside import check_folder
from agentr.store.trust import named
from tests.strangers.attacks import HOSTILE
from tests.trees import door

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "c.yaml"


# configurations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["${oc.env:HOME}", "a ${ oc.env:HOME }", "${${run.name}:HOME}", "\\\\${oc.env:HOME}", "${oc.decode:x}"]
)
@pytest.mark.parametrize(
    "text",
    [
        "prompt: {{system: '{}'}}",
        "env: {{options: {{a: [[{{b: '{}'}}]]}}}}",
        "from_round: {{1: {{prompt: {{system: '{}'}}}}}}",
    ],
)
def test_a_configuration_refers_to_its_own_keys_alone(file: Path, text: str, value: str) -> None:
    file.write_text(text.format(value))
    with pytest.raises(ConfigError, match=r"only keys of the configuration stand in .*env\.token_env"):
        load(file, files=False)
    with pytest.raises(ConfigError, match="only keys"):
        load(None, [f"prompt.system={value}"], files=False)


def test_keys_are_filled_in_once_and_what_a_run_has_stored_says_what_it_says(file: Path) -> None:
    file.write_text(r"prompt: {system: 'seed ${run.seed}, \${HOME}'}")
    assert load(file, files=False).prompt.system == "seed 0, ${HOME}"
    file.write_text(
        r"prompt: {system: '${oc.env:HOME} \${x} ${run.seed}'}" + "\nfrom_round: {2: {collect: {in_flight: 2}}}"
    )
    from agentr.methods import plan_of

    stored = load(file, files=False, whole=True)
    for config in (stored, plan_of(stored).at(2)):
        assert config.prompt.system == r"${oc.env:HOME} \${x} ${run.seed}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env: {url: 'http://me:secret@host/'}", "env.url: the address has a user or a password in it"),
        ("tracking: ['mlflow:https://secret@host/']", "the address has a user or a password"),
        ("include: [/etc/passwd]", "include names '/etc/passwd', and configurations end in"),
        ("model: {chat_template: /etc/passwd}", "/etc/passwd is no file of a template"),
        ("run: {name: '../x'}", "is no name of a run"),
        ('run: {name: "a\\e[2J"}', "is no name of a run"),
        ("cluster: /etc/passwd.yaml", "there is no cluster"),
    ],
)
def test_a_configuration_is_refused_without_what_is_nobodys_business(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(file, files=False)
    assert said in str(refused.value) and "secret" not in str(refused.value) and "root:" not in str(refused.value)


def test_a_template_is_no_link_to_another_file(tmp_path: Path, file: Path) -> None:
    (tmp_path / "secret.txt").write_text("{{ 'secret' }}")
    (tmp_path / "own.jinja").symlink_to("secret.txt")
    with pytest.raises(ConfigError, match="no file of a template"):
        load(None, [f"model.chat_template={tmp_path / 'own.jinja'}"], files=False)


def test_who_looks_runs_no_code_that_is_named(tmp_path: Path, file: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'MARK')!r}, 'w')")
    for text in (
        "method: {type: evil.py}",
        "methods: {evil.py: {}}",
        "method: {type: grpo, rewards: [{name: 'evil:X'}]}",
        "env: {name: 'evil:X'}",
    ):
        file.write_text(text)
        with looking(), pytest.raises(ConfigError, match="code of its own"):
            load(file)
    with looking(), pytest.raises(ConfigError, match="code of its own"):
        imported("evil:X", "reward", ())
    assert not (tmp_path / "MARK").exists()


def test_what_a_configuration_names_is_listed() -> None:
    assert list(named({"run": {"name": "demo"}, "policy": {"openai": {"api_key_env": "OPENAI_API_KEY"}}})) == [], (
        "what agentr names itself"
    )
    config = {
        "method": {"type": "/x/own.py", "rewards": [{"name": "mine:Reward"}]},
        "env": {"python": "/x/python", "url": "http://host", "token_env": "AWS_SECRET_ACCESS_KEY"},
    }
    assert sorted((kind, text) for kind, _, text in named(config)) == [
        ("address", "http://host"),
        ("code", "/x/own.py"),
        ("code", "mine:Reward"),
        ("program", "/x/python"),
        ("variable", "AWS_SECRET_ACCESS_KEY"),
    ]


# environments ---------------------------------------------------------------------------------------------------------


def test_a_token_goes_to_the_server_that_it_is_named_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTR_ENV_TOKEN", "mine")
    monkeypatch.setenv("THEIRS", "theirs")
    for variable, token in (("", ""), ("THEIRS", "theirs")):
        with serving(EnvConfig(url="http://127.0.0.1:9", token_env=variable)) as (_, found):
            assert found.reveal() == token


def test_a_server_has_no_keys_of_its_drivers_but_those_that_its_options_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"OPENAI_API_KEY": "k", "AWS_SECRET_ACCESS_KEY": "k", "HF_TOKEN": "k", "AGENTR_UI_TOKEN": "k"}
    kept = {"JAVA_TOOL_OPTIONS": "-Xmx1g", "ALFWORLD_DATA": "/d", "CUDA_VISIBLE_DEVICES": "", "https_proxy": "p"}
    for name, value in {**keys, **kept}.items():
        monkeypatch.setenv(name, value)
    server = EnvServer(EnvConfig(name="textcraft"), "t", str(tmp_path / "log"))
    try:
        found = Path(f"/proc/{server.status().pid}/environ").read_bytes().split(b"\0")
        given = dict(entry.decode().split("=", 1) for entry in found if entry)
    finally:
        server.stop()
    assert not keys.keys() & given.keys() and kept.items() <= given.items()


# files ----------------------------------------------------------------------------------------------------------------


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 1 << 40)
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / "large"):
        with pytest.raises(OSError, match=r"no file|directory|larger"):
            read_file(path)


def test_links_within_a_run_are_followed_and_others_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "rounds/01/train/model").mkdir(parents=True)
    (run / "best").symlink_to("rounds/01/train/model")
    check_folder(run)
    for target in ("../..", "../../run2", "/", "../best/../../../../../.."):
        (run / "rounds/out").symlink_to(target)
        with pytest.raises(DataError, match="rounds/out is a link that leads out of the run"):
            check_folder(run)
        (run / "rounds/out").unlink()


def test_a_tree_has_no_way_that_leads_back() -> None:
    tree = door()
    assert from_json(to_json(tree)) == tree
    for number, parent in ((2, 2), (2, 3), (1, -1), (0, 0)):
        tree = door()
        tree.nodes[number].parent = parent
        with pytest.raises(DataError, match="is not where it should be"):
            from_json(to_json(tree))


def test_a_tree_of_a_thousand_bytes_is_not_one_of_a_thousand_million(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentr.search.stored.MOST", 10 << 20)
    small = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    assert decompressed(small + b"rest") == (bytes(1 << 20), b"rest")
    with pytest.raises(DataError, match="larger than 10 MiB"):
        decompressed(zstandard.ZstdCompressor().compress(bytes(64 << 20)))


# templates ------------------------------------------------------------------------------------------------------------


def test_a_call_of_a_strangers_template_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "CPU_S", 1)
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def render(template: str) -> str:
        return ImmutableSandboxedEnvironment().from_string(template).render()

    assert limited.limited(render, "{{ 1 + 1 }} \u00e4") == "2 \u00e4"
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    for template, said in (
        (loops, "did not end"),
        ("{{ 'a' * 10**11 }}", "MemoryError"),
        ("{{ x.y.z }}", "UndefinedError"),
    ):
        with pytest.raises(limited.Limit, match=said):
            limited.limited(render, template)


# text -----------------------------------------------------------------------------------------------------------------


def test_all_that_is_shown_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("[/a]", HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE, "[/foo]")
    for console in (Console(), Console(force_terminal=True, color_system=None)):
        console.print(table)
        console.print(HOSTILE, "[/foo] :smile:", style="bold")
    echo(HOSTILE)
    said = capsys.readouterr().out
    assert "[/foo] :smile:" in said and "[U+001B]" in said and "\u202e" not in said and "\x07" not in said
    assert "\x1b]" not in said and "\x9b" not in said


def test_nothing_is_shown_otherwise() -> None:
    """Text of others is made harmless in one place; whoever prints past it would show it raw."""
    past = []
    for path in sorted((ROOT / "agentr").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "typer.echo",
                "click.echo",
                "print",
                "RichConsole",
            ):
                past.append(f"{path.relative_to(ROOT)}: {ast.unparse(node.func)}")
            if isinstance(node, ast.ImportFrom) and node.module == "rich.console":
                past += [
                    f"{path.relative_to(ROOT)}: {alias.name}"
                    for alias in node.names
                    if alias.name == "Console" and not alias.asname
                ]
    allowed = {
        "agentr/console.py: typer.echo",
        "agentr/envs/play.py: Console",  # an annotation
        "agentr/commands/submit.py: print",
        "agentr/track/feed.py: print",  # to a file and a pipe
        "agentr/track/tracking.py: print",
    }
    assert set(past) <= allowed, "print by agentr.console"


def test_an_error_is_shown_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentr import cli

    monkeypatch.setattr("sys.argv", ["agentr", "status", str(tmp_path / "[/x]\x1b[2J")])
    with pytest.raises(SystemExit):
        cli.main()
    assert "[/x][U+001B][2J" in capsys.readouterr().err
