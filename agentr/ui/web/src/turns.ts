// Texts of turns, asked for as they are looked at.

import { useContext, useEffect, useRef, useState } from "preact/hooks";
import type { PageProblem, TurnView } from "./api";
import { askTurns, problemOf } from "./answers";
import { Epoch } from "./hooks";

export interface Where { run: string; stage: string; key: string; [name: string]: string }

/** Most turns of one question. */
const MOST = 50;

/** Texts of turns by their ids. Those that are known are not asked for again, until the run changed. */
export function useTurns(where: Where, nodes: number[]): { turns: ReadonlyMap<number, TurnView>; problem: PageProblem | null; note: string } {
  const epoch = useContext(Epoch);
  const tree = `${where.run}\n${where.stage}\n${where.key}`;
  const known = useRef({ tree: "", epoch: -1, turns: new Map<number, TurnView>() });
  const [state, setState] = useState<{ tree: string; problem: PageProblem | null; note: string }>({ tree, problem: null, note: "" });
  if (known.current.tree !== tree) known.current = { tree, epoch, turns: new Map() };
  const asked = nodes.join(",");
  useEffect(() => {
    const { turns } = known.current;
    const outdated = known.current.epoch !== epoch;
    known.current.epoch = epoch;
    const missing = nodes.filter((node) => outdated || !turns.has(node)).slice(0, MOST);
    if (!missing.length) return;
    let gone = false;
    askTurns(where, missing, false)
      .then((found) => {
        if (gone) return;
        for (const turn of found.turns) turns.set(turn.id, turn);
        setState({ tree, problem: null, note: found.problem });
      })
      .catch((error: unknown) => !gone && setState({ tree, problem: problemOf(error), note: "" }));
    return () => {
      gone = true;
    };
  }, [tree, asked, epoch]);
  const mine = state.tree === tree;
  return { turns: known.current.turns, problem: mine ? state.problem : null, note: mine ? state.note : "" };
}
