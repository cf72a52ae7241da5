// One turn: what the agent wrote, what the environment answered.

import { useState } from "preact/hooks";
import type { NamedText, TurnView } from "./api";
import { ask, address, alone, problemOf } from "./answers";
import type { PageProblem, Turns } from "./api";
import { number, plural, seconds } from "./format";
import { Chip, Observed, Said, Trouble } from "./parts";
import { Program } from "./program";
import { Tokens, TokenTable } from "./tokens";
import type { Where } from "./turns";
import { spoken } from "./words";

export type TextMode = "text" | "tokens" | "table";

export const MODES: { value: TextMode; title: string }[] = [
  { value: "text", title: "text" }, { value: "tokens", title: "tokens by probability" }, { value: "table", title: "tokens as a table" },
];

interface TurnBodyProps {
  turn: TurnView;
  where: Where;
  mode: TextMode;
  /** 1 for each token that is learnt; null where that is not the question. */
  mask?: number[] | null;
  /** Those of the tree, and how its turns are counted. */
  tools: NamedText[];
  number?: (id: number) => number;
}

export function TurnBody({ turn: given, where, mode, mask: asked = null, tools, number = (id) => id }: TurnBodyProps) {
  const [whole, setWhole] = useState<TurnView | null>(null);
  const [problem, setProblem] = useState<PageProblem | null>(null);
  const turn = whole ?? given;
  const fetchWhole = () => {
    ask<Turns>(address("turns", { ...where, nodes: turn.id, whole: 1 }))
      .then((found) => setWhole(found.turns[0]))
      .catch((error: unknown) => setProblem(problemOf(error)));
  };
  const mask = turn.tokens && asked?.length === turn.tokens.length ? asked : null;
  const learnt = asked?.includes(1) ?? false;
  const cut = turn.cut + turn.observationCut + (turn.program?.cut ?? 0);
  return (
    <>
      {turn.forgotten > 0 && <p class="faint">The oldest {plural(turn.forgotten, "turn")} were not seen when this was drawn.</p>}
      {turn.tokens && mode === "tokens" ? <Tokens tokens={turn.tokens} logprobs={turn.logprobs} mask={mask} />
        : turn.tokens && mode === "table" ? <TokenTable tokens={turn.tokens} logprobs={turn.logprobs} mask={mask} />
        : <pre class={learnt ? "wrote learnt" : "wrote"}><Said text={turn.text || "(nothing)"} /></pre>}
      {cut > 0 && (
        <p class="faint">{cut} characters are left out. {!alone && <button type="button" onClick={fetchWhole}>Show all</button>}</p>
      )}
      {problem && <Trouble problem={problem} />}
      <TurnFacts turn={turn} />
      {turn.verdict && (
        <p class="verdict">judge: <strong><Said text={turn.verdict.rating} /></strong> {turn.verdict.reason && <Said text={turn.verdict.reason} />}
          {turn.verdict.answer && <details><summary>What the judge wrote</summary><pre class="wrote"><Said text={turn.verdict.answer} /></pre></details>}
        </p>
      )}
      {turn.observation && <Observed text={turn.observation} />}
      {turn.program && <Program program={turn.program} tools={tools} turn={turn.id} number={number} />}
    </>
  );
}

function TurnFacts({ turn }: { turn: TurnView }) {
  const told: string[] = [];
  if (turn.finish && turn.finish !== "stop") told.push(`ended by ${spoken(turn.finish)}`);
  if (turn.status && turn.status !== "ok") told.push(`call: ${spoken(turn.status)}`);
  if (turn.reasoning) told.push(plural(turn.reasoning, "token of reasoning", "tokens of reasoning"));
  if (turn.seconds) told.push(`waited ${seconds(turn.seconds.policy)} for the policy, ${seconds(turn.seconds.environment)} for the environment`);
  for (const [name, value] of Object.entries(turn.scores)) told.push(`${spoken(name)} ${number(value)}`);
  return told.length ? <p class="faint small">{told.map((fact) => <span class="pair"><Said text={fact} /></span>)}</p> : null;
}

/** Where the tokens of a turn are left out, nothing is said of them. */
export function Known({ logprobs }: { logprobs: (number | null)[] }) {
  const found = logprobs.filter((value): value is number => value !== null);
  if (!logprobs.length) return null;
  if (!found.length) return <Chip>log p unknown</Chip>;
  const sum = found.reduce((all, value) => all + value, 0);
  return <span>log p {number(sum)}{found.length < logprobs.length && ` of ${found.length} of ${logprobs.length} tokens`}</span>;
}
