// One row: its tokens, which of them are learnt, and how likely they were.

import { useState } from "preact/hooks";
import { address, alone } from "../answers";
import type { RowProbe, RowView, SideView } from "../api";
import { number } from "../format";
import { readable } from "../hostile";
import { go, useAnswer } from "../hooks";
import { Chip, Said, Select, Shown } from "../parts";
import { Underway, useProbe } from "../probe";
import { href } from "../route";
import { TokenLegend, Tokens, TokenTable } from "../tokens";
import { spoken } from "../words";

type Query = Record<string, string>;

/** Tokens that are shown at once. */
const WINDOW = 3000;

export function RowPage({ run, query }: { run: string; query: Query }) {
  const { stage = "", index = "0" } = query;
  const answer = useAnswer<RowView>(address("row", { run, stage, index }), true);
  return <Shown answer={answer} tall="40rem">{(row) => <Row row={row} run={run} query={query} />}</Shown>;
}

function Row({ row, run, query }: { row: RowView; run: string; query: Query }) {
  const table = query.show === "table";
  const probe = useProbe<RowProbe>(address("probe", { run, stage: row.stage, at: row.index }));
  const [under, setUnder] = useState("");
  const measured = probe.found?.policies.filter((policy) => !policy.problem) ?? [];
  const policy = measured.find((one) => one.stage === under);
  const sides = row.sides.map((side, number) => (policy ? { ...side, logprobs: policy.logprobs[number] ?? [] } : side));
  const at = (index: number) => href("row", run, { ...query, stage: row.stage, index });
  const facts = [...Object.entries(row.detail), ...Object.entries(row.rewards).map(([name, value]) => [`reward ${name}`, value] as const)];
  return (
    <>
      <h1>Row {row.index} <Chip><Said text={spoken(row.kind)} /></Chip></h1>
      <div class="bar">
        {row.index > 0 && <a href={at(row.index - 1)}>Previous</a>}
        {row.index < row.total - 1 && <a href={at(row.index + 1)}>Next</a>}
        <span class="faint">of {row.total} in <a href={href("dataset", run, { stage: row.stage })}><Said text={row.stage} /></a></span>
        <Select label="Show" value={table ? "table" : "tokens"} choices={[{ value: "tokens", title: "tokens by probability" }, { value: "table", title: "tokens as a table" }]}
          onChange={(show) => go(href("row", run, { ...query, show: show === "table" ? "table" : "" }), true)} />
        {measured.length > 0 && <Select label="Under" value={policy ? under : ""} choices={[{ value: "", title: "the policy that drew it" }, ...measured.map(({ stage, title }) => ({ value: stage, title }))]} onChange={setUnder} />}
        {!alone && <button type="button" onClick={probe.start} disabled={probe.asked && !probe.done}>Probability under every policy</button>}
      </div>
      {probe.asked && <Underway probe={probe} />}
      <p class="about">{facts.map(([name, value]) => <span class="pair"><span class="faint"><Said text={spoken(name)} /></span> {typeof value === "number" ? number(value) : <Said text={value} />}</span>)}</p>
      {row.margin && (
        <p>Mean log-probability of a token under the policy that drew it: chosen <strong>{known(row.margin.chosen)}</strong>, rejected <strong>{known(row.margin.rejected)}</strong>, margin <strong>{known(row.margin.difference)}</strong>.</p>
      )}
      {row.problem && <p class="wrong"><Said text={row.problem} /></p>}
      <TokenLegend mask />
      {sides.filter((side) => side.name === "prompt" || side.name === "row").map((side, at, all) => <Side side={side} row={row} run={run} table={table} title={side.name === "prompt" ? "Prompt" : all.length > 1 ? `Conversation ${at + 1}` : "Tokens"} />)}
      <div class="sides">{sides.filter((side) => side.name === "chosen" || side.name === "rejected").map((side) => <Side side={side} row={row} run={run} table={table} title={side.name === "chosen" ? "Chosen" : "Rejected"} />)}</div>
    </>
  );
}

function Side({ side, row, run, table, title }: { side: SideView; row: RowView; run: string; table: boolean; title: string }) {
  const [from, setFrom] = useState(0);
  const to = Math.min(side.count, from + WINDOW);
  const learnt = side.mask.filter((one) => one === 1).length;
  const unknown = side.mask.filter((one, at) => one === 1 && side.logprobs[at] === null).length;
  const inserted = side.nodes.filter((node) => node < 0).length;
  const tree = (node: number) => href("tree", run, { stage: side.stage, key: side.key, row: `${row.stage}:${row.index}:${side.name}`, node });
  const turns = new Map(side.spans.map(([node, begin]) => [begin, { id: node, href: tree(node) }]));
  const last = side.nodes.filter((node) => node > 0).at(-1);
  return (
    <section class="side" aria-label={title}>
      <div class="head">
        <h2>{title}</h2>
        <span class="about">
          <span class="pair">{side.count} tokens</span>
          {side.name !== "prompt" && <span class="pair">{learnt} learnt</span>}
          {unknown > 0 && <span class="pair">{unknown} of them with unknown log-probability</span>}
          {side.policy && <span class="pair"><span class="faint">drawn by</span> <Said text={side.policy} /></span>}
          {side.key && side.stage && side.nodes.length > 0 && <span class="pair"><span class="faint">turns</span> <a href={tree(last ?? 0)}>{side.nodes.map((node) => (node < 0 ? "inserted" : node)).join(", ")}</a> of <Said text={readable(side.key)} /></span>}
          {inserted > 0 && <span class="pair">{inserted} inserted</span>}
        </span>
      </div>
      {side.problem && <p class="wrong"><Said text={side.problem} /></p>}
      {side.tokens === null ? <p class="faint">The texts of the tokens are not known.</p>
        : table ? <TokenTable tokens={side.tokens} logprobs={side.logprobs} mask={side.mask} advantages={side.advantages} from={from} to={Math.min(to, from + 400)} />
        : <Tokens tokens={side.tokens} logprobs={side.logprobs} mask={side.mask} advantages={side.advantages} turns={turns} from={from} to={to} />}
      {(side.count > WINDOW || (table && side.count > 400)) && (
        <div class="bar">
          <button type="button" disabled={from === 0} onClick={() => setFrom(Math.max(0, from - (table ? 400 : WINDOW)))}>Earlier tokens</button>
          <button type="button" disabled={to >= side.count && (!table || from + 400 >= side.count)} onClick={() => setFrom(from + (table ? 400 : WINDOW))}>Later tokens</button>
          <span class="faint">from {from} of {side.count}</span>
        </div>
      )}
    </section>
  );
}

function known(value: number | null): string {
  return value === null ? "unknown" : number(value);
}
