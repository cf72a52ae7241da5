// The tree as nodes and links. Only what is in sight is in the page, so that large trees can be scrolled through.

import { hierarchy, tree as layout, type HierarchyPointNode } from "d3-hierarchy";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { valueColour } from "../colour";
import { number } from "../format";
import { plain } from "../hostile";
import { useSize } from "../hooks";
import type { ViewProps } from "./outline";
import { KEYS, moveBeside } from "./outline_rows";
import { ending } from "../words";
import type { Scene } from "./scene";
import { meanOf } from "./shape";

const ACROSS = 150;
const DOWN = 20;
const MARGIN = 30;
const LABEL = 22;

interface Place { x: number; y: number }

/** Where each node stands, and how large the drawing is. */
function placesOf(scene: Scene): { places: Place[]; width: number; height: number } {
  const root = layout<number>().nodeSize([DOWN, ACROSS])(hierarchy(0, (id) => scene.shape.children[id]));
  const places: Place[] = new Array<Place>(scene.shape.size);
  let [low, high] = [0, 0];
  root.each((node: HierarchyPointNode<number>) => {
    low = Math.min(low, node.x);
    high = Math.max(high, node.x);
    places[node.data] = { x: MARGIN + node.y, y: node.x };
  });
  for (const place of places) place.y += MARGIN - low;
  return { places, width: 2 * MARGIN + ACROSS * (scene.shape.deepest + 1), height: 2 * MARGIN + high - low };
}

export function Graph({ scene, dark, onSelect }: ViewProps) {
  const { places, width, height } = useMemo(() => placesOf(scene), [scene.shape]);
  const [measure, size] = useSize<HTMLDivElement>();
  const [corner, setCorner] = useState<Place>({ x: 0, y: 0 });
  const box = useRef<HTMLDivElement | null>(null);
  useEffect(() => {
    const element = box.current;
    const place = places[scene.node];
    if (!element || !place || !size.width) return;
    const { scrollLeft: x, scrollTop: y } = element;
    if (place.x < x + 20 || place.x > x + size.width - ACROSS) element.scrollLeft = place.x - size.width / 2;
    if (place.y < y + 20 || place.y > y + size.height - 20) element.scrollTop = place.y - size.height / 2;
  }, [scene.node, places, size.width > 0]);
  const inSight = useMemo(() => {
    const near = (place: Place) => place.x > corner.x - ACROSS * 1.5 && place.x < corner.x + size.width + ACROSS && place.y > corner.y - 60 && place.y < corner.y + size.height + 60;
    const found: number[] = [];
    for (let id = 0; id < Math.min(scene.moment, places.length); id++) {
      const above = scene.tree.nodes.parent[id];
      if (near(places[id]) || (above >= 0 && crosses(places[above], places[id], corner, size))) found.push(id);
    }
    return found;
  }, [places, corner, size, scene.moment]);
  const pressed = (event: KeyboardEvent) => {
    const move = KEYS[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    onSelect(moveBeside(scene.shape, scene.tree.nodes.parent, scene.node, move, scene.moment), true);
  };
  const chosen = inSight.filter((id) => scene.lit.has(id));
  return (
    <div
      class="drawing" tabIndex={0} role="group" aria-label="Graph of the turns. Arrow keys go to the turn before, the first turn after, and the turns beside."
      ref={(element) => { box.current = element; measure(element); }} onKeyDown={pressed}
      onScroll={(event) => setCorner({ x: event.currentTarget.scrollLeft, y: event.currentTarget.scrollTop })}
    >
      <svg width={width} height={height} aria-hidden="true" class={scene.use ? "graph focused" : "graph"}>
        {inSight.filter((id) => id > 0 && !scene.lit.has(id)).map((id) => <path class="link" d={link(places[scene.tree.nodes.parent[id]], places[id])} />)}
        {chosen.filter((id) => id > 0).map((id) => <path class={scene.use ? "link learnt" : "link lit"} d={link(places[scene.tree.nodes.parent[id]], places[id])} />)}
        {inSight.map((id) => <Node scene={scene} id={id} place={places[id]} dark={dark} onSelect={onSelect} />)}
      </svg>
    </div>
  );
}

function Node({ scene, id, place, dark, onSelect }: { scene: Scene; id: number; place: Place; dark: boolean; onSelect: ViewProps["onSelect"] }) {
  const { tree, grown } = scene;
  const mean = meanOf(tree, grown, id);
  const radius = tree.searched ? 3.5 + 6 * Math.sqrt(grown.visits[id] / Math.max(1, grown.visits[0])) : 5;
  const origin = tree.origins[tree.nodes.origin[id]];
  const outcome = tree.outcomes[tree.nodes.outcome[id]];
  const bad = scene.marks.bad >= 0 && tree.nodes.verdict[id] === scene.marks.bad;
  const square = origin === "revision" || origin === "continuation";
  const kind = ["node", scene.node === id && "chosen", scene.lit.has(id) && "lit", tree.nodes.valid[id] === 0 && "refused"].filter(Boolean).join(" ");
  const said = id === 0 ? "start" : tree.nodes.label[id];
  const label = said.length > LABEL ? `${said.slice(0, LABEL - 1)}…` : said;
  return (
    <g class={kind} transform={`translate(${place.x} ${place.y})`} onClick={() => onSelect(id)}>
      <title>{plain(`${id}: ${said}`)}{mean === null ? "" : ` · mean ${number(mean)}`} · visits {grown.visits[id]}</title>
      <rect class="touch" x={-10} y={-DOWN / 2} width={ACROSS - 10} height={DOWN} />
      {bad && <circle class="judged" r={radius + 3} />}
      {square
        ? <rect x={-radius} y={-radius} width={2 * radius} height={2 * radius} fill={valueColour(mean, dark)} class="splice" />
        : <circle r={radius} fill={valueColour(mean, dark)} />}
      <text x={radius + 5} y={4}>{outcome ? `${ending(outcome)} ` : ""}{scene.parted.has(id) ? "↳ " : ""}{plain(label)}</text>
    </g>
  );
}

function link(from: Place, to: Place): string {
  const middle = (from.x + to.x) / 2;
  return `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
}

/** Whether a link passes through what is in sight, though its ends may be outside. */
function crosses(from: Place, to: Place, corner: Place, size: { width: number; height: number }): boolean {
  const [top, bottom] = [Math.min(from.y, to.y), Math.max(from.y, to.y)];
  return to.x > corner.x && from.x < corner.x + size.width && bottom > corner.y && top < corner.y + size.height;
}
