// Online training by its steps; each leads to the trees and rows of that step.

import { address } from "../answers";
import type { StepsView } from "../api";
import { CurvePlot } from "../curve_plot";
import { number } from "../format";
import { go, useAnswer } from "../hooks";
import { Pager, Said, Scroll, Select, Shown } from "../parts";
import { href } from "../route";
import { spoken } from "../words";

type Query = Record<string, string>;

const SIZE = 50;
const FIRST = ["success", "validation", "reward/total", "calls", "entropy", "staleness", "groups", "silent_groups"];

export function StepsPage({ run, query }: { run: string; query: Query }) {
  const { stage = "" } = query;
  const answer = useAnswer<StepsView>(address("steps", { run, stage }));
  return (
    <>
      <h1>Steps of online training</h1>
      <p class="about"><a href={href("forest", run, { stage })}><Said text={stage} /></a>. A point of a curve leads to the trees of that step: click it, or choose it with the arrow keys and press Enter.</p>
      <Shown answer={answer} tall="40rem">
        {(found) => (found.lines.length ? <Found found={found} run={run} query={query} /> : <p>No online step is finished yet.</p>)}
      </Shown>
    </>
  );
}

function Found({ found, run, query }: { found: StepsView; run: string; query: Query }) {
  const measures = [...new Set(found.lines.flatMap((line) => Object.keys(line)))].filter((name) => name !== "step");
  measures.sort((a, b) => rank(a) - rank(b));
  const chosen = [query.one, query.two].map((name, place) => (name && measures.includes(name) ? name : (measures[place] ?? measures[0])));
  const set = (change: Query) => go(href("steps", run, { ...query, ...change }), true);
  const choices = measures.map((name) => ({ value: name, title: spoken(name) }));
  const offset = Number(query.offset ?? 0) || 0;
  const forest = (step: number) => href("forest", run, { stage: found.stage, step });
  return (
    <>
      <div class="columns">
        {chosen.map((measure, place) => (
          <section aria-label={`Curve ${place + 1}`}>
            <Select label="Measure" value={measure} choices={choices} onChange={(name) => set(place ? { two: name } : { one: name })} />
            <CurvePlot title={`${measure} by online step`} unit="online step" onPick={(step) => go(forest(step))}
              curves={[{ label: spoken(measure), points: found.lines.flatMap((line) => (typeof line[measure] === "number" && line.step !== null ? [[line.step, line[measure]] as [number, number]] : [])) }]} />
          </section>
        ))}
      </div>
      <Pager offset={offset} size={SIZE} total={found.lines.length} onMove={(next) => set({ offset: String(next || "") })} />
      <Scroll label="Steps">
        <table>
          <thead><tr><th scope="col">Online step</th><th scope="col">Rows</th>{measures.map((name) => <th scope="col" class="num">{spoken(name)}</th>)}</tr></thead>
          <tbody>
            {found.lines.slice(offset, offset + SIZE).map((line) => (
              <tr>
                <th scope="row"><a href={forest(line.step ?? 0)}>{line.step}</a></th>
                <td><a href={href("dataset", run, { stage: `${found.stage}/${String(line.step).padStart(6, "0")}/dataset` })}>rows</a></td>
                {measures.map((name) => <td class="num">{number(line[name])}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

function rank(name: string): number {
  const at = FIRST.indexOf(name);
  return at < 0 ? FIRST.length : at;
}
