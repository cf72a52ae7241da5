// The shape of a tree, and what it was at every moment of its growth.

import type { Nodes, TreeView } from "../api";

export interface Shape {
  size: number;
  children: number[][];
  depth: number[];
  /** Leaves below, itself included: how wide a node is. */
  leaves: number[];
  deepest: number;
}

/** Nodes come in the order in which they were added, so a parent stands before its children. */
export function shapeOf(parent: number[]): Shape {
  const size = parent.length;
  const children: number[][] = Array.from({ length: size }, () => []);
  const depth = new Array<number>(size).fill(0);
  const leaves = new Array<number>(size).fill(0);
  for (let id = 1; id < size; id++) {
    children[parent[id]].push(id);
    depth[id] = depth[parent[id]] + 1;
  }
  for (let id = size - 1; id >= 0; id--) {
    if (children[id].length === 0) leaves[id] = 1;
    if (id > 0) leaves[parent[id]] += leaves[id];
  }
  return { size, children, depth, leaves, deepest: depth.reduce((most, value) => Math.max(most, value), 0) };
}

export interface Grown { visits: number[]; value: number[] }

/**
 * Visits and values when the first `moment` nodes were there. An ended leaf that was backed up gives its own visits and returns to all above
 * it as it is added; ids are in the order of adding, so nothing else is needed. At the last moment this is what is stored.
 */
export function grownTo(nodes: Nodes, moment: number): Grown {
  const size = nodes.parent.length;
  const visits = new Array<number>(size).fill(0);
  const value = new Array<number>(size).fill(0);
  for (let id = Math.min(moment, size) - 1; id >= 0; id--) {
    if (nodes.outcome[id] >= 0 && nodes.visits[id] > 0) {
      visits[id] += nodes.visits[id];
      value[id] += nodes.value[id];
    }
    const above = nodes.parent[id];
    if (above >= 0) {
      visits[above] += visits[id];
      value[above] += value[id];
    }
  }
  return { visits, value };
}

/** From the first turn down to a node; the root is left out. */
export function pathTo(parent: number[], node: number): number[] {
  const path: number[] = [];
  for (let id = node; id > 0; id = parent[id]) path.push(id);
  return path.reverse();
}

/** Equation 5 of arXiv 2501.11425: infinite for a turn that was never visited. */
export function uct(grown: Grown, parent: number[], node: number, constant: number): number {
  const visits = grown.visits[node];
  if (!visits) return Infinity;
  const above = Math.max(1, grown.visits[parent[node]]);
  return grown.value[node] / visits + constant * Math.sqrt(Math.log(above) / visits);
}

/** Turns at which good and bad paths part, and the turn that a judge called the first error of a bad path. */
export interface Marks { transitions: Set<number>; ends: Set<number>; bad: number }

export function marksOf(tree: TreeView): Marks {
  const revisions = tree.revisions ?? [];
  return {
    transitions: new Set(revisions.filter((revision) => revision.transition > 0).map((revision) => revision.transition)),
    ends: new Set(revisions.filter((revision) => revision.end > 0).map((revision) => revision.end)),
    bad: tree.verdicts.indexOf("bad"),
  };
}

/** The first turn of a path that a judge called bad, or 0. */
export function firstError(tree: TreeView, path: number[], bad: number): number {
  return (bad >= 0 && path.find((id) => tree.nodes.verdict[id] === bad)) || 0;
}

/**
 * Mean return of the ended leaves below; null where none was backed up. Trees that were not searched have the reward of their ends, but of
 * those that were refused: what would have come of them is not known.
 */
export function meanOf(tree: TreeView, grown: Grown, id: number): number | null {
  if (grown.visits[id] > 0) return grown.value[id] / grown.visits[id];
  const outcome = tree.outcomes[tree.nodes.outcome[id]];
  return outcome && outcome !== "refused" ? tree.nodes.reward[id] : null;
}
