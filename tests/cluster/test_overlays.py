"""Sets of values for kinds of clusters."""

from pathlib import Path

import pytest

from agentr.config.overlays import overlays
from agentr.config.policy import Device
from agentr.config.training import Share
from agentr.errors import ConfigError
from agentr.methods import load


def test_each_is_laid_over_a_file_and_under_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("trainer: {use_gpu: false}\ncluster: {wait_s: 7, lease_s: 11}\n")
    assert overlays() == ["cpu_cluster", "gpu_cluster", "gpu_node", "local"]
    for name in overlays():
        config = load(file, [f"cluster={name}", "cluster.lease_s=12"])
        assert config.trainer.use_gpu == name.startswith("gpu") and config.cluster.lease_s == 12
        assert config.policy.device is (Device.gpu if name.startswith("gpu") else Device.cpu)
        assert bool(config.cluster.nodes.engine) == name.endswith("cluster")
    assert load(file, ["cluster=gpu_cluster"]).trainer.share is Share.split
    assert load(file, ["cluster=gpu_cluster", "trainer.share=time"]).trainer.share is Share.time
    assert (
        load(file, ["cluster=gpu_cluster", "cluster.nodes.driver={agentr-role: head}"]).cluster.nodes.driver[
            "agentr-role"
        ]
        == "head"
    )


def test_a_file_names_one_of_agentrs_or_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("cluster: {wait_s: 60, nodes: {engine: {zone: b}}}\npolicy: {engines: 3}\n")
    (tmp_path / "run.yaml").write_text("cluster: mine.yaml\npolicy: {threads: 2}\n")
    config = load(tmp_path / "run.yaml")
    assert (config.cluster.wait_s, config.cluster.nodes.engine, config.policy.engines, config.policy.threads) == (
        60,
        {"zone": "b"},
        3,
        2,
    )
    (tmp_path / "base.yaml").write_text("cluster: gpu_node\n")
    (tmp_path / "above.yaml").write_text("include: [base.yaml]\ntrainer: {share: split}\n")
    assert load(tmp_path / "above.yaml").trainer.share is Share.split


@pytest.mark.parametrize(
    "name, answer",
    [
        ("gpu_clster", "there is no cluster 'gpu_clster'. Did you mean gpu_cluster?"),
        ("zzz", "There are cpu_cluster, gpu_cluster, gpu_node, local; or give a YAML file."),
        ("broken.yaml", "broken.yaml cannot be read"),
        ("list.yaml", "holds no sections with keys"),
        ("unknown.yaml", r"cluster unknown.yaml: unknown key 'cluster.wait'. Did you mean 'cluster.wait_s'?"),
    ],
)
def test_a_wrong_one_is_refused(name: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in (("broken", "{"), ("list", "[]"), ("unknown", "cluster: {wait: 1}")):
        (tmp_path / f"{file}.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load(None, [f"cluster={name}"])
    assert answer in str(error.value)
