// Episodes of one held-out task under two policies, of one run or of two, side by side.

import { useState } from "preact/hooks";
import { address, alone } from "../answers";
import type { NamedText, Tasks, TreeView, TurnView } from "../api";
import { endsOf, episodeOf, useFirstDifferent, type Episode } from "../episodes";
import { number } from "../format";
import { readable } from "../hostile";
import { go, useAnswer, type Answer } from "../hooks";
import { Chip, Pager, Said, Select, Shown, Trouble } from "../parts";
import { href } from "../route";
import { Known, MODES, TurnBody, type TextMode } from "../turn";
import { TokenLegend } from "../tokens";
import { useTurns } from "../turns";
import { spoken } from "../words";
import { chosenPair, PairSelect } from "./tasks";

type Query = Record<string, string>;

/** Turns of each episode on a page. */
const SIZE = 15;

/** The run of the left episode, if it is another one than that of the right. */
const otherRun = (run: string, query: Query) => (query.against && query.against !== run ? query.against : null);

export function EpisodesPage({ run, query }: { run: string; query: Query }) {
  const against = otherRun(run, query);
  const mine = useAnswer<Tasks>(address("tasks", { run }));
  const other = useAnswer<Tasks>(against === null ? null : address("tasks", { run: against }));
  const both = (found: Tasks, left: Tasks) => {
    const task = found.tasks.find((one) => one.key === query.task || one.task === query.task);
    if (!task || !left.policies.length) return <Trouble problem={{ message: `No policy was measured on a task ${readable(query.task ?? "")}.`, hint: "" }} />;
    return <Both key={task.key} found={found} left={left} task={task} run={run} query={query} />;
  };
  return (
    <Shown answer={mine} tall="80vh">
      {(found) => (against === null ? both(found, found) : <Shown answer={other} tall="80vh">{(left) => both(found, left)}</Shown>)}
    </Shown>
  );
}

function Both({ found, left, task, run, query }: { found: Tasks; left: Tasks; task: Tasks["tasks"][number]; run: string; query: Query }) {
  const against = otherRun(run, query);
  const pair: [number, number] = against === null ? chosenPair(found, query) : [chosenPair(left, { b: query.a ?? "" })[1], chosenPair(found, query)[1]];
  const set = (change: Query, replace = false) => go(href("episodes", run, { ...query, ...change }), replace);
  const swap = against === null ? {} : { onSwap: (a: string, b: string) => go(href("episodes", against, { ...query, against: run, a: b, b: a })) };
  const runs: [string, string] = [against ?? run, run];
  const [a, b] = [left.policies[pair[0]], found.policies[pair[1]]];
  const titles: [string, string] = against === null ? [a.title, b.title] : [`${a.title} of ${against}`, `${b.title} of ${run}`];
  const trees = [useAnswer<TreeView>(address("tree", { run: runs[0], stage: a.stage, key: task.key })), useAnswer<TreeView>(address("tree", { run, stage: b.stage, key: task.key }))];
  const mode = (MODES.find((one) => one.value === query.show)?.value ?? "text") as TextMode;
  const at = found.tasks.indexOf(task);
  return (
    <>
      <h1><Said text={task.task || readable(task.key)} /></h1>
      <div class="bar">
        <PairSelect left={left} right={found} pair={pair} onChange={set} {...swap} />
        <Select label="Show" value={mode} choices={MODES} onChange={(show) => set({ show: show === "text" ? "" : show }, true)} />
        {!alone && found.tasks.length > 1 && (
          <>
            {at > 0 && <a href={href("episodes", run, { ...query, task: found.tasks[at - 1].key })}>Previous task</a>}
            {at < found.tasks.length - 1 && <a href={href("episodes", run, { ...query, task: found.tasks[at + 1].key })}>Next task</a>}
          </>
        )}
      </div>
      {mode === "tokens" && <TokenLegend mask={false} />}
      {trees[0].data?.messages.map((message) => (
        <details class="opening" open><summary>The task as the policies were told it</summary><pre class="wrote"><Said text={message.content} /></pre></details>
      ))}
      <div class="pairrow top">
        {trees.map((answer, side) => <Ending answer={answer} title={titles[side]} run={runs[side]} />)}
      </div>
      {trees[0].data && trees[1].data && <Sides left={trees[0].data} right={trees[1].data} runs={runs} mode={mode} titles={titles} query={query} set={set} />}
    </>
  );
}

/** How an episode ended. */
function Ending({ answer, title, run }: { answer: Answer<TreeView>; title: string; run: string }) {
  return (
    <section aria-label={title}>
      <h2><Said text={title} /></h2>
      <Shown answer={answer} tall="2rem">
        {(tree) => {
          const end = endsOf(tree)[0];
          const outcome = tree.outcomes[tree.nodes.outcome[end]] ?? "not ended";
          return (
            <p class="about">
              <Chip kind={outcome === "success" ? "good" : "bad"}>{outcome === "success" ? "✓ " : "✗ "}<Said text={spoken(outcome)} /></Chip>{" "}
              return {number(tree.nodes.reward[end])} · {episodeOf(tree, end).length} turns · <a href={href("tree", run, { stage: tree.stage, key: tree.key, view: "outline" })}>as a tree</a>
            </p>
          );
        }}
      </Shown>
    </section>
  );
}

interface SidesProps { left: TreeView; right: TreeView; runs: [string, string]; mode: TextMode; titles: [string, string]; query: Query; set: (change: Query, replace?: boolean) => void }

function Sides({ left, right, runs, mode, titles, query, set }: SidesProps) {
  const [ends, setEnds] = useState([endsOf(left)[0], endsOf(right)[0]]);
  const episodes: Episode[] = [left, right].map((tree, side) => ({ where: { run: runs[side], stage: tree.stage, key: tree.key }, path: episodeOf(tree, ends[side] < tree.nodes.parent.length ? ends[side] : endsOf(tree)[0]) }));
  const different = useFirstDifferent(episodes[0], episodes[1]);
  const longest = Math.max(...episodes.map((episode) => episode.path.length));
  const offset = Math.min(Number(query.offset ?? 0) || 0, Math.max(0, longest - 1));
  const shown = Array.from({ length: Math.min(SIZE, longest - offset) }, (_, index) => offset + index);
  const asked = episodes.map((episode) => shown.flatMap((at) => episode.path[at] ?? []));
  const turns = [useTurns(episodes[0].where, asked[0]), useTurns(episodes[1].where, asked[1])];
  const move = (next: number) => set({ offset: String(next || "") }, true);
  const jump = () => {
    if (different.at === null) return;
    move(Math.floor(different.at / SIZE) * SIZE);
    window.setTimeout(() => document.getElementById("first-different")?.scrollIntoView({ block: "center" }), 50);
  };
  return (
    <>
      <div class="bar" role="status">
        {different.problem ? <Trouble problem={different.problem} /> : !different.done ? <span class="faint">Looking for the first turn that differs…</span>
          : different.at === null ? <span>Both episodes are the same.</span>
          : <><span>The first turn that differs is turn {different.at + 1}.</span><button type="button" onClick={jump}>Go there</button></>}
        {[left, right].map((tree, side) => endsOf(tree).length > 1 && (
          <Select label={`Episode of ${titles[side]}`} value={String(ends[side])} choices={endsOf(tree).map((end, index) => ({ value: String(end), title: `${index + 1}: return ${number(tree.nodes.reward[end])}` }))}
            onChange={(value) => setEnds((last) => last.map((end, index) => (index === side ? Number(value) : end)))} />
        ))}
      </div>
      <Pager offset={offset} size={SIZE} total={longest} onMove={move} />
      {turns.map((found) => found.problem && <Trouble problem={found.problem} />)}
      {[...new Set(turns.map((found) => found.note))].map((note) => note && <p class="faint"><Said text={note} /></p>)}
      <ol class="turns" start={offset + 1}>
        {shown.map((at) => {
          const first = different.done && different.at === at;
          const both = episodes.map((episode, side) => turns[side].turns.get(episode.path[at] ?? -1));
          return (
            <li key={at} id={first ? "first-different" : undefined} class={first ? "pairrow differs" : "pairrow"} aria-label={`Turn ${at + 1}${first ? ", the first that differs" : ""}`}>
              {episodes.map((episode, side) => (
                <div class="turn">
                  {episode.path[at] === undefined ? <p class="faint">{titles[side]} had ended.</p>
                    : <OneTurn turn={both[side]} tools={(side ? right : left).tools} episode={episode} at={at} mode={mode} title={titles[side]} first={first} same={sameAction(both)} valid={(side ? right : left).nodes.valid[episode.path[at]] !== 0} />}
                </div>
              ))}
            </li>
          );
        })}
      </ol>
      <Pager offset={offset} size={SIZE} total={longest} onMove={move} />
    </>
  );
}

function sameAction([a, b]: (TurnView | undefined)[]): boolean {
  return a !== undefined && b !== undefined && a.action === b.action && a.text !== b.text;
}

interface OneTurnProps { turn: TurnView | undefined; tools: NamedText[]; episode: Episode; at: number; mode: TextMode; title: string; first: boolean; same: boolean; valid: boolean }

function OneTurn({ turn, tools, episode, at, mode, title, first, same, valid }: OneTurnProps) {
  if (!turn) return <div class="loading short">Loading…</div>;
  return (
    <>
      <div class="head">
        <strong>{at + 1}</strong> <span class="faint narrowonly"><Said text={title} /></span>
        {first && <Chip kind="first">first different turn</Chip>}
        {same && <Chip>same action, other words</Chip>}
        {!valid && <Chip kind="bad">refused</Chip>}
        <span class="numbers"><Known logprobs={turn.logprobs} /></span>
      </div>
      <TurnBody turn={turn} where={episode.where} mode={mode} tools={tools} number={(id) => episode.path.indexOf(id) + 1} />
    </>
  );
}
