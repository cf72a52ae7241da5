// Asks for answers: of the page itself if it was written with them, else of the server it came from.

import type { Failure, PageProblem, Turns, TurnView } from "./api";

export type Query = Record<string, string | number | null | undefined>;

/** Why there is no answer, with what to do about it. */
export class Unanswered extends Error {
  constructor(readonly problem: PageProblem) {
    super(problem.message);
  }
}

interface Held { route: string; answers: Record<string, unknown> }

const held = readHeld();

/** Whether the page has its answers in itself and can ask nobody. */
export const alone = held !== null;

/** Where a page that stands alone opens. */
export const firstRoute = held?.route ?? "#/";

/** Whether a page of this kind is in a file that stands alone. */
export function holds(page: string): boolean {
  return held !== null && Object.keys(held.answers).some((where) => where.startsWith(`api/${page}?`));
}

/** Address of an answer: parameters in order of their names, without those that say nothing. */
export function address(name: string, query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  given.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const text = given.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join("&");
  return `api/${name}${text ? "?" : ""}${text}`;
}

export async function ask<T>(where: string, signal?: AbortSignal): Promise<T> {
  if (held) {
    if (where in held.answers) return held.answers[where] as T;
    throw new Unanswered({ message: "This file does not hold that.", hint: "'agentr ui' shows the whole run." });
  }
  let response: Response;
  try {
    response = await fetch(where, { signal: signal ?? null });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unanswered({ message: "The server does not answer.", hint: "Is 'agentr ui' still running?" });
  }
  return read<T>(response);
}

async function read<T>(response: Response): Promise<T> {
  const text = await response.text();
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Unanswered({ message: text.slice(0, 300) || `The server answered ${response.status}.`, hint: "" });
  }
  if (!response.ok) throw new Unanswered((found as Failure).error ?? { message: `The server answered ${response.status}.`, hint: "" });
  return found as T;
}

/** Texts of turns by their ids: of a server in one question, of the page itself one by one. */
export async function askTurns(where: Query, nodes: number[], whole: boolean): Promise<{ turns: TurnView[]; problem: string }> {
  if (!held) return ask<Turns>(address("turns", { ...where, nodes: nodes.join(","), whole: whole ? 1 : null }));
  const found = await Promise.all(nodes.map((node) => ask<Turns>(address("turns", { ...where, nodes: node }))));
  return { turns: found.flatMap((one) => one.turns), problem: found.find((one) => one.problem)?.problem ?? "" };
}

export function problemOf(error: unknown): PageProblem {
  if (error instanceof Unanswered) return error.problem;
  return { message: error instanceof Error ? error.message : String(error), hint: "" };
}

function readHeld(): Held | null {
  const element = typeof document === "undefined" ? null : document.getElementById("answers");
  return element?.textContent ? (JSON.parse(element.textContent) as Held) : null;
}
