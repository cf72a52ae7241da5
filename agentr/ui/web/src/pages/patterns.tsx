// What recurs in the held-out episodes of each policy, and how many of those succeeded; luck among what was learnt.

import { address } from "../answers";
import type { Luck, Pattern, Patterns } from "../api";
import { isReference } from "../flips";
import { percent } from "../format";
import { readable } from "../hostile";
import { go, useAnswer } from "../hooks";
import { Said, Scroll, Select, Shown } from "../parts";
import { href } from "../route";
import { spoken } from "../words";

type Query = Record<string, string>;
type Policy = Patterns["policies"][number];

/** Most episodes that are named. */
const NAMED = 60;

export function PatternsPage({ run, query }: { run: string; query: Query }) {
  const answer = useAnswer<Patterns>(address("patterns", { run }));
  return (
    <>
      <h1>Patterns of held-out episodes</h1>
      <Shown answer={answer} tall="40rem">
        {(found) => (
          <>
            {found.policies.length ? <Found found={found} run={run} query={query} /> : <p>No policy was measured on held-out tasks yet.</p>}
            {found.luck.length > 0 && <LuckByRound rounds={found.luck} run={run} />}
          </>
        )}
      </Shown>
    </>
  );
}

function Found({ found, run, query }: { found: Patterns; run: string; query: Query }) {
  const policy = found.policies.find((one) => one.stage === query.policy) ?? found.policies.findLast((one) => !isReference(one.title)) ?? found.policies[0];
  const names = [...new Set(found.policies.flatMap((one) => one.patterns.map((pattern) => pattern.name)))];
  return (
    <>
      <Scroll label="Patterns by policy">
        <table class="narrow">
          <caption>Share of the episodes in which it occurs; in brackets, how many of those succeeded.</caption>
          <thead><tr><th scope="col">Pattern</th>{found.policies.map((one) => <th scope="col" class="num"><Said text={one.title} /></th>)}</tr></thead>
          <tbody>
            {names.map((name) => (
              <tr>
                <th scope="row">{name}<div class="faint small">{found.policies[0].patterns.find((pattern) => pattern.name === name)?.about}</div></th>
                {found.policies.map((one) => <td class="num"><Share pattern={one.patterns.find((pattern) => pattern.name === name)} /></td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <div class="bar">
        <Select label="Episodes of" value={policy.stage} choices={found.policies.map((one) => ({ value: one.stage, title: one.title }))} onChange={(next) => go(href("patterns", run, { ...query, policy: next }), true)} />
        {policy.read < policy.episodes && <span class="faint">The first {policy.read} of {policy.episodes} episodes were read.</span>}
      </div>
      <div class="columns">
        <Lengths policy={policy} />
        <Outcomes policy={policy} />
      </div>
      <Examples title="Patterns" patterns={policy.patterns} policy={policy} run={run} />
      <Examples title="Turns that open alike" patterns={policy.openings} policy={policy} run={run} />
    </>
  );
}

function Share({ pattern }: { pattern: Pattern | undefined }) {
  if (!pattern || !pattern.of) return <>–</>;
  return <>{percent(pattern.episodes / pattern.of, 0)} <span class="faint">({pattern.succeeded} of {pattern.episodes})</span></>;
}

function Lengths({ policy }: { policy: Policy }) {
  const most = Math.max(1, ...policy.lengths.map(([, episodes]) => episodes));
  return (
    <section aria-labelledby="lengths">
      <h2 id="lengths">Turns of an episode</h2>
      <ul class="bars" aria-label="Episodes by their number of turns, those that succeeded first">
        {policy.lengths.slice(0, 60).map(([turns, episodes, succeeded]) => (
          <li>
            <span class="num">{turns}</span>
            <span class="stack"><span class="part series0" style={{ width: `${(100 * succeeded) / most}%` }} /><span class="part series1" style={{ width: `${(100 * (episodes - succeeded)) / most}%` }} /></span>
            <span class="num">{succeeded} of {episodes}</span>
          </li>
        ))}
      </ul>
      <p class="legend"><span><span class="swatch series0" /> succeeded</span><span><span class="swatch series1" /> did not</span></p>
    </section>
  );
}

function Outcomes({ policy }: { policy: Policy }) {
  return (
    <section aria-labelledby="outcomes">
      <h2 id="outcomes">How episodes ended</h2>
      <table class="narrow"><tbody>{Object.entries(policy.outcomes).map(([name, episodes]) => <tr><th scope="row"><Said text={spoken(name)} /></th><td class="num">{episodes}</td><td class="num">{percent(episodes / Math.max(1, policy.read), 0)}</td></tr>)}</tbody></table>
    </section>
  );
}

function Examples({ title, patterns, policy, run }: { title: string; patterns: Pattern[]; policy: Policy; run: string }) {
  const there = patterns.filter((pattern) => pattern.episodes > 0);
  if (!there.length) return null;
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {there.map((pattern) => (
        <details>
          <summary><Said text={pattern.name} /> <span class="faint">in {pattern.episodes} of {pattern.of} episodes, {pattern.succeeded} of them succeeded ({percent(pattern.succeeded / pattern.episodes, 0)})</span></summary>
          <Trees keys={pattern.keys} stage={policy.stage} run={run} />
          {pattern.episodes > Math.min(NAMED, pattern.keys.length) && <p class="faint">The first {Math.min(NAMED, pattern.keys.length)}.</p>}
        </details>
      ))}
    </section>
  );
}

function Trees({ keys, stage, run }: { keys: string[]; stage: string; run: string }) {
  return <ul class="keys">{keys.slice(0, NAMED).map((key) => <li><a href={href("tree", run, { stage, key, view: "outline" })}><Said text={readable(key)} /></a></li>)}</ul>;
}

function LuckByRound({ rounds, run }: { rounds: Luck[]; run: string }) {
  return (
    <section aria-labelledby="luck">
      <h2 id="luck">Luck among the turns to be learnt</h2>
      <p class="faint">Turns were taken again in other worlds that fit what was seen before them. It was luck where that earned less than half.</p>
      {rounds.map((round) => (
        <details>
          <summary><Said text={round.title} /> <span class="faint">{round.luck} of {round.tried} turns ({percent(round.luck / round.tried, 0)})</span></summary>
          <Trees keys={round.keys} stage={round.stage} run={run} />
        </details>
      ))}
    </section>
  );
}
