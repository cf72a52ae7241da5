// Means with their intervals, by policy; of several methods side by side, a little apart so that no interval hides another.

import type { Estimate } from "./api";
import { isReference } from "./flips";
import { interval, percent } from "./format";
import { plain } from "./hostile";

export interface Group { label: string; points: { title: string; found: Estimate | null }[] }

const HEIGHT = 220;
const LEFT = 40;
const STEP = 110;
const SHAPES = ["circle", "square", "diamond", "triangle"];

export function IntervalPlot({ title, groups }: { title: string; groups: Group[] }) {
  const titles = [...new Set(groups.flatMap((group) => group.points.map((point) => point.title)))];
  const highest = Math.max(0.05, ...groups.flatMap((group) => group.points.map((point) => point.found?.high ?? 0)));
  const step = highest <= 0.2 ? 0.05 : highest <= 0.5 ? 0.1 : 0.2;
  const top = Math.min(1, Math.ceil(highest / step - 1e-9) * step);
  const width = LEFT + STEP * Math.max(titles.length, 3);
  const y = (value: number) => 12 + (HEIGHT - 44) * (1 - value / top);
  const x = (at: number, group: number) => LEFT + STEP * (at + 0.5) + (group - (groups.length - 1) / 2) * Math.min(18, 80 / groups.length);
  const ticks = Array.from({ length: Math.round(top / step) + 1 }, (_, index) => step * index);
  return (
    <figure class="plot" style={{ maxWidth: `${Math.max(380, width * 1.1)}px` }}>
      <svg viewBox={`0 0 ${width} ${HEIGHT}`} role="img" aria-label={plain(`${title}: ${told(groups)}`)}>
        {ticks.map((tick) => (
          <g class="tick">
            <line x1={LEFT} x2={width} y1={y(tick)} y2={y(tick)} />
            <text x={LEFT - 6} y={y(tick) + 4} text-anchor="end">{Math.round(100 * tick)}</text>
          </g>
        ))}
        {titles.map((name, at) => <text class="name" x={LEFT + STEP * (at + 0.5)} y={HEIGHT - 8} text-anchor="middle">{plain(name).slice(0, 16)}</text>)}
        {groups.map((group, index) => (
          <g class={`ink${index % 6}`}>
            <polyline points={group.points.flatMap((point) => (point.found && !isReference(point.title) ? [`${x(titles.indexOf(point.title), index)},${y(point.found.mean)}`] : [])).join(" ")} />
            {group.points.map((point) => point.found && <Mark x={x(titles.indexOf(point.title), index)} y={y} found={point.found} shape={SHAPES[index % SHAPES.length]} title={`${group.label}, ${point.title}`} />)}
          </g>
        ))}
      </svg>
      {groups.length > 1 && <figcaption class="legend">{groups.map((group, index) => <span><span class={`swatch series${index % 6}`} /> {plain(group.label)} <span class="faint">{SHAPES[index % SHAPES.length]}</span></span>)}</figcaption>}
    </figure>
  );
}

function Mark({ x, y, found, shape, title }: { x: number; y: (value: number) => number; found: Estimate; shape: string; title: string }) {
  const at = y(found.mean);
  return (
    <g>
      <title>{plain(title)}: {percent(found.mean)} ({interval(found)}, n = {found.n})</title>
      <line class="interval" x1={x} x2={x} y1={y(found.low)} y2={y(Math.min(1, found.high))} />
      {shape === "circle" && <circle cx={x} cy={at} r={5} />}
      {shape === "square" && <rect x={x - 4.5} y={at - 4.5} width={9} height={9} />}
      {shape === "diamond" && <path d={`M${x} ${at - 6}l6 6l-6 6l-6 -6z`} />}
      {shape === "triangle" && <path d={`M${x} ${at - 6}l6 10h-12z`} />}
    </g>
  );
}

function told(groups: Group[]): string {
  return groups.map((group) => `${group.label}: ${group.points.map((point) => `${point.title} ${percent(point.found?.mean)}`).join(", ")}`).join("; ");
}
