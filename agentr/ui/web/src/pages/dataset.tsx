// A dataset: its rows by kind, and what became none.

import { address, alone } from "../answers";
import type { DatasetView } from "../api";
import { count, number } from "../format";
import { readable } from "../hostile";
import { go, useAnswer, useRun } from "../hooks";
import { Pager, Said, Scroll, Select, Shown } from "../parts";
import { href } from "../route";
import { stagesOf, StageSelect } from "../stages";
import { spoken } from "../words";

const SIZE = 100;

export function DatasetPage({ run, query }: { run: string; query: Record<string, string> }) {
  const page = useRun(run);
  const stages = stagesOf(page.data, ["dataset"]);
  const stage = query.stage ?? stages.findLast((found) => found.stage.state === "sealed")?.stage.name ?? "";
  const offset = Number(query.offset ?? 0) || 0;
  const { kind = "" } = query;
  const answer = useAnswer<DatasetView>(stage ? address("dataset", { run, stage, ...(alone ? {} : { kind, offset, limit: SIZE }) }) : null, true);
  const set = (change: Record<string, string>) => go(href("dataset", run, { stage, kind, ...change }));
  return (
    <>
      <h1>Datasets: what was trained on</h1>
      <div class="bar">
        <StageSelect page={page.data} kinds={["dataset"]} stage={stage} onChange={(next) => set({ stage: next, kind: "" })} />
        {answer.data && !alone && <Select label="Kind" value={kind} choices={kindsOf(answer.data)} onChange={(next) => set({ kind: next })} />}
      </div>
      {!stage && page.data ? <p>This run has no dataset yet. Online training has one for each online step: see these.</p> : (
        <Shown answer={answer} tall="40rem">{(found) => <Rows found={found} run={run} kind={kind} onMove={(next) => set({ offset: String(next || "") })} />}</Shown>
      )}
    </>
  );
}

function kindsOf(found: DatasetView): { value: string; title: string }[] {
  return [{ value: "", title: `all (${found.total})` }, ...Object.entries(found.kinds).map(([kind, rows]) => ({ value: kind, title: `${spoken(kind)} (${rows})` }))];
}

function Rows({ found, run, kind, onMove }: { found: DatasetView; run: string; kind: string; onMove: (offset: number) => void }) {
  const details = [...new Set(found.rows.flatMap((row) => Object.keys(row.detail)))].slice(0, 8);
  const dropped = Object.entries(found.dropped);
  return (
    <>
      <p class="about">{count(found.matched)} {found.type === "preferences" ? "pairs" : "rows"}{kind && ` of kind ${spoken(kind)}`}{alone && found.rows.length < found.matched && `, the first ${found.rows.length} of them here`}.</p>
      {dropped.length > 0 && (
        <details>
          <summary>{count(dropped.reduce((sum, [, times]) => sum + times, 0))} candidates became no row</summary>
          <table class="narrow"><thead><tr><th scope="col">Why</th><th scope="col" class="num">Candidates</th></tr></thead><tbody>{dropped.map(([reason, times]) => <tr><th scope="row"><Said text={reason} /></th><td class="num">{times}</td></tr>)}</tbody></table>
        </details>
      )}
      {!alone && <Pager offset={found.offset} size={SIZE} total={found.matched} onMove={onMove} />}
      <Scroll label="Rows">
        <table class="rows">
          <thead><tr><th scope="col">Row</th><th scope="col">Kind</th><th scope="col">Tree</th><th scope="col">Stage</th><th scope="col" class="num">Tokens</th><th scope="col" class="num">Learnt</th>{details.map((name) => <th scope="col"><Said text={spoken(name)} /></th>)}</tr></thead>
          <tbody>
            {found.rows.map((row) => (
              <tr>
                <td><a href={href("row", run, { stage: found.stage, index: row.index })} aria-label={`Row ${row.index}`}>{row.index}</a></td>
                <td><Said text={spoken(row.kind)} /></td>
                <th scope="row">{row.stage ? <a href={href("tree", run, { stage: row.stage, key: row.tree, row: `${found.stage}:${row.index}:${found.type === "preferences" ? "chosen" : "row"}` })}><Said text={readable(row.tree)} /></a> : <Said text={readable(row.tree)} />}</th>
                <td><Said text={row.stage} /></td>
                <td class="num">{row.tokens}</td>
                <td class="num">{row.targets}</td>
                {details.map((name) => <td class={typeof row.detail[name] === "number" ? "num" : ""}>{typeof row.detail[name] === "number" ? number(row.detail[name] as number) : <Said text={String(row.detail[name] ?? "–")} />}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {found.rows.length === 0 && <p>No row.</p>}
    </>
  );
}
