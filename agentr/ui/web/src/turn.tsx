// One turn: what the agent wrote, what the environment answered.

import { useState } from "preact/hooks";
import type { TurnView } from "./api";
import { ask, address, alone, problemOf } from "./answers";
import type { PageProblem, Turns } from "./api";
import { number, plural, seconds } from "./format";
import { Chip, Said, Trouble } from "./parts";
import { Tokens, TokenTable } from "./tokens";
import type { Where } from "./turns";
import { spoken } from "./words";

export type TextMode = "text" | "tokens" | "table";

export const MODES: { value: TextMode; title: string }[] = [
  { value: "text", title: "text" }, { value: "tokens", title: "tokens by probability" }, { value: "table", title: "tokens as a table" },
];

/** Characters of an observation that are shown at once. */
const SHORT = 400;

interface TurnBodyProps {
  turn: TurnView;
  where: Where;
  mode: TextMode;
  /** 1 for each token that is learnt; null where that is not the question. */
  mask?: number[] | null;
}

export function TurnBody({ turn: given, where, mode, mask: asked = null }: TurnBodyProps) {
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
  return (
    <>
      {turn.forgotten > 0 && <p class="faint">The oldest {plural(turn.forgotten, "turn")} were not seen when this was drawn.</p>}
      {turn.tokens && mode === "tokens" ? <Tokens tokens={turn.tokens} logprobs={turn.logprobs} mask={mask} />
        : turn.tokens && mode === "table" ? <TokenTable tokens={turn.tokens} logprobs={turn.logprobs} mask={mask} />
        : <pre class={learnt ? "wrote learnt" : "wrote"}><Said text={turn.text || "(nothing)"} /></pre>}
      {(turn.cut > 0 || turn.observationCut > 0) && (
        <p class="faint">{turn.cut + turn.observationCut} characters are left out. {!alone && <button type="button" onClick={fetchWhole}>Show all</button>}</p>
      )}
      {problem && <Trouble problem={problem} />}
      <TurnFacts turn={turn} />
      {turn.verdict && (
        <p class="verdict">judge: <strong><Said text={turn.verdict.rating} /></strong> {turn.verdict.reason && <Said text={turn.verdict.reason} />}
          {turn.verdict.answer && <details><summary>What the judge wrote</summary><pre class="wrote"><Said text={turn.verdict.answer} /></pre></details>}
        </p>
      )}
      {turn.observation && <Observation text={turn.observation} />}
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

/** What the environment answered; a long one is folded. */
function Observation({ text }: { text: string }) {
  if (text.length <= SHORT) return <blockquote class="observed"><Said text={text} /></blockquote>;
  return (
    <details class="observed">
      <summary><Said text={`${text.slice(0, 160).replace(/\s+/g, " ")}…`} /></summary>
      <Said text={text} />
    </details>
  );
}

/** Where the tokens of a turn are left out, nothing is said of them. */
export function Known({ logprobs }: { logprobs: (number | null)[] }) {
  const found = logprobs.filter((value): value is number => value !== null);
  if (!logprobs.length) return null;
  if (!found.length) return <Chip>log p unknown</Chip>;
  const sum = found.reduce((all, value) => all + value, 0);
  return <span>log p {number(sum)}{found.length < logprobs.length && ` of ${found.length} of ${logprobs.length} tokens`}</span>;
}
