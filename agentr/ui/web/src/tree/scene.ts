// What all views of a tree show: the tree at a moment, the chosen turn, the chosen row.

import type { RowUse, RowView, TreeView } from "../api";
import { firstError, grownTo, marksOf, pathTo, shapeOf, type Grown, type Marks, type Shape } from "./shape";

export interface Scene {
  tree: TreeView;
  shape: Shape;
  /** How many nodes are there; all of them at the end. */
  moment: number;
  grown: Grown;
  marks: Marks;
  node: number;
  /** The chosen row of a dataset, and its turns. */
  use: RowUse | null;
  inRow: ReadonlySet<number>;
  /** Of turns in the chosen row, 1 for each token that is learnt; a turn that is not here may be either. */
  masks: ReadonlyMap<number, number[]>;
  /** The path to the chosen turn, or to the end of the chosen row, root included. */
  lit: ReadonlySet<number>;
  firstError: number;
  /** In how many rows a turn is, and in how many as the worse side of a pair. */
  rows: Map<number, { used: number; rejected: number }>;
  /** Turns that are not of the conversation of the turn before them, each with the turn that theirs goes on from; 0 where it begins. */
  parted: Map<number, number>;
}

/** What does not change while a reader looks around in a tree. */
export interface Fixed { shape: Shape; marks: Marks; rows: Scene["rows"]; parted: Scene["parted"] }

export function fixedOf(tree: TreeView): Fixed {
  const rows: Scene["rows"] = new Map();
  for (const use of tree.uses) {
    if (use.index === null) continue;
    for (const node of new Set(use.nodes)) {
      if (node < 0) continue;
      const found = rows.get(node) ?? { used: 0, rejected: 0 };
      if (use.side === "rejected") found.rejected++;
      else found.used++;
      rows.set(node, found);
    }
  }
  const shape = shapeOf(tree.nodes.parent);
  const parted = new Map(tree.partings.flatMap(([id, from]) => shape.children[id].map((child): [number, number] => [child, from])));
  return { shape, marks: marksOf(tree), rows, parted };
}

export function sceneOf(tree: TreeView, fixed: Fixed, query: Record<string, string>, row: RowView | null): Scene {
  const { shape } = fixed;
  const moment = Math.min(shape.size, Math.max(1, Number(query.t ?? shape.size) || shape.size));
  const grown = moment === shape.size ? { visits: tree.nodes.visits, value: tree.nodes.value } : grownTo(tree.nodes, moment);
  const use = useNamed(tree, query.row ?? "");
  const inRow = use?.nodes.filter((id) => id > 0 && id < shape.size) ?? [];
  const end = inRow.length ? Math.max(...inRow) : 0;
  const asked = query.node === undefined ? null : Number(query.node);
  const node = asked !== null && Number.isInteger(asked) && asked >= 0 && asked < shape.size ? asked : end || firstLook(tree, fixed);
  const path = pathTo(tree.nodes.parent, use ? end : node);
  return {
    tree, moment, grown, node, use, ...fixed,
    inRow: new Set(inRow),
    masks: masksOf(row, use),
    lit: new Set([0, ...path]),
    firstError: firstError(tree, pathTo(tree.nodes.parent, node), fixed.marks.bad),
  };
}

function masksOf(row: RowView | null, use: RowUse | null): Map<number, number[]> {
  const sides = row && use && row.stage === use.dataset && row.index === use.index ? row.sides.filter((one) => one.name === use.side) : [];
  return new Map(sides.flatMap((side) => side.spans.map(([node, from, to]) => [node, side.mask.slice(from, to)])));
}

/** Whether a turn of the chosen row is learnt, at least in part; null where that is not known. */
export function isLearnt(scene: Scene, id: number): boolean | null {
  if (!scene.inRow.has(id) || scene.use?.index === null) return null;
  const mask = scene.masks.get(id);
  return mask ? mask.includes(1) : null;
}

/** A row's name in the address; of a candidate that was dropped, its place among them. */
export function nameOfUse(use: RowUse, place: number): string {
  return use.index === null ? `dropped:${place}` : `${use.dataset}:${use.index}:${use.side}`;
}

export function useNamed(tree: TreeView, name: string): RowUse | null {
  return name ? (tree.uses.find((use, place) => nameOfUse(use, place) === name) ?? null) : null;
}

/** Where to look first: at where good and bad paths part, else at the best end, else at the root. */
function firstLook(tree: TreeView, { shape }: Fixed): number {
  const parting = tree.revisions.find((revision) => revision.transition > 0);
  if (parting) return parting.transition;
  let best = 0;
  for (let id = 1; id < shape.size; id++) if (tree.nodes.outcome[id] >= 0 && (best === 0 || tree.nodes.reward[id] > tree.nodes.reward[best])) best = id;
  return best;
}
