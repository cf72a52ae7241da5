// The tree as an icicle on a canvas: depth to the right, a turn as wide as it has ends below. Readable at ten thousand turns.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { inkOn, valueColour } from "../colour";
import { number } from "../format";
import { plain } from "../hostile";
import { useSize } from "../hooks";
import { Select } from "../parts";
import type { ViewProps } from "./outline";
import { KEYS, moveBeside } from "./outline_rows";
import type { Scene } from "./scene";
import { meanOf } from "./shape";

const NARROWEST = 26;
const WIDEST = 130;

/** Above each node, how many leaves stand over it: its upper edge. */
function edgesOf(scene: Scene): number[] {
  const edges = new Array<number>(scene.shape.size).fill(0);
  for (let id = 0; id < scene.shape.size; id++) {
    let edge = edges[id];
    for (const child of scene.shape.children[id]) {
      edges[child] = edge;
      edge += scene.shape.leaves[child];
    }
  }
  return edges;
}

export function Icicle({ scene, dark, onSelect }: ViewProps) {
  const edges = useMemo(() => edgesOf(scene), [scene.shape]);
  const [measure, size] = useSize<HTMLDivElement>();
  const [corner, setCorner] = useState({ x: 0, y: 0 });
  const [zoom, setZoom] = useState("1");
  const [hint, setHint] = useState(-1);
  const canvas = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement | null>(null);
  const column = Math.min(WIDEST, Math.max(NARROWEST, size.width / (scene.shape.deepest + 1)));
  const width = column * (scene.shape.deepest + 1);
  const height = Math.max(10, size.height * Number(zoom));
  const unit = height / scene.shape.leaves[0];
  const sight = { ...corner, ...size, column, unit };
  const place = [edges, corner, size, column, unit, dark, scene.moment, scene.use];
  useEffect(() => draw(canvas.current, scene, edges, sight, dark), [scene.tree, ...place]);
  useEffect(() => drawPath(above.current, scene, edges, sight), [scene, ...place]);
  useEffect(() => {
    const element = box.current;
    if (!element || !size.width) return;
    const [x, y] = [scene.shape.depth[scene.node] * column, edges[scene.node] * unit];
    if (x < element.scrollLeft || x + column > element.scrollLeft + size.width) element.scrollLeft = x - size.width / 2;
    if (y < element.scrollTop || y > element.scrollTop + size.height) element.scrollTop = y - size.height / 2;
  }, [scene.node, column, unit]);
  const at = (event: MouseEvent) => {
    const area = canvas.current?.getBoundingClientRect();
    return area ? nodeAt(scene, edges, Math.floor((event.clientX - area.left + corner.x) / column), (event.clientY - area.top + corner.y) / unit) : -1;
  };
  const pressed = (event: KeyboardEvent) => {
    const move = KEYS[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    onSelect(moveBeside(scene.shape, scene.tree.nodes.parent, scene.node, move, scene.moment), true);
  };
  const told = hint >= 0 ? hint : scene.node;
  const mean = meanOf(scene.tree, scene.grown, told);
  return (
    <div class="icicle">
      <div class="bar tight">
        <Select label="Height" value={zoom} onChange={setZoom} choices={["1", "4", "16", "64"].map((value) => ({ value, title: value === "1" ? "all in sight" : `× ${value}` }))} />
        <span class="hint">{told}: {plain(told === 0 ? "start" : scene.tree.nodes.label[told])} · visits {scene.grown.visits[told]} · mean {mean === null ? "unknown" : number(mean)}</span>
      </div>
      <div
        class="drawing" tabIndex={0} role="group" aria-label="Icicle of the turns. Arrow keys go to the turn before, the first turn after, and the turns beside."
        ref={(element) => { box.current = element; measure(element); }} onKeyDown={pressed}
        onScroll={(event) => setCorner({ x: event.currentTarget.scrollLeft, y: event.currentTarget.scrollTop })}
      >
        <div style={{ width: `${width}px`, height: `${height}px` }}>
          <div
            class="layers" aria-hidden="true" style={{ width: `${size.width}px`, height: `${size.height}px` }}
            onMouseMove={(event) => setHint(at(event))} onMouseLeave={() => setHint(-1)}
            onClick={(event) => { const id = at(event); if (id >= 0) onSelect(id); }}
          >
            <canvas ref={canvas} />
            <canvas ref={above} />
          </div>
        </div>
      </div>
    </div>
  );
}

interface Window { x: number; y: number; width: number; height: number; column: number; unit: number }

/** An empty canvas of the window's size, in the screen's own pixels. */
function penOf(canvas: HTMLCanvasElement | null, sight: Window): CanvasRenderingContext2D | null {
  if (!canvas || !sight.width) return null;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(sight.width * scale);
  canvas.height = Math.round(sight.height * scale);
  const pen = canvas.getContext("2d");
  pen?.scale(scale, scale);
  return pen;
}

function draw(canvas: HTMLCanvasElement | null, scene: Scene, edges: number[], sight: Window, dark: boolean): void {
  const pen = penOf(canvas, sight);
  if (!pen) return;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const low = new Array<number>(scene.shape.deepest + 1).fill(-Infinity);
  for (const id of inOrder(scene, edges)) {
    // Of cells that would share a pixel one is drawn.
    const depth = scene.shape.depth[id];
    const bottom = (edges[id] + scene.shape.leaves[id]) * sight.unit;
    if (bottom - low[depth] < 0.5) continue;
    low[depth] = bottom;
    cell(pen, scene, id, edges[id], sight, dark);
  }
}

/** Nodes that are there, from top to bottom at every depth. */
function inOrder(scene: Scene, edges: number[]): number[] {
  const found = Array.from({ length: scene.moment }, (_, id) => id);
  return found.sort((a, b) => edges[a] - edges[b]);
}

/** The chosen path lies above the cells: going along it leaves them as they are. */
function drawPath(canvas: HTMLCanvasElement | null, scene: Scene, edges: number[], sight: Window): void {
  const pen = penOf(canvas, sight);
  if (!pen || !canvas) return;
  pen.strokeStyle = getComputedStyle(canvas).getPropertyValue(scene.use ? "--learnt" : "--ink");
  for (const id of scene.lit) if (id < scene.moment) outline(pen, scene, id, edges[id], sight);
}

function cell(pen: CanvasRenderingContext2D, scene: Scene, id: number, edge: number, sight: Window, dark: boolean): void {
  const x = scene.shape.depth[id] * sight.column - sight.x;
  const y = edge * sight.unit - sight.y;
  const high = scene.shape.leaves[id] * sight.unit;
  if (x + sight.column < 0 || x > sight.width || y + high < 0 || y > sight.height) return;
  const mean = meanOf(scene.tree, scene.grown, id);
  const gap = high > 3 ? 1 : 0;
  pen.globalAlpha = scene.use && !scene.lit.has(id) ? 0.35 : 1;
  pen.fillStyle = valueColour(mean, dark);
  pen.fillRect(x, y, sight.column - 1, Math.max(0.6, high - gap));
  const origin = scene.tree.origins[scene.tree.nodes.origin[id]];
  if (high > 3 && (origin === "revision" || origin === "continuation")) stripe(pen, x, y, high, sight.column, dark);
  if (high > 5 && scene.marks.bad >= 0 && scene.tree.nodes.verdict[id] === scene.marks.bad) {
    pen.strokeStyle = dark ? "#fff" : "#000";
    pen.lineWidth = 1.5;
    pen.strokeRect(x + 2, y + 2, sight.column - 5, high - 4 - gap);
  }
  if (high > 11 && sight.column > 20) {
    pen.fillStyle = inkOn(mean, dark);
    pen.save();
    pen.beginPath();
    pen.rect(x, y, sight.column - 3, high);
    pen.clip();
    const middle = Math.min(Math.max(y + high / 2, 8), sight.height - 8);
    pen.fillText(plain(id === 0 ? "start" : scene.tree.nodes.label[id]), x + 4, Math.min(Math.max(middle, y + 6), y + high - 6));
    pen.restore();
  }
  pen.globalAlpha = 1;
}

/** Revisions and continuations have a bar at their left edge. */
function stripe(pen: CanvasRenderingContext2D, x: number, y: number, high: number, column: number, dark: boolean): void {
  pen.fillStyle = dark ? "#fff" : "#000";
  pen.fillRect(x, y, Math.min(3, column / 6), high - 1);
}

function outline(pen: CanvasRenderingContext2D, scene: Scene, id: number, edge: number, sight: Window): void {
  const high = Math.max(2, scene.shape.leaves[id] * sight.unit);
  pen.lineWidth = id === scene.node ? 3.5 : 1.5;
  pen.strokeRect(scene.shape.depth[id] * sight.column - sight.x, edge * sight.unit - sight.y, sight.column - 1, high);
}

/** The node at a depth that has a leaf's place below it; -1 if there is none. */
function nodeAt(scene: Scene, edges: number[], depth: number, place: number): number {
  let id = 0;
  for (let level = 0; level < depth; level++) {
    const next = scene.shape.children[id].find((child) => place >= edges[child] && place < edges[child] + scene.shape.leaves[child]);
    if (next === undefined || next >= scene.moment) return -1;
    id = next;
  }
  return place >= 0 && place < scene.shape.leaves[0] ? id : -1;
}
