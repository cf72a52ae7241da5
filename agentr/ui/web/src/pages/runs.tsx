// All runs and comparisons below the folders.

import { address } from "../answers";
import type { ComparisonCard, Home, RunCard } from "../api";
import { count, day, plural, seconds } from "../format";
import { plain } from "../hostile";
import { go, useAnswer } from "../hooks";
import { Chip, Said, Search, Shown, Sortable, Whisker } from "../parts";
import { href } from "../route";

type Query = Record<string, string>;

const KEYS: Record<string, (run: RunCard) => string | number> = {
  name: (run) => run.id,
  method: (run) => run.method,
  environment: (run) => run.environment,
  seed: (run) => run.seed,
  state: (run) => run.state,
  before: (run) => run.before?.mean ?? -1,
  after: (run) => run.after?.mean ?? -1,
  completions: (run) => run.completions,
  seconds: (run) => run.seconds,
  started: (run) => run.started,
};

export function RunsPage({ query }: { query: Query }) {
  const answer = useAnswer<Home>(address("home", {}));
  const set = (change: Query) => go(href("runs") + searchOf({ ...query, ...change }), true);
  return (
    <>
      <h1>Runs</h1>
      <Shown answer={answer} tall="30rem">
        {(home) => (
          <>
            <p class="about">
              {plural(home.runs.length, "run")} and {plural(home.comparisons.length, "comparison")} below{" "}
              {home.folders.map((folder, index) => <>{index > 0 && ", "}<Said text={folder} /></>)} · agentr {home.version}
            </p>
            {home.comparisons.length > 0 && <Comparisons found={home.comparisons} />}
            <RunTable runs={home.runs} query={query} set={set} />
          </>
        )}
      </Shown>
    </>
  );
}

function RunTable({ runs, query, set }: { runs: RunCard[]; query: Query; set: (change: Query) => void }) {
  const sort = query.sort ?? "name";
  const down = query.down === "1";
  const words = (query.search ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run: RunCard) => [run.id, run.method, run.environment, run.model, run.state, `seed ${run.seed}`].join(" ").toLowerCase();
  const shown = runs.filter((run) => words.every((word) => text(run).includes(word)));
  const key = KEYS[sort] ?? KEYS.name;
  shown.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
  const head = (name: string, title: string, numbers = false) => (
    <Sortable name={name} title={title} sort={sort} down={down} numbers={numbers} onSort={(next, falling) => set({ sort: next, down: falling ? "1" : "" })} />
  );
  return (
    <section aria-labelledby="runs">
      <div class="bar">
        <h2 id="runs">Runs</h2>
        <Search label="Filter" value={query.search ?? ""} onChange={(search) => set({ search })} />
        <span class="faint" role="status">{shown.length === runs.length ? "" : `${shown.length} of ${runs.length}`}</span>
      </div>
      <table class="cards">
        <thead>
          <tr>
            {head("name", "Run")}{head("state", "State")}{head("method", "Method")}{head("environment", "Environment, model")}{head("seed", "Seed", true)}
            {head("before", "Success before")}{head("after", "After")}{head("completions", "Cost", true)}{head("seconds", "Work", true)}{head("started", "Started", true)}
          </tr>
        </thead>
        <tbody>{shown.slice(0, 500).map((run) => <RunRow run={run} />)}</tbody>
      </table>
      {shown.length === 0 && <p>No run matches.</p>}
    </section>
  );
}

function RunRow({ run }: { run: RunCard }) {
  return (
    <tr>
      <th scope="row" data-label="Run"><a href={href("run", run.id)}><Said text={run.id} /></a></th>
      <td data-label="State">
        <Chip kind={run.state}>{run.state}</Chip>
        {run.rounds.planned > 0 && <span class="faint"> round {run.rounds.done} of {run.rounds.planned}</span>}
        {run.problem && <div class="wrong"><Said text={run.problem} /></div>}
      </td>
      <td data-label="Method" title={plain(run.method)}><Said text={run.method.split("/").at(-1) ?? ""} /></td>
      <td data-label="Environment"><Said text={run.environment} /> <span class="faint"><Said text={run.model} /></span></td>
      <td data-label="Seed" class="num">{run.seed}</td>
      <td data-label="Success before"><Whisker found={run.before} small /></td>
      <td data-label="After"><Whisker found={run.after} small /><div class="faint"><Said text={run.afterTitle} /></div></td>
      <td data-label="Cost" class="num">{count(run.completions)} completions<div class="faint">{count(run.tokens)} tokens</div></td>
      <td data-label="Work" class="num">{seconds(run.seconds)}</td>
      <td data-label="Started" class="num">{day(run.started)}</td>
    </tr>
  );
}

function Comparisons({ found }: { found: ComparisonCard[] }) {
  return (
    <section aria-labelledby="comparisons">
      <h2 id="comparisons">Comparisons</h2>
      <table class="cards">
        <thead><tr><th scope="col">Comparison</th><th scope="col">Methods</th><th scope="col">Seeds</th><th scope="col">Runs</th></tr></thead>
        <tbody>
          {found.map((one) => (
            <tr>
              <th scope="row" data-label="Comparison"><a href={href("compare", one.id)}><Said text={one.id} /></a></th>
              <td data-label="Methods">
                <Said text={one.methods.join(", ")} />
                {one.problem && <div class="wrong"><Said text={one.problem} /></div>}
              </td>
              <td data-label="Seeds">{one.seeds.join(", ")}</td>
              <td data-label="Runs">{one.done} of {one.runs} done</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function searchOf(query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value);
  return given.length ? `?${given.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&")}` : "";
}
