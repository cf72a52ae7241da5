"""Agent-R (arXiv 2501.11425) in one file: search trees, revise what went wrong, train on it, measure.
No Ray, no cluster, three minutes.

    python examples/agent_r_in_one_file.py

The agent is ``nano``, the small language model that comes with agentr; its tasks are those of TextCraft: craft an item,
one text command at a time. It learns the game from an expert first, mostly on tasks of one step. Then the steps of the
paper follow, each a function below:

1. ``search``: a tree of episodes for each task by Monte Carlo tree search (section 3.2).
2. ``revise``: where a bad episode of a tree first went wrong, say so, and go on as a good one of the same tree did (Eq.
   3 and 4).
3. ``imitate``: train on the revisions that earned what the good episode did, and on good episodes.
4. ``measure``: success on held-out tasks, with a 95 % interval over problems.

The whole system does the same with vLLM engines on many machines, trainers on several GPUs, and stages that survive
being killed: ``agentr run configs/demo.yaml``.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.demonstrate import Demonstrate
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, Work, run_job
from agentr.collect.judge import Judge
from agentr.collect.units import Limits, StageProgress
from agentr.config.model import Dtype, ModelConfig
from agentr.config.policy import PolicyConfig, SamplingConfig
from agentr.config.schema import BuildConfig, Config, EnvConfig, TaskSelection
from agentr.config.turns import PromptConfig
from agentr.envs.client import EnvClient
from agentr.envs.connect import connect
from agentr.envs.local import serving
from agentr.evaluate.metrics import Evaluation, evaluate
from agentr.methods.agent_r import Revise
from agentr.methods.agent_r.revise import ReviseConfig
from agentr.models.load import load_codec, resolve
from agentr.policy.vllm_engine import VLLMEngine
from agentr.rows.revision import demonstrated_rows, good_rows, revision_rows
from agentr.rows.targets import Targets
from agentr.search import UCT, Sample, UCTConfig
from agentr.search.revision import Splice
from agentr.store.forest import Forest
from agentr.store.rows import Row
from agentr.types import Task

SEED = 0
MODEL = ModelConfig(dtype=Dtype.float32)
ENV = EnvConfig(name="textcraft", options={"recipes": "exact", "distractors": 3})
PLAY = SamplingConfig(temperature=1.0, max_tokens=48)
GREEDY = SamplingConfig(temperature=0.0, max_tokens=48)
SEARCH = UCTConfig(iterations=8, max_depth=9, width=4, max_invalid=3, enough_good=3, enough_bad=2)
REVISE = ReviseConfig(
    judge=Judge.tree, splice=Splice.executed, alpha=[1.0], pairs_per_task=4, reflections=["That did not work."]
)
TARGETS = Targets.of(BuildConfig())

EASY = {"depth": 1, "plan_length": {"max": 6}}
HARD = {"depth": 2, "plan_length": {"max": 6}}


class Trees:
    """Makes forests of trees with one policy in one environment.

    Args:
        folder: Where forests are kept.
        engine: Answers prompts.
        env: Client of the environment's servers.
        agent: Takes turns: prompt, answer, action, observation.
    """

    def __init__(self, folder: Path, engine: VLLMEngine, env: EnvClient, agent: Agent) -> None:
        self.folder, self.engine, self.env, self.agent = folder, engine, env, agent

    async def tasks(self, split: str, where: dict, limit: int) -> list[Task]:
        return await self.env.tasks(TaskSelection(split=split, where=where, limit=limit, seed=1))

    async def grow(
        self,
        name: str,
        work: Work,
        tasks: Sequence[Task],
        sampling: SamplingConfig = PLAY,
        source: Forest | None = None,
    ) -> Forest:
        """Makes one tree for each task; what comes of it depends on the seed alone, not on the order in which answers
        come."""
        folder = self.folder / name
        job = TreeJob(
            folder=folder,
            tasks=tuple(work.tasks(tasks, source)),
            seed=SEED,
            policy=name,
            work=work,
            sampling=sampling,
            limits=Limits(in_flight=48),
            source=source.folder if source else None,
        )
        await run_job(job, self.agent, StageProgress())
        Forest(folder).seal()
        return Forest(folder)


async def search(trees: Trees, tasks: Sequence[Task]) -> Forest:
    """Searches a tree for each task: select a node by UCT, draw turns after it, play to the end, back the return up."""
    return await trees.grow("search", Grow(UCT(SEARCH)), tasks)


async def revise(trees: Trees, searched: Forest) -> Forest:
    """Adds revisions to the trees: a bad path up to its first bad turn, a sentence that says so, and the end of a good
    path.

    Each is carried out in the environment, and kept if it earns what the good path did.
    """
    return await trees.grow("revise", Revise(REVISE, alpha=1.0, search=SEARCH), (), source=searched)


def rows_of(trees: Trees, revised: Forest) -> list[Row]:
    """Returns what is imitated: of each task one revision, and two good episodes of the policy's own."""
    rows = []
    for tree in revised:
        rows += revision_rows(tree, REVISE.splice, trees.agent.codec, trees.agent.format, limit=1, targets=TARGETS)
        rows += good_rows(tree, 1.0, limit=2, targets=TARGETS)
    return [row for row in rows if isinstance(row, Row)]  # the others say why there is none


def imitate(start: Path, rows: Sequence[Row], out: Path, steps: int, batch: int = 16) -> Path:
    """Trains on rows: the cross-entropy of the tokens that the loss mask marks.
    AdamW, with a cosine from 1e-3 to a tenth.

    Args:
        start: Folder of the model to begin with.
        out: Folder of the trained model.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=1e-4)
    order = torch.Generator().manual_seed(SEED)
    queue: list[int] = []
    for _ in range(steps):
        while len(queue) < batch:
            queue += torch.randperm(len(rows), generator=order).tolist()
        chosen, queue = [rows[index] for index in queue[:batch]], queue[batch:]
        length = max(len(row.input_ids) for row in chosen)
        ids = torch.tensor([[*row.input_ids, *[0] * (length - len(row.input_ids))] for row in chosen])
        mask = torch.tensor([[*row.loss_mask, *[0] * (length - len(row.loss_mask))] for row in chosen])
        logits = model(ids).logits[:, :-1]  # padding stands after the tokens, which do not see it
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (loss * mask[:, 1:].flatten()).sum() / mask[:, 1:].sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(start).save_pretrained(out)
    return out


async def measure(trees: Trees, name: str, tasks: Sequence[Task]) -> Evaluation:
    """Plays each held-out task once, greedily."""
    episodes = await trees.grow(name, Grow(Sample(1, max_invalid=6)), tasks, GREEDY)
    spec = trees.agent.spec
    return evaluate(episodes, identity=spec.identity)


async def agent_r(folder: Path) -> tuple[Evaluation, Evaluation]:
    """Returns how the agent did before and after one round of Agent-R."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:4.0f} s  {text}", flush=True)

    base = resolve(MODEL, folder)
    config = Config(env=ENV, model=MODEL, prompt=PromptConfig(instruction=False))
    engine = VLLMEngine(base, MODEL, PolicyConfig(kv_cache_gib=0.5, threads=2))
    with serving(ENV) as (urls, token):
        env = connect(ENV, urls, token)
        try:
            agent = Agent.of(AgentSettings.of(config), engine, env, load_codec(base, MODEL), await env.spec())
            trees = Trees(folder, engine, env, agent)
            held_out, mostly_easy = await trees.tasks("test", HARD, 150), await trees.tasks("train", EASY, 120)
            mostly_easy += await trees.tasks("train", HARD, 40)

            shown = await trees.grow("expert", Demonstrate(), mostly_easy)
            rows = [row for tree in shown for row in demonstrated_rows(tree, TARGETS) if isinstance(row, Row)]
            policy = imitate(base, rows, folder / "warm_start", steps=100)
            await engine.load(policy)
            before = await measure(trees, "before", held_out)
            say(
                f"warm start on {len(rows)} of the expert's episodes: {before.success.as_percent()} % of "
                f"{before.success.n} held-out tasks"
            )

            searched = await search(trees, await trees.tasks("train", HARD, 120))
            say(f"searched {len(searched)} trees, {solved(searched)} of them with a success")
            revised = await revise(trees, searched)
            rows = rows_of(trees, revised)
            kept = sum(row.provenance.kind == "revision" for row in rows)
            say(f"{kept} revisions earned what the good path did; with good episodes that is {len(rows)} rows")

            policy = imitate(policy, rows, folder / "round_1", steps=60)
            await engine.load(policy)
            after = await measure(trees, "after", held_out)
            say(f"after a round of Agent-R: {after.success.as_percent()} % of the same tasks")
            return before, after
        finally:
            engine.close()
            await env.aclose()


def solved(forest: Iterable) -> int:
    """Returns how many trees hold a success."""
    return sum(any(leaf.reward >= 1.0 for leaf in tree.ended()) for tree in forest)


if __name__ == "__main__":
    disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(agent_r(Path(scratch)))
