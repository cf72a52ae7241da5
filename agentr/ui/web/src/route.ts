// Every view and every selection has an address, in the part after the hash.

export type PageName =
  | "runs" | "run" | "compare" | "tasks" | "episodes" | "patterns" | "forest" | "tree" | "dataset" | "row" | "log" | "steps" | "unknown";

export interface Route { page: PageName; run: string; query: Record<string, string> }

const OF_A_RUN: readonly string[] = ["tasks", "episodes", "patterns", "forest", "tree", "dataset", "row", "log", "steps"];

/** Reads an address; what is wrong with it is the page "unknown". */
export function parse(hash: string): Route {
  const [path, search] = split(hash.replace(/^#?\/?/, ""), "?");
  const parts = path.split("/").map(decoded);
  const query = Object.fromEntries(new URLSearchParams(search));
  if (path === "") return { page: "runs", run: "", query };
  if (parts[0] === "compare" && parts.length === 2) return { page: "compare", run: parts[1], query };
  if (parts[0] === "run" && parts.length === 2) return { page: "run", run: parts[1], query };
  if (parts[0] === "run" && parts.length === 3 && OF_A_RUN.includes(parts[2])) return { page: parts[2] as PageName, run: parts[1], query };
  return { page: "unknown", run: "", query };
}

/** Writes an address; parameters without a value are left out. */
export function href(page: PageName, run = "", query: Record<string, string | number | null | undefined> = {}): string {
  if (page === "runs") return "#/";
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = given.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join("&");
  const path = page === "compare" ? `compare/${encodeURIComponent(run)}` : `run/${encodeURIComponent(run)}${page === "run" ? "" : `/${page}`}`;
  return `#/${path}${search ? "?" : ""}${search}`;
}

function split(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
