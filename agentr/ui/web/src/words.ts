/** A name of the program as words: step_limit is "step limit". */
export function spoken(name: string): string {
  return name.replaceAll("_", " ");
}
