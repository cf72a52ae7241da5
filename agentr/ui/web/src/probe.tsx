// How likely turns or rows are under every policy: asked for on demand, computed in a process of its own.

import { useEffect, useState } from "preact/hooks";
import { ask, problemOf } from "./answers";
import type { Probe, PageProblem, RowProbe } from "./api";
import { seconds } from "./format";
import { Said, Trouble } from "./parts";

/** Milliseconds between two looks at a probe. */
const LOOK = 1500;

export interface Probing<T> { asked: boolean; done: boolean; found: T | null; problem: PageProblem | null; start: () => void }

/** Asks again and again until it is done. Questions about the same `place`, such as the siblings of a turn, share one answer. */
export function useProbe<T extends Probe | RowProbe>(question: string, place = question): Probing<T> {
  const [asked, setAsked] = useState("");
  const [state, setState] = useState<{ place: string; found: T | null; problem: PageProblem | null }>({ place: "", found: null, problem: null });
  useEffect(() => {
    if (asked !== place) return;
    let timer = 0;
    let gone = false;
    const look = async () => {
      try {
        const found = await ask<T>(question);
        if (gone) return;
        setState({ place, found, problem: null });
        if (found.state === "running") timer = window.setTimeout(look, LOOK);
      } catch (error) {
        if (!gone) setState({ place, found: null, problem: problemOf(error) });
      }
    };
    void look();
    return () => {
      gone = true;
      window.clearTimeout(timer);
    };
  }, [asked, place]);
  const mine = state.place === place ? state : { found: null, problem: null };
  const done = mine.problem !== null || (mine.found !== null && mine.found.state !== "running");
  return { asked: asked === place, done, found: mine.found, problem: mine.problem, start: () => setAsked(place) };
}

/** What there is to say of a probe beside its numbers. */
export function Underway({ probe: { found, problem } }: { probe: Probing<Probe | RowProbe> }) {
  if (problem) return <Trouble problem={problem} />;
  if (!found) return <p role="status">Asking…</p>;
  return (
    <>
      {found.state === "running" && <p role="status">Models are loaded and run, {seconds(found.seconds)} so far… <Said text={found.problem} /></p>}
      {found.state === "failed" && <Trouble problem={{ message: found.problem || "It failed.", hint: "" }} />}
      {found.policies.filter((policy) => policy.problem).map((policy) => <p class="wrong"><Said text={`${policy.title}: ${policy.problem}`} /></p>)}
    </>
  );
}
