// One tree: three views of the same selection, and the turns up to it.

import { useMemo } from "preact/hooks";
import { address, alone } from "../answers";
import type { RowView, TreeView } from "../api";
import { count, number, seconds } from "../format";
import { readable } from "../hostile";
import { go, useAnswer, useMedia } from "../hooks";
import { Said, Select, Shown, Trouble } from "../parts";
import { href } from "../route";
import { Graph } from "../tree/graph";
import { Icicle } from "../tree/icicle";
import { Legend } from "../tree/marks";
import { Outline } from "../tree/outline";
import { Panel } from "../tree/panel";
import { Evolutions } from "../tree/evolutions";
import { Revisions } from "../tree/revisions";
import { fixedOf, nameOfUse, sceneOf, useNamed, type Fixed } from "../tree/scene";
import type { TextMode } from "../turn";
import { spoken } from "../words";

type Query = Record<string, string>;

const VIEWS = [["outline", "Outline"], ["graph", "Graph"], ["icicle", "Icicle"]] as const;
/** Rows in the choice of rows; a tree may have thousands. */
const MOST_ROWS = 300;

export function TreePage({ run, query }: { run: string; query: Query }) {
  const { stage = "", key = "" } = query;
  const answer = useAnswer<TreeView>(address("tree", { run, stage, key }));
  return (
    <Shown answer={answer} tall="80vh">
      {(tree) => <Whole key={`${tree.stage} ${tree.key}`} tree={tree} run={run} query={query} />}
    </Shown>
  );
}

function Whole({ tree, run, query }: { tree: TreeView; run: string; query: Query }) {
  const dark = useMedia("(prefers-color-scheme: dark)");
  const narrow = useMedia("(max-width: 800px)");
  const fixed = useMemo(() => fixedOf(tree), [tree]);
  const use = useNamed(tree, query.row ?? "");
  const row = useAnswer<RowView>(use && use.index !== null ? address("row", { run, stage: use.dataset, index: use.index }) : null);
  const scene = useMemo(() => sceneOf(tree, fixed, query, row.data), [tree, fixed, query.node, query.row, query.t, row.data]);
  const view = VIEWS.find(([name]) => name === query.view)?.[0] ?? (narrow || !tree.searched ? "outline" : "graph");
  const set = (change: Query, replace = false) => go(href("tree", run, { ...query, ...change }), replace);
  const select = (id: number, replace = false) => set({ node: String(id) }, replace);
  const Chosen = { outline: Outline, graph: Graph, icicle: Icicle }[view];
  const mode = (["tokens", "table"].includes(query.show ?? "") ? query.show : "text") as TextMode;
  return (
    <>
      <Head tree={tree} run={run} fixed={fixed} />
      <div class="bar toolbar">
        <div class="switch" role="group" aria-label="View">
          {VIEWS.map(([name, title]) => <button type="button" aria-pressed={view === name} onClick={() => set({ view: name })}>{title}</button>)}
        </div>
        <label class="field">
          <span>Grown so far</span>
          <input type="range" min={1} max={fixed.shape.size} value={scene.moment} aria-valuetext={`${scene.moment - 1} of ${fixed.shape.size - 1} turns`}
            onInput={(event) => set({ t: Number(event.currentTarget.value) === fixed.shape.size ? "" : event.currentTarget.value }, true)} />
          <output class="num">{scene.moment - 1} / {fixed.shape.size - 1}</output>
        </label>
        {tree.uses.length > 0 && <Select label="Rows" value={query.row ?? ""} choices={usesOf(tree)} onChange={(row) => set({ row, node: "" })} />}
        {scene.use?.index !== null && scene.use !== null && !alone && <a href={href("row", run, { stage: scene.use.dataset, index: scene.use.index })}>The row's tokens</a>}
      </div>
      {row.problem && <Trouble problem={row.problem} />}
      <Legend tree={tree} dark={dark} />
      <div class="panes">
        <div class="pane">
          <div class="view"><Chosen scene={scene} dark={dark} onSelect={select} /></div>
          <Revisions scene={scene} onSelect={select} />
          <Evolutions scene={scene} onSelect={select} />
        </div>
        <Panel scene={scene} where={{ run, stage: tree.stage, key: tree.key }} mode={mode} onMode={(show) => set({ show: show === "text" ? "" : show }, true)} onSelect={select} />
      </div>
    </>
  );
}

function Head({ tree, run, fixed }: { tree: TreeView; run: string; fixed: Fixed }) {
  const ends = tree.nodes.outcome.filter((code) => code >= 0 && tree.outcomes[code] !== "refused").length;
  const success = tree.outcomes.indexOf("success");
  const won = tree.nodes.outcome.filter((code) => success >= 0 && code === success).length;
  const facts = Object.entries(tree.facts);
  return (
    <>
      <h1><Said text={tree.task.id || readable(tree.key)} /></h1>
      <p class="about">
        <span class="pair"><Said text={tree.task.env} /></span>
        <span class="pair"><a href={alone ? undefined : href("forest", run, { stage: tree.stage })}><Said text={tree.stage} /></a></span>
        <span class="pair"><span class="faint">grown by</span> <Said text={tree.policy || "nobody who is named"} /></span>
        <span class="pair">{count(fixed.shape.size - 1)} turns</span>
        <span class="pair">{won} of {ends} ends succeed</span>
        {tree.stopped && <span class="pair"><span class="faint">stopped</span> <Said text={spoken(tree.stopped)} /></span>}
        {tree.elsewhere.length > 0 && <span class="pair"><span class="faint">the same task:</span> {tree.elsewhere.map((other) => <><a href={href("tree", run, { stage: other.stage, key: other.key })}><Said text={other.title} /></a> </>)}</span>}
      </p>
      {(facts.length > 0 || Object.keys(tree.task.labels).length > 0) && (
        <details class="small">
          <summary>Numbers</summary>
          <p>{facts.map(([name, value]) => <span class="pair"><span class="faint"><Said text={spoken(name)} /></span> {name.endsWith("_s") ? seconds(value) : number(value)}</span>)}
            {Object.entries(tree.task.labels).map(([name, value]) => <span class="pair"><span class="faint"><Said text={name} /></span> <Said text={typeof value === "string" ? value : JSON.stringify(value)} /></span>)}</p>
        </details>
      )}
    </>
  );
}

function usesOf(tree: TreeView): { value: string; title: string }[] {
  const titles = tree.uses.map((use, place) => ({
    value: nameOfUse(use, place), kept: use.index !== null,
    title: use.index === null ? `dropped: ${use.reason} (to turn ${use.nodes.at(-1) ?? 0})` : `row ${use.index}: ${use.kind}${use.side === "row" ? "" : `, ${use.side}`} (${use.dataset})`,
  }));
  titles.sort((a, b) => Number(b.kept) - Number(a.kept));
  const kept = titles.filter((one) => one.kept).length;
  return [{ value: "", title: `any row (${kept}; ${titles.length - kept} dropped)` }, ...titles.slice(0, MOST_ROWS).map(({ value, title }) => ({ value, title }))];
}
