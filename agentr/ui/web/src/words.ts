/** How an end came out, as one sign: a refused one is neither good nor bad, since what would have come of it is not known. */
export function ending(outcome: string): string {
  return outcome === "success" ? "✓" : outcome === "refused" ? "⊘" : "✗";
}

/** A name of the program as words: step_limit is "step limit". */
export function spoken(name: string): string {
  return name.replaceAll("_", " ");
}
