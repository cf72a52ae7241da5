// Held-out tasks under two policies: which were lost and won; and where two episodes first differ.

import type { Tasks, TurnView } from "./api";

export type Flip = "lost" | "won" | "both" | "neither" | "unmeasured";

export const FLIPS: [Flip, string][] = [
  ["lost", "Lost"], ["won", "Won"], ["both", "Solved by both"], ["neither", "Solved by neither"], ["unmeasured", "Not measured under both"],
];

export function flipOf(before: number | null, after: number | null): Flip {
  if (before === null || after === null) return "unmeasured";
  if (after < before) return "lost";
  if (after > before) return "won";
  return after > 0 ? "both" : "neither";
}

export type TaskLine = Tasks["tasks"][number];

/** Tasks by what became of them, the greatest change first. */
export function flips(tasks: TaskLine[], a: number, b: number): Record<Flip, TaskLine[]> {
  const groups: Record<Flip, TaskLine[]> = { lost: [], won: [], both: [], neither: [], unmeasured: [] };
  for (const task of tasks) groups[flipOf(task.scores[a], task.scores[b])].push(task);
  const change = (task: TaskLine) => Math.abs((task.scores[b] ?? 0) - (task.scores[a] ?? 0));
  for (const group of Object.values(groups)) group.sort((x, y) => change(y) - change(x));
  return groups;
}

/** A score as one sign. */
export function sign(value: number | null): string {
  return value === null ? "·" : value >= 1 ? "✓" : value > 0 ? "½" : "✗";
}

/** Whether a policy is no step of the loop, and what the rounds are compared with. */
export function isReference(title: string): boolean {
  return title === "control" || title === "ceiling";
}

/** Which two policies are compared if nobody chose: the warm start and the last round. Control and ceiling come last of all, and are no rounds. */
export function defaultPair(policies: Tasks["policies"]): [number, number] {
  const rounds = policies.map((_, index) => index).filter((index) => !isReference(policies[index].title));
  const last = rounds.at(-1) ?? 0;
  return [rounds[0] ?? 0, last];
}

/** Index of the first turn that differs, or null if one episode is the beginning of the other or both are the same so far. */
export function firstDifferent(a: Pick<TurnView, "text" | "cut">[], b: Pick<TurnView, "text" | "cut">[]): number | null {
  const shared = Math.min(a.length, b.length);
  for (let at = 0; at < shared; at++) if (a[at].text !== b[at].text || a[at].cut !== b[at].cut) return at;
  return null;
}
