// Small pieces that every page is made of.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { alone } from "./answers";
import type { Estimate, PageProblem } from "./api";
import { percent, interval, plural } from "./format";
import { pieces, plain } from "./hostile";
import type { Answer } from "./hooks";

/** Text of a model or an environment: nothing in it is markup, and what would not be seen is named. */
export function Said({ text }: { text: string }) {
  return (
    <bdi class="said">
      {pieces(text).map((piece) => (piece.unseen ? <span class="unseen">{piece.text}</span> : piece.text))}
    </bdi>
  );
}

/** Characters of an observation that are shown at once. */
const SHORT = 400;

/** What the environment answered; a long one is folded. */
export function Observed({ text }: { text: string }) {
  if (text.length <= SHORT) return <blockquote class="observed"><Said text={text} /></blockquote>;
  return (
    <details class="observed">
      <summary><Said text={`${text.slice(0, 160).replace(/\s+/g, " ")}…`} /></summary>
      <Said text={text} />
    </details>
  );
}

/** What is made only once it is wanted. */
export function Fold({ title, children }: { title: string; children: () => ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return <details class="small" onToggle={(event) => setOpen(event.currentTarget.open)}><summary><Said text={title} /></summary>{open && children()}</details>;
}

export function Trouble({ problem }: { problem: PageProblem }) {
  return (
    <div class="trouble" role="alert">
      <strong><Said text={sentence(problem.message)} /></strong> {problem.hint && <Said text={problem.hint} />}
    </div>
  );
}

/** Most problems of an answer that are named. */
const NAMED = 8;

/** Shows an answer with what could not be read of it, or why there is none, or that it is on its way. `tall` keeps the place that it will need. */
export function Shown<T>({ answer, children, tall = "12rem" }: { answer: Answer<T>; children: (data: T) => ComponentChildren; tall?: string }) {
  if (answer.data !== null) {
    return (
      <div class={answer.stale ? "stale" : ""} aria-busy={answer.stale}>
        {answer.problem && <Trouble problem={answer.problem} />}
        <Unread problems={(answer.data as { problems?: PageProblem[] }).problems ?? []} />
        {children(answer.data)}
      </div>
    );
  }
  if (answer.problem) return <Trouble problem={answer.problem} />;
  return <div class="loading" style={{ minHeight: tall }} role="status">Loading…</div>;
}

function Unread({ problems }: { problems: PageProblem[] }) {
  return (
    <>
      {problems.slice(0, NAMED).map((problem) => <Trouble problem={problem} />)}
      {problems.length > NAMED && <p class="wrong">{plural(problems.length - NAMED, "more thing")} cannot be read.</p>}
    </>
  );
}

export function Chip({ kind = "", title, children }: { kind?: string; title?: string; children: ComponentChildren }) {
  return <span class={`chip ${kind}`} title={title}>{children}</span>;
}

/** A table that scrolls by itself where the page is too narrow; the keyboard reaches it. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return <div class="scroll" role="region" aria-label={label} tabIndex={0}>{children}</div>;
}

export function Copy({ text, label }: { text: string; label: string }) {
  const [told, setTold] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setTold("copied");
    } catch {
      setTold("select it and copy by hand");
    }
    window.setTimeout(() => setTold(""), 2000);
  };
  return (
    <div class="command">
      <pre tabIndex={0} aria-label={label}><Said text={text} /></pre>
      <button type="button" onClick={copy} aria-label={`Copy: ${label}`}>Copy</button>
      <span role="status">{told}</span>
    </div>
  );
}

/** A share of successes as a dot with its interval, on a scale from 0 to 1. */
export function Whisker({ found, small = false }: { found: Estimate | null; small?: boolean }) {
  if (!found) return <span class="faint">–</span>;
  const at = (value: number) => `${(100 * Math.min(1, Math.max(0, value))).toFixed(2)}%`;
  return (
    <span class={small ? "whisker small" : "whisker"}>
      <span class="number">{percent(found.mean)}</span>
      <span class="axis" aria-hidden="true">
        <span class="line" style={{ left: at(found.low), right: at(1 - found.high) }} />
        <span class="dot" style={{ left: at(found.mean) }} />
      </span>
      <span class="range">{interval(found)}</span>
    </span>
  );
}

export function Pager({ offset, size, total, onMove }: { offset: number; size: number; total: number; onMove: (offset: number) => void }) {
  if (total <= size && offset === 0) return null;
  const last = Math.min(offset + size, total);
  const end = Math.max(0, Math.floor((total - 1) / size) * size);
  return (
    <nav class="pager" aria-label="Pages">
      <button type="button" disabled={offset === 0} onClick={() => onMove(0)}>First</button>
      <button type="button" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - size))}>Previous</button>
      <span>{total ? offset + 1 : 0}–{last} of {total}</span>
      <button type="button" disabled={last >= total} onClick={() => onMove(offset + size)}>Next</button>
      <button type="button" disabled={last >= total} onClick={() => onMove(end)}>Last</button>
    </nav>
  );
}

export interface Choice { value: string; title: string }

export function Select({ label, value, choices, onChange }: { label: string; value: string; choices: Choice[]; onChange: (value: string) => void }) {
  return (
    <label class="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {choices.map((choice) => <option value={choice.value} selected={choice.value === value}>{plain(choice.title)}</option>)}
      </select>
    </label>
  );
}

/** A search field: its value is told when the reader pauses. */
export function Search({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  const typed = (next: string) => {
    setText(next);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onChange(next), 250);
  };
  return (
    <label class="field">
      <span>{label}</span>
      <input type="search" value={text} onInput={(event) => typed(event.currentTarget.value)} />
    </label>
  );
}

/** The head of a column that rows can be sorted by. */
interface SortableProps { name: string; title: string; sort: string; down: boolean; numbers?: boolean; onSort: (name: string, down: boolean) => void }

export function Sortable({ name, title, sort, down, numbers = false, onSort }: SortableProps) {
  const mine = sort === name;
  if (alone) return <th scope="col" class={numbers ? "num" : ""}>{title}</th>;
  return (
    <th scope="col" class={numbers ? "num" : ""} aria-sort={mine ? (down ? "descending" : "ascending") : "none"}>
      <button type="button" class="sort" onClick={() => onSort(name, mine ? !down : name !== "key")}>
        {title}<span aria-hidden="true">{mine ? (down ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}

function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?:]$/.test(first) ? first : `${first}.`;
}
