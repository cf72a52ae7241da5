// Two episodes beside each other: their turns as far as they are looked at, and where they first differ.

import { useContext, useEffect, useState } from "preact/hooks";
import type { PageProblem, TreeView } from "./api";
import { askTurns, problemOf } from "./answers";
import { firstDifferent } from "./flips";
import { Epoch } from "./hooks";
import { pathTo } from "./tree/shape";
import type { Where } from "./turns";

/** Ends of a tree, the best first; an evaluated task has one for each episode. */
export function endsOf(tree: TreeView): number[] {
  const { outcome, reward, parent } = tree.nodes;
  const ends = outcome.flatMap((code, id) => (code >= 0 ? [id] : []));
  ends.sort((a, b) => reward[b] - reward[a] || a - b);
  return ends.length ? ends : [parent.length - 1];
}

export function episodeOf(tree: TreeView, end: number): number[] {
  return pathTo(tree.nodes.parent, end);
}

/** Turns of one question. */
const CHUNK = 40;

export interface Episode { where: Where; path: number[] }

/** Looks for the first turn that differs, from the start, as many turns at a time as needed. null: none does as far as both go. */
export function useFirstDifferent(a: Episode | null, b: Episode | null): { at: number | null; done: boolean; problem: PageProblem | null } {
  const epoch = useContext(Epoch);
  const asked = JSON.stringify([a, b]);
  const [state, setState] = useState<{ asked: string; at: number | null; problem: PageProblem | null }>({ asked: "", at: null, problem: null });
  useEffect(() => {
    if (!a || !b) return;
    let gone = false;
    const look = async () => {
      const shared = Math.min(a.path.length, b.path.length);
      for (let from = 0; from < shared && !gone; from += CHUNK) {
        const part = (episode: Episode) => askTurns(episode.where, episode.path.slice(from, Math.min(shared, from + CHUNK)), false);
        const [left, right] = await Promise.all([part(a), part(b)]);
        const at = firstDifferent(left.turns, right.turns);
        if (at !== null) return from + at;
      }
      return a.path.length === b.path.length ? null : shared;
    };
    look()
      .then((at) => !gone && setState({ asked, at, problem: null }))
      .catch((error: unknown) => !gone && setState({ asked, at: null, problem: problemOf(error) }));
    return () => {
      gone = true;
    };
  }, [asked, epoch]);
  const mine = state.asked === asked;
  return { at: mine ? state.at : null, done: mine, problem: mine ? state.problem : null };
}
