// Tokens with how likely they were. What is not known is shown as not known.

import { SURPRISES, surprise } from "./colour";
import { number } from "./format";
import { pieces } from "./hostile";
import { Said, Scroll } from "./parts";

export interface Run { from: number; to: number; level: number; learnt: boolean; advantage: number | null }

/** Tokens that look alike and follow each other. Those that are learnt or have a log-probability stand alone, so that each says its own. */
export function runsOf(count: number, logprobs: (number | null)[], mask: number[] | null, advantages: number[] = [], begins: (at: number) => boolean = () => false): Run[] {
  const runs: Run[] = [];
  for (let at = 0; at < count; at++) {
    const level = surprise(logprobs[at]);
    const learnt = mask ? mask[at] === 1 : false;
    const advantage = advantages[at] ?? null;
    const last = runs.at(-1);
    if (last && !begins(at) && last.level === level && level === -1 && last.learnt === learnt && last.advantage === advantage) last.to = at + 1;
    else runs.push({ from: at, to: at + 1, level, learnt, advantage });
  }
  return runs;
}

interface TokensProps {
  tokens: string[];
  logprobs: (number | null)[];
  /** 1 where a token is learnt; null where that is not the question. */
  mask: number[] | null;
  advantages?: number[];
  /** Where turns begin, with the address of each. */
  turns?: ReadonlyMap<number, { id: number; href: string }>;
  from?: number;
  to?: number;
}

export function Tokens({ tokens, logprobs, mask, advantages = [], turns, from = 0, to = tokens.length }: TokensProps) {
  const part = runsOf(to - from, logprobs.slice(from, to), mask?.slice(from, to) ?? null, advantages.slice(from, to), (at) => turns?.has(from + at) ?? false);
  return (
    <pre class="tokens" tabIndex={0} aria-label="Tokens">
      {part.map((run) => {
        const text = tokens.slice(from + run.from, from + run.to).join("");
        const logprob = run.level < 0 ? "log-probability unknown" : `log p ${number(logprobs[from + run.from])}, p ${number(Math.exp(logprobs[from + run.from] ?? 0))}`;
        const context = mask !== null && !run.learnt;
        const title = `${logprob}${mask ? (run.learnt ? ", learnt" : ", context") : ""}${run.advantage === null ? "" : `, advantage ${number(run.advantage)}`}`;
        const turn = turns?.get(from + run.from);
        return <>{turn && <a class="turnmark" href={turn.href} aria-label={`Turn ${turn.id} in its tree`}>{turn.id}</a>}<span class={`token ${context && run.level < 0 ? "context" : `level${run.level < 0 ? "none" : run.level}`} ${run.learnt ? "learnt" : ""}`} title={title}><Pieces text={text} /></span></>;
      })}
    </pre>
  );
}

/** The line breaks of a token are seen in the text itself; what would not be seen is named. */
function Pieces({ text }: { text: string }) {
  return <>{pieces(text).map((piece) => (piece.unseen ? <span class="unseen">{piece.text}</span> : piece.text))}</>;
}

export function TokenTable({ tokens, logprobs, mask, advantages = [], from = 0, to = tokens.length }: TokensProps) {
  return (
    <Scroll label="Tokens">
      <table class="narrow">
        <thead><tr><th scope="col">#</th><th scope="col">Token</th><th scope="col">log p</th><th scope="col">p</th>{mask && <th scope="col">Learnt</th>}{advantages.length > 0 && <th scope="col">Advantage</th>}</tr></thead>
        <tbody>
          {tokens.slice(from, to).map((token, index) => {
            const at = from + index;
            const logprob = logprobs[at] ?? null;
            return (
              <tr class={mask && mask[at] === 1 ? "learnt" : ""}>
                <td class="num">{at}</td>
                <td><code><Said text={JSON.stringify(token).slice(1, -1)} /></code></td>
                <td class="num">{logprob === null ? "unknown" : number(logprob)}</td>
                <td class="num">{logprob === null ? "unknown" : number(Math.exp(logprob))}</td>
                {mask && <td>{mask[at] === 1 ? "learnt" : "–"}</td>}
                {advantages.length > 0 && <td class="num">{number(advantages[at])}</td>}
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}

export function TokenLegend({ mask }: { mask: boolean }) {
  return (
    <p class="legend">
      {SURPRISES.map((title, level) => <span><span class={`token level${level}`}>token</span> {title}</span>)}
      <span><span class="token levelnone">token</span> unknown</span>
      {mask && <><span><span class="token learnt">token</span> learnt</span><span><span class="token context">token</span> context</span></>}
    </p>
  );
}
