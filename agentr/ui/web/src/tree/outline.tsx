// The tree as an outline: for the keyboard, for phones, for screen readers. Only the rows in sight are in the page.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { valueColour } from "../colour";
import { number } from "../format";
import { useSize } from "../hooks";
import { Said } from "../parts";
import { Marks } from "./marks";
import { KEYS, moveIn, outlineRows, type OutlineRow } from "./outline_rows";
import { isLearnt, type Scene } from "./scene";
import { meanOf, pathTo } from "./shape";

const ROW = 28;
/** Rows beyond the edges, so that scrolling shows no gaps. */
const BEYOND = 8;

export interface ViewProps { scene: Scene; dark: boolean; onSelect: (id: number, replace?: boolean) => void }

export function Outline({ scene, dark, onSelect }: ViewProps) {
  const [closed, setClosed] = useState<ReadonlySet<number>>(new Set());
  const [top, setTop] = useState(0);
  const [measure, { height }] = useSize<HTMLDivElement>();
  const box = useRef<HTMLDivElement | null>(null);
  const rows = useMemo(() => outlineRows(scene.shape, closed, scene.moment), [scene.shape, closed, scene.moment]);
  const at = rows.findIndex((row) => row.id === scene.node);
  useEffect(() => {
    // What is chosen from elsewhere may lie in a closed part.
    const shut = pathTo(scene.tree.nodes.parent, scene.node).slice(0, -1).concat(0).filter((id) => closed.has(id));
    if (shut.length) setClosed((last) => new Set([...last].filter((id) => !shut.includes(id))));
  }, [scene.node, scene.tree]);
  useEffect(() => {
    const element = box.current;
    if (!element || at < 0 || !height) return;
    const place = at * ROW;
    if (place < element.scrollTop) element.scrollTop = place - ROW;
    else if (place + ROW > element.scrollTop + height) element.scrollTop = place - height + 2 * ROW;
  }, [at, height > 0]);
  const toggle = (id: number, open: boolean) => setClosed((last) => {
    const next = new Set(last);
    if (open) next.delete(id);
    else next.add(id);
    return next;
  });
  const pressed = (event: KeyboardEvent) => {
    const move = KEYS[event.key];
    if (!move || at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const { to, open } = moveIn(rows, at, move, Math.max(1, Math.floor(height / ROW) - 1), scene.tree.nodes.parent);
    if (open !== undefined) toggle(to, open);
    else onSelect(to, true);
  };
  const first = Math.max(0, Math.floor(top / ROW) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW) + BEYOND);
  const shown = rows.slice(first, last);
  if (at >= 0 && (at < first || at >= last)) shown.push(rows[at]); // the active row is always there for screen readers
  return (
    <div
      class="outline" role="tree" aria-label="Turns" tabIndex={0} aria-activedescendant={at >= 0 ? `n${scene.node}` : undefined}
      ref={(element) => { box.current = element; measure(element); }} onKeyDown={pressed} onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <div role="none" class="spacer" style={{ height: `${rows.length * ROW}px` }}>
        {shown.map((row) => (
          <Line key={row.id} row={row} place={row.id === scene.node ? at : rows.indexOf(row, first)} scene={scene} dark={dark} onSelect={onSelect} onToggle={toggle} />
        ))}
      </div>
    </div>
  );
}

interface LineProps { row: OutlineRow; place: number; scene: Scene; dark: boolean; onSelect: ViewProps["onSelect"]; onToggle: (id: number, open: boolean) => void }

function Line({ row, place, scene, dark, onSelect, onToggle }: LineProps) {
  const { tree, grown, shape } = scene;
  const { id } = row;
  const siblings = id > 0 ? shape.children[tree.nodes.parent[id]] : [0];
  const mean = meanOf(tree, grown, id);
  const dim = scene.use !== null && !scene.lit.has(id);
  const label = id === 0 ? "start" : tree.nodes.label[id] || "(says nothing)";
  const kind = [scene.node === id && "chosen", scene.lit.has(id) && "lit", isLearnt(scene, id) && "learnt", dim && "dim"].filter(Boolean).join(" ");
  return (
    <div
      id={`n${id}`} role="treeitem" class={`line ${kind}`} style={{ top: `${place * ROW}px`, paddingLeft: `${4 + row.indent * 14}px` }}
      aria-level={row.level} aria-selected={scene.node === id} aria-expanded={row.open ?? undefined}
      aria-setsize={siblings.length} aria-posinset={siblings.indexOf(id) + 1} onClick={() => onSelect(id)}
    >
      <span class="twist" aria-hidden="true" onClick={(event) => { if (row.open !== null) { event.stopPropagation(); onToggle(id, !row.open); } }}>
        {row.open === null ? "" : row.open ? "▾" : "▸"}
      </span>
      <Dot scene={scene} id={id} dark={dark} mean={mean} />
      <span class="id">{id}</span>
      <span class="label"><Said text={label} /></span>
      <Marks scene={scene} id={id} brief />
      <span class="numbers">{grown.visits[id] > 0 && `${grown.visits[id]} × `}{mean === null ? "" : number(mean)}</span>
    </div>
  );
}

function Dot({ scene, id, dark, mean }: { scene: Scene; id: number; dark: boolean; mean: number | null }) {
  const most = Math.max(1, scene.grown.visits[0]);
  const size = Math.round(7 + (scene.tree.searched ? 8 * Math.sqrt(scene.grown.visits[id] / most) : 2));
  const origin = scene.tree.origins[scene.tree.nodes.origin[id]];
  const square = origin === "revision" || origin === "continuation";
  const bad = scene.marks.bad >= 0 && scene.tree.nodes.verdict[id] === scene.marks.bad;
  const kind = ["dot", square && "square", bad && "judged"].filter(Boolean).join(" ");
  return <span class={kind} aria-hidden="true" style={{ width: `${size}px`, height: `${size}px`, background: valueColour(mean, dark) }} />;
}
