// Curves over steps, drawn by uPlot on a canvas, with the same numbers as a table.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { number } from "./format";
import { plain } from "./hostile";
import { useMedia, useSize } from "./hooks";
import { Scroll } from "./parts";

export interface Curve { label: string; points: [number, number][] }

/** Most lines of the table below a plot. */
const LINES = 100;

/** `unit` names what is counted along the curves: optimiser step, online step. */
export function CurvePlot({ title, unit, curves, onPick }: { title: string; unit: string; curves: Curve[]; onPick?: (x: number) => void }) {
  const positive = curves.every((curve) => curve.points.every(([, value]) => value > 0));
  const [wanted, setWanted] = useState(false);
  const logarithmic = wanted && positive;
  const [measure, { width }] = useSize<HTMLDivElement>();
  const host = useRef<HTMLDivElement>(null);
  const drawn = useRef<uPlot | null>(null);
  const [at, setAt] = useState(0);
  const dark = useMedia("(prefers-color-scheme: dark)");
  const steps = [...new Set(curves.flatMap((curve) => curve.points.map(([x]) => x)))].sort((a, b) => a - b);
  const columns = curves.map((curve) => {
    const byStep = new Map(curve.points);
    return steps.map((step) => byStep.get(step) ?? null);
  });
  const content = JSON.stringify([steps, columns]);
  useEffect(() => {
    const element = host.current;
    if (!element || width < 50) return;
    const colour = (name: string) => getComputedStyle(element).getPropertyValue(name).trim();
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: "12px system-ui" };
    const plot = new uPlot({
      width, height: 230,
      scales: { x: { time: false }, y: logarithmic ? { distr: 3 } : { range: roomFor } },
      axes: [{ ...axis, size: 34, incrs: WHOLE }, { ...axis, size: 56, values: (_, values) => values.map((value) => number(value)) }],
      legend: { live: true },
      series: [
        { label: unit, value: (_, value) => (value === null ? "–" : String(value)) },
        ...curves.map((curve, index) => ({
          label: plain(curve.label), stroke: colour(`--series${index % 6}`), width: 2, spanGaps: true,
          points: { show: steps.length < 60, size: 6 }, value: (_: uPlot, value: number | null) => number(value),
        })),
      ],
      hooks: onPick ? { ready: [(made) => made.over.addEventListener("click", () => {
        const at = made.cursor.idx;
        if (at !== null && at !== undefined) onPick(steps[at]);
      })] } : {},
    }, [steps, ...columns], element);
    drawn.current = plot;
    return () => plot.destroy();
  }, [content, width, dark, logarithmic]);
  const chosen = Math.min(at, steps.length - 1);
  const pressed = (event: KeyboardEvent) => {
    if (event.key === "Enter" && onPick) return onPick(steps[chosen]);
    const to = movedTo(event.key, chosen, steps.length);
    if (to === null || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    setAt(to);
    drawn.current?.setCursor({ left: drawn.current.valToPos(steps[to], "x"), top: 0 });
  };
  return (
    <figure class="plot">
      <div ref={measure}>
        <div ref={host} role="slider" tabIndex={0} aria-label={plain(`${title}: ${curves.map(ends).join("; ")}`)} class={onPick ? "curve pick" : "curve"} onKeyDown={pressed}
          aria-valuemin={steps[0] ?? 0} aria-valuemax={steps.at(-1) ?? 0} aria-valuenow={steps[chosen] ?? 0}
          aria-valuetext={plain(`step ${steps[chosen] ?? "–"}: ${curves.map((curve, index) => `${curve.label} ${number(columns[index][chosen])}`).join("; ")}`)} />
      </div>
      {positive && <label class="field"><input type="checkbox" checked={wanted} onChange={(event) => setWanted(event.currentTarget.checked)} /> <span>logarithmic</span></label>}
      <details>
        <summary>The numbers</summary>
        <Scroll label={title}>
          <table>
            <thead><tr><th scope="col">{unit}</th>{curves.map((curve) => <th scope="col" class="num">{plain(curve.label)}</th>)}</tr></thead>
            <tbody>
              {steps.slice(0, LINES).map((step, at) => <tr><th scope="row">{step}</th>{columns.map((column) => <td class="num">{number(column[at])}</td>)}</tr>)}
            </tbody>
          </table>
        </Scroll>
        {steps.length > LINES && <p class="faint">The first {LINES} of {steps.length}.</p>}
      </details>
    </figure>
  );
}

/** The point that a key leads to from another; null if the key leads nowhere. */
export function movedTo(key: string, from: number, count: number): number | null {
  const moves: Record<string, number> = { ArrowLeft: from - 1, ArrowRight: from + 1, ArrowDown: from - 1, ArrowUp: from + 1, PageDown: from - 10, PageUp: from + 10, Home: 0, End: count - 1 };
  const to = moves[key];
  return to === undefined || count < 1 ? null : Math.max(0, Math.min(count - 1, to));
}

/** Steps are whole. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];

/** Some room above and below; a curve that does not change has some, too. */
function roomFor(_: uPlot, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 0.5;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

function ends(curve: Curve): string {
  const [first, last] = [curve.points[0], curve.points.at(-1)];
  return first && last ? `${curve.label} from ${number(first[1])} to ${number(last[1])} over ${curve.points.length} points` : `${curve.label} has no points`;
}
