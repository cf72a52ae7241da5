// The trees of a stage.

import { address, alone } from "../answers";
import type { ForestView, ForestRow } from "../api";
import { count, number, seconds } from "../format";
import { readable } from "../hostile";
import { go, useAnswer, useRun } from "../hooks";
import { Chip, Pager, Said, Scroll, Search, Select, Shown, Sortable } from "../parts";
import { href } from "../route";
import { stagesOf, StageSelect } from "../stages";

/** Trees on a page. */
const SIZE = 100;

const FILTERS = [["", "all"], ["solved", "solved"], ["failed", "failed"], ["mixed", "some ends succeed"], ["revised", "revised"]];

const COLUMNS: [string, string, (row: ForestRow) => string][] = [
  ["turns", "Turns", (row) => count(row.turns)],
  ["depth", "Depth", (row) => count(row.depth)],
  ["ends", "Ends", (row) => count(row.ends)],
  ["successes", "Successes", (row) => count(row.successes)],
  ["best", "Best", (row) => number(row.best)],
  ["mean", "Mean", (row) => number(row.mean)],
  ["revisions", "Revisions", (row) => count(row.revisions)],
  ["stopped", "Stopped", (row) => row.stopped || "–"],
  ["completions", "Completions", (row) => count(row.completions)],
  ["tokens", "Tokens", (row) => count(row.tokens)],
  ["seconds", "Waited", (row) => seconds(row.seconds)],
];

type Query = Record<string, string>;

export function ForestPage({ run, query }: { run: string; query: Query }) {
  const page = useRun(run);
  const stages = stagesOf(page.data, ["trees", "episodes", "rollouts"]);
  const stage = query.stage ?? (stages.findLast((found) => found.stage.kind !== "episodes" && found.stage.state === "sealed") ?? stages[0])?.stage.name ?? "";
  const offset = Number(query.offset ?? 0) || 0;
  const sort = query.sort ?? "key";
  const down = query.down === "1";
  const order = { sort, down: down ? 1 : 0, search: query.search, only: query.only, step: query.step, offset, limit: SIZE };
  const where = stage ? address("forest", { run, stage, ...(alone ? {} : order) }) : null;
  const answer = useAnswer<ForestView>(where, true);
  const set = (change: Query, replace = false) => go(href("forest", run, { ...query, stage, offset: "", ...change }), replace);
  return (
    <>
      <h1>Trees</h1>
      <div class="bar">
        <StageSelect page={page.data} kinds={["trees", "episodes", "rollouts"]} stage={stage} onChange={(next) => set({ stage: next, step: "" })} />
        {!alone && <Select label="Show" value={query.only ?? ""} choices={FILTERS.map(([value, title]) => ({ value, title }))} onChange={(only) => set({ only })} />}
        {!alone && <Search label="Search" value={query.search ?? ""} onChange={(search) => set({ search }, true)} />}
        {query.step && !alone && <button type="button" onClick={() => set({ step: "" })}>Online step {query.step} only: show all</button>}
      </div>
      {!stage && page.data ? <p>This run has no trees yet.</p> : (
        <Shown answer={answer} tall="40rem">
          {(forest) => (
            <>
              <p class="about" role="status">
                {forest.matched === forest.total ? `${forest.total} trees` : `${forest.matched} of ${forest.total} trees`}
                {forest.state === "growing" && <Chip kind="running">growing</Chip>}
              </p>
              {!alone && <Pager offset={forest.offset} size={SIZE} total={forest.matched} onMove={(next) => set({ offset: String(next || "") })} />}
              <Scroll label="Trees">
                <table class="rows">
                  <thead>
                    <tr>
                      <Sortable name="key" title="Tree" sort={sort} down={down} onSort={(name, falling) => set({ sort: name, down: falling ? "1" : "0" })} />
                      {forest.rows.some((row) => row.step !== null) && <th scope="col" class="num">Online step</th>}
                      {COLUMNS.map(([name, title]) => <Sortable name={name} title={title} sort={sort} down={down} numbers={name !== "stopped"} onSort={(next, falling) => set({ sort: next, down: falling ? "1" : "0" })} />)}
                    </tr>
                  </thead>
                  <tbody>
                    {forest.rows.map((row) => (
                      <tr>
                        <th scope="row"><a href={href("tree", run, { stage, key: row.key })}><Said text={row.task || readable(row.key)} /></a></th>
                        {row.step !== null && <td class="num">{row.step}</td>}
                        {COLUMNS.map(([name, , text]) => <td class={name === "stopped" ? "" : "num"}><Said text={text(row)} /></td>)}
                      </tr>
                    ))}
                  </tbody>
                </table>
              </Scroll>
              {forest.rows.length === 0 && <p>No tree matches.</p>}
              {forest.failed.length > 0 && (
                <details>
                  <summary>{forest.failed.length} given up</summary>
                  <ul>{forest.failed.slice(0, 200).map((unit) => <li><Said text={readable(unit.key)} />: <Said text={unit.reason} /></li>)}</ul>
                </details>
              )}
            </>
          )}
        </Shown>
      )}
    </>
  );
}
