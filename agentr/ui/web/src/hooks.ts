// State that several pages share: where the reader is, what was answered, whether the run is worked on.

import { createContext } from "preact";
import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { PageProblem, RunPage, State } from "./api";
import { address, alone, ask, firstRoute, problemOf } from "./answers";
import { parse, type Route } from "./route";

/** Counts the changes of the run that is shown: answers of an earlier count are asked for again. */
export const Epoch = createContext(0);

/** How many answers are kept for going back. */
const KEPT = 80;
/** Changes without any run that is shown: asked for whenever it is come to. */
const HOME = "api/home";
const known = new Map<string, { epoch: number; data: unknown }>();

export interface Answer<T> {
  data: T | null;
  problem: PageProblem | null;
  /** What is shown answers an earlier question; the new answer is on its way. */
  stale: boolean;
}

/**
 * The answer at an address; null asks nothing. While the next one is on its way the last stays, if it answers the same question or with
 * `keep` any question: a list whose order was changed does not vanish meanwhile.
 */
export function useAnswer<T>(where: string | null, keep = false): Answer<T> {
  const epoch = useContext(Epoch);
  const [state, setState] = useState<{ where: string | null; data: T | null; problem: PageProblem | null }>({ where: null, data: null, problem: null });
  useEffect(() => {
    if (where === null || (known.get(where)?.epoch === epoch && !where.startsWith(HOME))) return;
    const stop = new AbortController();
    ask<T>(where, stop.signal)
      .then((data) => {
        remember(where, epoch, data);
        setState({ where, data, problem: null });
      })
      .catch((error: unknown) => {
        if (!stop.signal.aborted) setState((last) => ({ where, data: last.where === where ? last.data : null, problem: problemOf(error) }));
      });
    return () => stop.abort();
  }, [where, epoch]);
  const last = useRef<T | null>(null);
  const now = where === null ? null : ((known.get(where)?.data as T | undefined) ?? (state.where === where ? state.data : null));
  if (now !== null) last.current = now;
  const fresh = where !== null && known.get(where)?.epoch === epoch;
  const problem = state.where === where && !fresh ? state.problem : null;
  return { data: now ?? (keep && !problem ? last.current : null), problem, stale: now === null && problem === null };
}

/** The run's page, which others take the names of its stages from. */
export function useRun(run: string): Answer<RunPage> {
  return useAnswer<RunPage>(address("run", { run }));
}

function remember(where: string, epoch: number, data: unknown): void {
  known.delete(where);
  known.set(where, { epoch, data });
  const oldest = known.keys().next();
  if (known.size > KEPT && !oldest.done) known.delete(oldest.value);
}

// ------------------------------------------------------------------------------------------------------------------ the address

const MOVED = "agentr:moved";

/** Goes to an address. `replace` takes the place of the last one in the history: for a slider or a held arrow key. */
export function go(hash: string, replace = false): void {
  if (hash === here()) return;
  if (replace) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  window.dispatchEvent(new Event(MOVED));
}

function here(): string {
  return location.hash || firstRoute;
}

export function useRoute(): Route {
  const [hash, setHash] = useState(here);
  useEffect(() => {
    const moved = () => setHash(here());
    const events = ["hashchange", "popstate", MOVED];
    for (const name of events) window.addEventListener(name, moved);
    return () => {
      for (const name of events) window.removeEventListener(name, moved);
    };
  }, []);
  return useMemo(() => parse(hash), [hash]);
}

// ------------------------------------------------------------------------------------------------------------------ a run that goes on

/** Milliseconds between two looks at a run that is worked on. */
const LOOK = 3000;

/** Looks again and again at a run while a process works on it; `epoch` grows with each change. */
export function useLive(run: string): { epoch: number; live: boolean; now: string } {
  const [found, setFound] = useState({ run: "", epoch: 0, live: false, now: "", stamp: "" });
  useEffect(() => {
    if (!run || alone) return;
    let timer = 0;
    let gone = false;
    const look = async () => {
      let live = true; // a server that is away for a moment may come back
      if (!document.hidden) {
        try {
          const state = await ask<State>(address("state", { run }));
          live = state.live;
          if (!gone) setFound((last) => next(last, run, state));
        } catch {
          live = !gone && live;
        }
      }
      if (!gone && live) timer = window.setTimeout(look, LOOK);
    };
    const seen = () => {
      if (document.hidden) return;
      window.clearTimeout(timer);
      void look();
    };
    document.addEventListener("visibilitychange", seen);
    void look();
    return () => {
      gone = true;
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [run]);
  return found.run === run ? found : { epoch: found.epoch, live: false, now: "" };
}

interface Looked { run: string; epoch: number; live: boolean; now: string; stamp: string }

function next(last: Looked, run: string, state: State): Looked {
  const changed = last.run === run && last.stamp !== state.stamp;
  const same = last.run === run && !changed && last.live === state.live && last.now === state.now;
  return same ? last : { run, epoch: last.epoch + (changed ? 1 : 0), live: state.live, now: state.now, stamp: state.stamp };
}

// ------------------------------------------------------------------------------------------------------------------ sizes

/** Width and height of an element, as they change. */
export function useSize<E extends Element>(): [(element: E | null) => void, { width: number; height: number }] {
  const [element, setElement] = useState<E | null>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useEffect(() => {
    if (!element) return;
    const look = () => {
      const { clientWidth: width, clientHeight: height } = element;
      setSize((last) => (last.width === width && last.height === height ? last : { width, height }));
    };
    const observer = new ResizeObserver(look);
    observer.observe(element);
    look();
    return () => observer.disconnect();
  }, [element]);
  return [setElement, size];
}

/** Whether a condition on the window holds, such as (max-width: 700px). */
export function useMedia(condition: string): boolean {
  const [holds, setHolds] = useState(() => matchMedia(condition).matches);
  useEffect(() => {
    const media = matchMedia(condition);
    const look = () => setHolds(media.matches);
    media.addEventListener("change", look);
    look();
    return () => media.removeEventListener("change", look);
  }, [condition]);
  return holds;
}
