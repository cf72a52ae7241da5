// The rows of a tree's outline: which are there, how far they are set in, and where a key leads.

import type { Shape } from "./shape";

export interface OutlineRow { id: number; level: number; indent: number; open: boolean | null }

/** Steps of setting in, at most: a deep tree would leave no room for its text. */
export const MOST_INDENT = 14;

/**
 * Rows from top to bottom. Turns that follow each other without a choice stand below each other; only where a path forks is what follows set
 * in. `moment` leaves out what was not there yet.
 */
export function outlineRows(shape: Shape, closed: ReadonlySet<number>, moment: number): OutlineRow[] {
  const rows: OutlineRow[] = [];
  const open: [number, number][] = [[0, 0]];
  for (let next = open.pop(); next; next = open.pop()) {
    const [id, indent] = next;
    const below = shape.children[id].filter((child) => child < moment);
    const shut = closed.has(id);
    rows.push({ id, level: shape.depth[id] + 1, indent: Math.min(indent, MOST_INDENT), open: below.length ? !shut : null });
    if (!shut) for (let at = below.length - 1; at >= 0; at--) open.push([below[at], below.length > 1 ? indent + 1 : indent]);
  }
  return rows;
}

export type Move = "up" | "down" | "left" | "right" | "first" | "last" | "pageup" | "pagedown";

export const KEYS: Record<string, Move> = {
  ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right", Home: "first", End: "last", PageUp: "pageup", PageDown: "pagedown",
};

/** Where a key leads in an outline: to a node, or to opening (`open`) or closing one. */
export function moveIn(rows: OutlineRow[], at: number, move: Move, page: number, parent: number[]): { to: number; open?: boolean } {
  const row = rows[at];
  const to = (index: number) => ({ to: rows[Math.max(0, Math.min(rows.length - 1, index))].id });
  switch (move) {
    case "up": return to(at - 1);
    case "down": return to(at + 1);
    case "first": return to(0);
    case "last": return to(rows.length - 1);
    case "pageup": return to(at - page);
    case "pagedown": return to(at + page);
    case "left": return row.open ? { to: row.id, open: false } : { to: Math.max(0, parent[row.id]) };
    case "right": return row.open === false ? { to: row.id, open: true } : to(row.open ? at + 1 : at);
  }
}

/** Where an arrow key leads in a drawing that grows to the right: to the parent, the first child, or the next turn of the same depth. */
export function moveBeside(shape: Shape, parent: number[], node: number, move: Move, moment: number): number {
  const there = (id: number | undefined) => (id !== undefined && id < moment ? id : node);
  if (move === "left") return Math.max(0, parent[node]);
  if (move === "right") return there(shape.children[node][0]);
  if (move === "first") return 0;
  if (move !== "up" && move !== "down") return node;
  const step = move === "up" ? -1 : 1;
  for (let id = node, climbed = 0; id > 0; id = parent[id], climbed++) {
    const siblings = shape.children[parent[id]].filter((other) => other < moment);
    let beside: number | undefined = siblings[siblings.indexOf(id) + step];
    for (let down = 0; down < climbed && beside !== undefined; down++) {
      const below: number[] = shape.children[beside].filter((other) => other < moment);
      if (!below.length) break;
      beside = step < 0 ? below[below.length - 1] : below[0];
    }
    if (beside !== undefined) return beside;
  }
  return node;
}
