// Where the page was scrolled to, for going back; and where a reader of the keyboard stands after a click on a link.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Route } from "./route";

const places = new Map<string, number>();
/** Milliseconds within which a page may grow to where it was scrolled to. */
const PATIENCE = 1500;

export function useScroll(route: Route, main: { current: HTMLElement | null }): void {
  const shown = useRef("");
  const clicked = useRef(false);
  useEffect(() => {
    history.scrollRestoration = "manual";
    const note = (event: MouseEvent) => {
      if (event.target instanceof Element && event.target.closest("a[href^='#/']")) clicked.current = true;
    };
    document.addEventListener("click", note, true);
    return () => document.removeEventListener("click", note, true);
  }, []);
  // Before the browser tells of the scrolling that a shorter page brings: it is not where the reader was.
  useLayoutEffect(() => {
    const page = `${route.page} ${route.run} ${route.query.stage ?? ""} ${route.query.key ?? ""}`;
    const scrolled = () => places.set(page, window.scrollY);
    if (page !== shown.current) {
      const wanted = clicked.current ? 0 : (places.get(page) ?? 0);
      const first = shown.current === "";
      shown.current = page;
      if (!first) main.current?.focus({ preventScroll: true });
      restore(wanted);
    }
    clicked.current = false;
    window.addEventListener("scroll", scrolled, { passive: true });
    return () => window.removeEventListener("scroll", scrolled);
  }, [route]);
}

function restore(wanted: number): void {
  const until = performance.now() + PATIENCE;
  const step = () => {
    window.scrollTo(0, wanted);
    if (wanted > 0 && Math.abs(window.scrollY - wanted) > 2 && performance.now() < until) requestAnimationFrame(step);
  };
  step();
}
