// Held-out tasks under two policies: which were lost, which won.

import { useState } from "preact/hooks";
import { address } from "../answers";
import type { Tasks } from "../api";
import { defaultPair, FLIPS, flips, sign, type Flip, type TaskLine } from "../flips";
import { number, percent } from "../format";
import { readable } from "../hostile";
import { go, useAnswer } from "../hooks";
import { Pager, Said, Scroll, Search, Select, Shown } from "../parts";
import { href } from "../route";

type Query = Record<string, string>;

const SIZE = 100;

/** Places of the two chosen policies. */
export function chosenPair(found: Tasks, query: Query): [number, number] {
  const [first, last] = defaultPair(found.policies);
  const place = (stage: string | undefined, otherwise: number) => {
    const at = found.policies.findIndex((policy) => policy.stage === stage);
    return at < 0 ? otherwise : at;
  };
  return [place(query.a, first), place(query.b, last)];
}

/** `left` and `right` have the policies to choose from: those of one run, or of two. */
export function PairSelect({ left, right = left, pair, onChange, onSwap }: { left: Tasks; right?: Tasks; pair: [number, number]; onChange: (change: Query) => void; onSwap?: (a: string, b: string) => void }) {
  const choices = (found: Tasks) => found.policies.map((policy) => ({ value: policy.stage, title: policy.title }));
  const [a, b] = [left.policies[pair[0]]?.stage ?? "", right.policies[pair[1]]?.stage ?? ""];
  return (
    <>
      <Select label="From" value={a} choices={choices(left)} onChange={(next) => onChange({ a: next, b })} />
      <Select label="to" value={b} choices={choices(right)} onChange={(next) => onChange({ a, b: next })} />
      <button type="button" onClick={() => (onSwap ? onSwap(a, b) : onChange({ a: b, b: a }))}>Swap</button>
    </>
  );
}

export function TasksPage({ run, query }: { run: string; query: Query }) {
  const answer = useAnswer<Tasks>(address("tasks", { run }));
  return (
    <>
      <h1>Held-out tasks: what changed</h1>
      <Shown answer={answer} tall="40rem">
        {(found) => (found.policies.length ? <Changes found={found} run={run} query={query} /> : <p>No policy was measured on held-out tasks yet.</p>)}
      </Shown>
    </>
  );
}

function Changes({ found, run, query }: { found: Tasks; run: string; query: Query }) {
  const pair = chosenPair(found, query);
  const words = (query.search ?? "").toLowerCase();
  const tasks = found.tasks.filter((task) => !words || [task.key, task.task, task.problem].some((text) => text.toLowerCase().includes(words)));
  const groups = flips(tasks, pair[0], pair[1]);
  const group: Flip = FLIPS.find(([name]) => name === query.group)?.[0] ?? FLIPS.find(([name]) => groups[name].length)?.[0] ?? "lost";
  const set = (change: Query, replace = false) => go(href("tasks", run, { ...query, ...change }), replace);
  const net = groups.won.length - groups.lost.length;
  return (
    <>
      <div class="bar">
        <PairSelect left={found} pair={pair} onChange={set} />
        <Search label="Search" value={query.search ?? ""} onChange={(search) => set({ search }, true)} />
      </div>
      <ul class="groups">
        {FLIPS.filter(([name]) => name !== "unmeasured" || groups[name].length > 0).map(([name, title]) => (
          <li><button type="button" aria-pressed={group === name} onClick={() => set({ group: name })}>{title} <strong>{groups[name].length}</strong></button></li>
        ))}
      </ul>
      <p class="about">{net === 0 ? "As many were won as lost" : `${Math.abs(net)} more ${net > 0 ? "won than lost" : "lost than won"}`}, of {tasks.length} tasks.</p>
      <Lines key={`${group} ${pair.join()}`} lines={groups[group]} found={found} pair={pair} run={run} />
    </>
  );
}

function Lines({ lines, found, pair, run }: { lines: TaskLine[]; found: Tasks; pair: [number, number]; run: string }) {
  const [offset, setOffset] = useState(0);
  const [a, b] = pair.map((at) => found.policies[at]);
  if (!lines.length) return <p>None.</p>;
  const score = (value: number | null) => (value === null ? "–" : value === 1 ? "solved" : value === 0 ? "failed" : percent(value));
  return (
    <>
      <Pager offset={offset} size={SIZE} total={lines.length} onMove={setOffset} />
      <Scroll label="Tasks">
        <table class="rows">
          <thead>
            <tr>
              <th scope="col">Task</th><th scope="col">{a.title}</th><th scope="col">{b.title}</th><th scope="col" class="num">Turns</th><th scope="col">Under all policies</th>
            </tr>
          </thead>
          <tbody>
            {lines.slice(offset, offset + SIZE).map((task) => (
              <tr>
                <th scope="row"><a href={href("episodes", run, { task: task.key, a: a.stage, b: b.stage })}><Said text={task.task || readable(task.key)} /></a></th>
                <td>{score(task.scores[pair[0]])}</td>
                <td>{score(task.scores[pair[1]])}</td>
                <td class="num">{number(task.turns[pair[0]])} → {number(task.turns[pair[1]])}</td>
                <td><Marks task={task} found={found} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

/** One sign a policy, in their order. */
function Marks({ task, found }: { task: TaskLine; found: Tasks }) {
  const told = found.policies.map((policy, at) => `${policy.title} ${task.scores[at] === null ? "not measured" : percent(task.scores[at], 0)}`).join(", ");
  return <span title={told}><span class="hidden">{told}</span><span aria-hidden="true">{task.scores.map((value) => <span class={value === null ? "sign" : value > 0 ? "sign good" : "sign bad"}>{sign(value)}</span>)}</span></span>;
}
