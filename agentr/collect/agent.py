"""One turn of an agent in its environment: sample, parse, execute, and put together what a strategy is given."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentr.collect.advice import bridge
from agentr.collect.asked import answered, check_settings, codec_of, following, heard, narrowed, refusals
from agentr.collect.meter import Meter
from agentr.collect.redraw import drawn_again, refused_since
from agentr.collect.sampler import Sampler
from agentr.collect.sessions import Sessions
from agentr.config.model import ModelConfig
from agentr.config.policy import PolicyConfig, SamplingConfig
from agentr.config.schema import Config, EnvConfig, TaskSelection
from agentr.config.turns import CutOff, FullContext, PromptConfig, TurnsConfig, WithoutAction
from agentr.envs.client import EnvClient, Session
from agentr.errors import PromptRefused
from agentr.policy.base import GenerateRequest, Policy
from agentr.policy.chat import ChatCodec
from agentr.search import Child, Expansion, Origin, Tree
from agentr.search.tree import Node, Spent
from agentr.secrets import Secret
from agentr.seeds import derived_seed
from agentr.tasks.formats import CUT_OFF, ActionFormat, Parsed, action_format
from agentr.tasks.prompt import opening as opening_of
from agentr.tasks.tools import tools_of
from agentr.types import (
    Asked,
    CallStatus,
    Completion,
    Cost,
    FinishReason,
    Message,
    Observation,
    Outcome,
    Sampling,
    Task,
    messages_of,
)
from env_servers.observation import NOT_AGAIN, Again, OtherAnswer
from env_servers.protocol import EnvironmentSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Expanded:
    """Turns that were taken after one node, in the order drawn.

    Attributes:
        children: What the strategy is given.
        sessions: The session that stands behind each child; equal actions share one.
        events: Counts of what happened besides: turns that could not be parsed.
        policy_s: Seconds until the policy had answered.
        env_s: Seconds until the environment had carried out the actions.
        again: What it took to bring a program back to the node.
    """

    children: list[Child]
    sessions: list[Session]
    cost: Cost
    events: dict[str, int]
    policy_s: float = 0.0
    env_s: float = 0.0
    again: Again = NOT_AGAIN

    def account(self, tree: Tree, node: int, attempt: int) -> None:
        """Adds to a tree what the turns after ``node`` took."""
        tree.spend(replace(self.cost, cached_tokens=0))
        tree.count(**self.events)
        cost, (starts, answers, seconds) = self.cost, self.again
        taken = (cost.completions, self.policy_s, self.env_s, cost.cached_tokens, starts, answers, seconds)
        tree.pay(Spent(node, attempt, *taken))


@dataclass(frozen=True)
class Prompt:
    """What the policy sees when it is to speak after a node.

    Attributes:
        messages: The same as text.
        room: Tokens of the context that are left.
        forgotten: How many of the oldest turns are left out.
        kept: Tokens of it that each later prompt has: where turns may be left out, those of the opening.
    """

    token_ids: tuple[int, ...]
    messages: tuple[Message, ...]
    room: int
    forgotten: int
    kept: int


def prompt_after(tree: Tree, node: int, context: int, turn: int, full: FullContext) -> Prompt:
    """Returns what the policy sees after ``node``.

    Args:
        context: Size of the policy's context.
        turn: Tokens for which oldest turns are left out, as few as have to be, where turns may be left out.
    """
    opening, forgotten, truncates = len(tree.prompt_ids), 0, full is FullContext.truncate
    lengths = [tree.length(turn) for turn in tree.path(node)] if truncates else []
    while opening + sum(lengths[forgotten:]) + turn > context and forgotten < len(lengths) - 1:
        forgotten += 1
    ids = tuple(tree.prompt(node, forgotten))
    messages = tuple(tree.conversation(node, forgotten))
    return Prompt(ids, messages, context - len(ids), forgotten, opening if truncates else len(ids))


@dataclass(frozen=True)
class AgentSettings:
    """What of a configuration says how the agent acts, and on what.

    Attributes:
        run: Its name, for metrics.
        held_out: The tasks that the run is measured on.
    """

    run: str
    env: EnvConfig
    model: ModelConfig
    policy: PolicyConfig
    prompt: PromptConfig
    turns: TurnsConfig
    sampling: SamplingConfig
    held_out: TaskSelection

    @classmethod
    def of(cls, config: Config) -> AgentSettings:
        of_run = (config.run.name, config.env, config.model, config.policy)
        return cls(*of_run, config.prompt, config.turns, config.collect.sampling, config.eval.tasks)


@dataclass(frozen=True, kw_only=True)
class Agent:
    """Everything that is needed to take a turn. Shared by all trees of a stage.

    Attributes:
        max_model_len: Context of the policy in tokens.
        policy_name: Name of the policy, stored in each tree.
        on_start: Told of each tree that is started.
        secrets: Values of the environment variables that the configuration names; by default this process's.
        meter: Counts what the turns take.
    """

    policy: Policy
    env: EnvClient
    codec: ChatCodec
    spec: EnvironmentSpec
    format: ActionFormat
    prompt: PromptConfig
    sampling: SamplingConfig
    max_model_len: int
    turns: TurnsConfig = field(default_factory=TurnsConfig)
    policy_name: str = ""
    on_start: Callable[[Tree], None] = lambda tree: None
    secrets: Mapping[str, str | Secret] = field(default_factory=lambda: os.environ, repr=False)
    meter: Meter = field(default_factory=Meter)

    @classmethod
    def of(
        cls,
        settings: AgentSettings,
        policy: Policy,
        env: EnvClient,
        codec: ChatCodec,
        spec: EnvironmentSpec,
        secrets: Mapping[str, str | Secret] | None = None,
        meter: Meter | None = None,
    ) -> Agent:
        """Returns the agent of a configuration; it samples as ``collect`` says."""
        codec = codec.offering(tools_of(spec), settings.turns)
        return cls(
            policy=policy,
            env=env,
            codec=codec,
            spec=spec,
            format=codec.calls
            or action_format(spec.action_format, settings.turns.without_action is WithoutAction.last_line),
            prompt=settings.prompt,
            turns=settings.turns,
            sampling=settings.sampling,
            max_model_len=settings.model.max_model_len,
            secrets=os.environ if secrets is None else secrets,
            meter=meter or Meter(),
        )

    @property
    def sampler(self) -> Sampler:
        return Sampler(self.policy, self.codec, self.format)

    def _codec(self, asked: Asked | None) -> ChatCodec:
        return codec_of(self.codec, asked, self.turns.dialect)

    async def start(self, task: Task, seed: int, others: Sequence[OtherAnswer] = ()) -> tuple[Tree, Session]:
        """A new tree of a task, and the session at its root. A first prompt that leaves no room for a turn ends the
        tree at once. ``others`` are what other models answered a program before its first call, where that is known."""
        session = await self.env.open(task, others=others)
        asked = session.last.asked
        codec = self._codec(asked)
        if asked is None:
            messages = opening_of(self.spec, self.prompt, session.last.observation, codec.calls)
        else:
            check_settings(self.prompt, self.turns)
            asked = heard(asked, codec)
            messages = tuple(messages_of(asked.messages or ()))
        tree = Tree.start(task, messages, tuple(codec.prompt(messages)), seed, self.policy_name, asked)
        tree.hiding = None if self.turns.keep_reasoning else self.codec.hiding
        self.on_start(tree)
        if not self.has_room(len(tree.prompt_ids)):
            tree.root.outcome, tree.root.terminal = Outcome.CONTEXT_LIMIT, True
            tree.back_up(0)
        return tree, session

    async def sample(
        self, tree: Tree, expansion: Expansion, session: Session, *, reuse_prefix: bool = True
    ) -> Expanded:
        """Samples the turns of an expansion and executes each distinct action once. The tree is not changed.

        Args:
            reuse_prefix: Take what the engine's prefix cache has; False only to measure what that saves.

        Raises:
            InfraError: The policy or the environment did not answer, after their own retries.
        """
        return await self._draw(tree, expansion, session, self._prompt(tree, expansion.node), reuse_prefix=reuse_prefix)

    async def complete(self, tree: Tree, node: int, session: Session, prefix: str, seed: int) -> Expanded | None:
        """Lets the policy finish a turn that begins with ``prefix``. The turn is no longer than the context allows.

        Returns:
            None if the context has no room for one more token after the beginning.

        Raises:
            InfraError: The policy or the environment did not answer, after their own retries.
        """
        prompt = self._prompt(tree, node)
        if len(self._codec(tree.nodes[node].asked).begin(prefix)) >= prompt.room:
            return None
        return await self._draw(tree, Expansion(node, 0, 1, seed), session, prompt, prefix)

    async def act(self, tree: Tree, node: int, session: Session, text: str) -> Expanded:
        """Takes a given turn (an expert's, a revision's) instead of drawing one."""
        ids = tuple(self._codec(tree.nodes[node].asked).turn(text))
        completion = Completion(text, ids, (), FinishReason.STOP)
        return await self._execute(tree, node, session, self._prompt(tree, node), [completion], Cost())

    async def retake(self, tree: Tree, node: int, session: Session, turn: Node) -> Expanded:
        """Takes a turn of another path once more after ``node``, with the ids that it has there."""
        completion = Completion(turn.text, turn.token_ids, (), turn.finish)
        return await self._execute(tree, node, session, self._prompt(tree, node), [completion], Cost())

    def _prompt(self, tree: Tree, node: int) -> Prompt:
        return prompt_after(tree, node, self.max_model_len, self.sampling.max_tokens, self.turns.full_context)

    async def _draw(
        self,
        tree: Tree,
        asked: Expansion,
        session: Session,
        prompt: Prompt,
        prefix: str = "",
        reuse_prefix: bool = True,
    ) -> Expanded:
        codec = self._codec(tree.nodes[asked.node].asked)
        sampler = replace(self.sampler, codec=codec)
        request = _request(self, codec, tree, asked, prompt, prefix, reuse_prefix)
        try:
            completions, cost, seconds = await sampler.draw(request, prefix)
            refused = set[str]() if prefix else refused_since(tree, asked.node, self.turns)
            again = (sampler, request, completions, refused, lambda one: self._parse(one).action, self.turns)
            completions, more, took, chosen = await drawn_again(*again)
        except PromptRefused as error:
            return _refused(tree.nodes[asked.node], session, asked.n, error)
        if request.sampling.form:  # an engine reports them under the grammar, and a trainer cannot compute them so
            completions = [replace(completion, logprobs=()) for completion in completions]
        turns = await self._execute(tree, asked.node, session, prompt, completions, cost + more, seconds + took)
        return replace(turns, events={**turns.events, "redrawn": chosen}) if chosen else turns

    async def _execute(
        self,
        tree: Tree,
        node: int,
        session: Session,
        prompt: Prompt,
        completions: Sequence[Completion],
        cost: Cost,
        policy_s: float = 0.0,
    ) -> Expanded:
        parsed = [self._parse(completion) for completion in completions]
        if program := tree.nodes[node].asked:  # it reads the turns itself, also those that we cannot
            offers, size = self._codec(program), len(prompt.token_ids)
            sent = [answered(completion, size, program, offers) for completion in completions]
        else:
            sent = [turn.action for turn in parsed]
        actions = list(dict.fromkeys(action for action in sent if action is not None))
        started = time.monotonic()
        executed = dict(zip(actions, await session.expand(actions) if actions else [], strict=True))
        env_s = round(time.monotonic() - started, 4)
        self.meter.turns(tree, node, cost, policy_s, env_s)
        lost = refusals(tree, node, [after.last for after in executed.values()])
        events = Counter(unparsed=sum(p.action is None for p in parsed), not_repeated=lost)
        again = Again.sum(after.last.again for after in executed.values())
        turns = Expanded([], [], cost + Cost(env_steps=len(actions)), +events, policy_s, env_s, again)
        for completion, turn, action in zip(completions, parsed, sent, strict=True):
            after = session if action is None else executed[action]
            seen = after.last
            if action is None:  # the environment is not asked, and the return so far stays
                seen = Observation.failed(turn.problem, tree.nodes[node].reward)
            child = _child(tree, self.codec, completion, turn.action or "", seen, prompt.forgotten)
            if seen.asked is not None:
                codec = self._codec(seen.asked)
                child = replace(child, **following(tree, node, codec, child, prompt.token_ids, seen.asked), sent=action)
            turns.children.append(replace(child, outcome=self._outcome(tree, prompt, child, seen)))
            turns.sessions.append(after)
        return turns

    def _parse(self, completion: Completion) -> Parsed:
        if completion.finish is FinishReason.LENGTH and self.turns.cut_off is CutOff.refused:
            return Parsed(None, problem=CUT_OFF)
        return self.sampler.read(completion.text, completion.token_ids)

    def _outcome(self, tree: Tree, prompt: Prompt, child: Child, seen: Observation) -> Outcome | None:
        if seen.asked is not None and seen.asked.refused:
            return Outcome.REFUSED
        if seen.done:
            return Outcome.SUCCESS if seen.reward >= self.spec.reward.success else Outcome.FAILURE
        taken = prompt.kept + tree.length(child) if child.behind is None else child.behind[1] + len(child.bridge_ids)
        return None if self.has_room(taken) else Outcome.CONTEXT_LIMIT

    def has_room(self, tokens: int) -> bool:
        """Whether a turn has room after so many tokens."""
        return tokens + self.sampling.max_tokens <= self.max_model_len


def _request(
    agent: Agent, codec: ChatCodec, tree: Tree, asked: Expansion, prompt: Prompt, prefix: str, reuse_prefix: bool
) -> GenerateRequest:
    own, begun = agent.sampling, codec.begin(prefix) if prefix else ()
    sampling = Sampling(
        own.temperature if asked.temperature is None else asked.temperature,
        min(own.max_tokens, prompt.room - len(begun)) if prefix else own.max_tokens,
        own.top_p,
        asked.seed,
        agent.format.stop,
        codec.stop_ids,
    )
    if (call := tree.nodes[asked.node].asked) is not None:
        # what a turn is begun with follows no grammar either
        sampling = narrowed(sampling, call, codec, free=bool(prefix) or not agent.turns.grammar)
    return GenerateRequest(
        (*prompt.token_ids, *begun),
        asked.n,
        sampling,
        affinity=tree.task.key,
        messages=(*prompt.messages, Message("assistant", prefix)) if prefix else prompt.messages,
        reuse_prefix=reuse_prefix,
        codec=codec,
        settings={} if call is None else call.settings,
    )


def _child(
    tree: Tree, codec: ChatCodec, completion: Completion, action: str, seen: Observation, forgotten: int
) -> Child:
    reasoning = codec.reasoning(completion.token_ids)
    shown = completion.token_ids if tree.hiding is None else completion.token_ids[reasoning:]
    return Child(
        text=completion.text,
        token_ids=completion.token_ids,
        bridge_ids=bridge(codec, completion.text, shown, seen.observation),
        logprobs=completion.logprobs,
        finish=completion.finish,
        action=seen.executed or action,
        observation=seen.observation,
        reward=seen.reward,
        valid=seen.valid,
        status=seen.status,
        scores=seen.scores,
        forgotten=forgotten,
        reasoning=reasoning,
    )


def _refused(before: Node, session: Session, n: int, refused: PromptRefused) -> Expanded:
    """The end of the episode after a node: an empty turn for each that was to be drawn, which is no turn of the
    agent's."""
    log.warning("the prompt after turn %d was refused, and the episode ends there: %s", before.id, refused)
    child = Child(
        text="",
        token_ids=(),
        bridge_ids=(),
        logprobs=(),
        finish=FinishReason.LENGTH,
        action="",
        observation="",
        reward=before.reward,
        valid=False,
        outcome=Outcome.REFUSED,
        status=CallStatus.error,
    )
    return Expanded([child] * n, [session] * n, Cost(calls=1), {"refused": 1})


async def take_turn(
    tree: Tree,
    node: int,
    agent: Agent,
    sessions: Sessions,
    origin: Origin,
    label: str,
    opening: str | None = None,
    finish: Callable[[Child], Child] = lambda child: child,
) -> int | None:
    """Draws one turn after ``node`` and puts it into the tree.

    Args:
        label: Names the turn in its seed.
        opening: How the turn begins; None leaves that to the policy.
        finish: May end the path with the turn.

    Returns:
        The turn's node, or None if there is no room for one that begins like this.
    """
    session, seed = await sessions.at(node), derived_seed(tree.seed, label, len(tree.nodes))
    if opening is None:
        turns = await agent.sample(tree, Expansion(node, 0, 1, seed), session)
    elif (turns := await agent.complete(tree, node, session, opening, seed)) is None:
        return None
    turns.account(tree, node, 0)
    taken = tree.add(node, finish(turns.children[0]), origin).id
    sessions.keep(taken, turns.sessions[0])
    return taken
