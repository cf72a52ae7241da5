import assert from "node:assert/strict";
import { test } from "node:test";
import { address } from "../src/answers";
import type { Nodes, ProgramView, TreeView } from "../src/api";
import { surprise } from "../src/colour";
import { defaultPair, firstDifferent, flips } from "../src/flips";
import { pieces, plain, readable } from "../src/hostile";
import { parting } from "../src/program";
import { href, parse } from "../src/route";
import { runsOf } from "../src/tokens";
import { moveBeside, moveIn, outlineRows, MOST_INDENT } from "../src/tree/outline_rows";
import { firstError, grownTo, meanOf, pathTo, shapeOf, uct } from "../src/tree/shape";

/** start, then 1 with ends 2 (return 1) and 3 (return 0); 4 is an end that was never backed up; 5 goes on. */
const PARENTS = [-1, 0, 1, 1, 1, 0];

function nodes(): Nodes {
  const none = PARENTS.map(() => 0);
  return {
    parent: PARENTS, origin: none, outcome: [-1, -1, 0, 1, 0, -1], verdict: [-1, -1, -1, 0, -1, -1], visits: [2, 2, 1, 1, 0, 0],
    value: [1, 1, 1, 0, 0, 0], reward: [0, 0, 1, 0, 1, 0], valid: none, draws: none, logprob: none, label: PARENTS.map(String),
  };
}

test("at the last moment visits and values are those that are stored", () => {
  const found = grownTo(nodes(), PARENTS.length);
  assert.deepEqual([found.visits, found.value], [nodes().visits, nodes().value]);
});

test("before an end was added nothing of it is backed up", () => {
  assert.deepEqual(grownTo(nodes(), 3).visits, [1, 1, 1, 0, 0, 0]);
  assert.deepEqual(grownTo(nodes(), 3).value, [1, 1, 1, 0, 0, 0]);
  assert.deepEqual(grownTo(nodes(), 2).visits, [0, 0, 0, 0, 0, 0]);
});

test("an end that was merged with others counts as often as it was backed up", () => {
  const merged = { ...nodes(), visits: [4, 4, 3, 1, 0, 0], value: [3, 3, 3, 0, 0, 0] };
  assert.deepEqual(grownTo(merged, 6).visits, merged.visits);
});

test("the score of a turn is the equation's, and has no bound before a visit", () => {
  const grown = { visits: nodes().visits, value: nodes().value };
  assert.equal(uct(grown, PARENTS, 2, 0.5), 1 + 0.5 * Math.sqrt(Math.log(2)));
  assert.equal(uct(grown, PARENTS, 4, 0.5), Infinity);
});

test("a tree of ten thousand turns, two thousand deep, has its shape", () => {
  const parents = Array.from({ length: 10_000 }, (_, id) => (id === 0 ? -1 : id <= 2000 ? id - 1 : id % 2000));
  const shape = shapeOf(parents);
  assert.equal(shape.depth[2000], 2000);
  assert.equal(shape.leaves[0], shape.children.filter((below) => below.length === 0).length);
  const rows = outlineRows(shape, new Set(), shape.size);
  assert.equal(rows.length, 10_000);
  assert.ok(rows.every((row) => row.indent <= MOST_INDENT));
  assert.equal(pathTo(parents, 2000).length, 2000);
});

test("only where a path forks is what follows set in", () => {
  const rows = outlineRows(shapeOf(PARENTS), new Set(), 6);
  assert.deepEqual(rows.map((row) => [row.id, row.indent, row.level]), [[0, 0, 1], [1, 1, 2], [2, 2, 3], [3, 2, 3], [4, 2, 3], [5, 1, 2]]);
  assert.deepEqual(outlineRows(shapeOf(PARENTS), new Set([1]), 6).map((row) => row.id), [0, 1, 5]);
  assert.deepEqual(outlineRows(shapeOf(PARENTS), new Set(), 3).map((row) => row.id), [0, 1, 2]);
});

test("keys lead through an outline and through a drawing", () => {
  const shape = shapeOf(PARENTS);
  const rows = outlineRows(shape, new Set(), 6);
  assert.deepEqual(moveIn(rows, 1, "left", 5, PARENTS), { to: 1, open: false });
  assert.deepEqual(moveIn(rows, 2, "left", 5, PARENTS), { to: 1 });
  assert.deepEqual(moveIn(rows, 1, "right", 5, PARENTS), { to: 2 });
  assert.deepEqual(moveIn(rows, 5, "down", 5, PARENTS), { to: 5 });
  assert.equal(moveBeside(shape, PARENTS, 1, "down", 6), 5);
  assert.equal(moveBeside(shape, PARENTS, 4, "down", 6), 5);
  assert.equal(moveBeside(shape, PARENTS, 1, "down", 3), 1, "what is not there yet cannot be gone to");
});

test("of a refused end nothing is known", () => {
  const tree = { nodes: { ...nodes(), reward: PARENTS.map(() => 0.5) }, outcomes: ["failure", "refused"] } as unknown as TreeView;
  const grown = { visits: PARENTS.map(() => 0), value: PARENTS.map(() => 0) };
  assert.deepEqual(PARENTS.map((_, id) => meanOf(tree, grown, id)), [null, null, 0.5, null, 0.5, null]);
});

test("where a program leaves a conversation is said in a sentence", () => {
  const said = (view: Partial<ProgramView>, roles: string[] = ["user"]) => {
    const messages = roles.map((role) => ({ role, content: "", cut: 0, answers: null }));
    return parting({ given: [], asks: true, after: 5, answered: true, tools: [], settings: [], others: [], refused: "", cut: 0, messages, ...view }, 5, (id) => id + 10);
  };
  assert.equal(said({}), "");
  assert.equal(said({ asks: false, after: 0 }), "");
  assert.equal(said({ after: 0, answered: false }), "Another conversation begins.");
  assert.equal(said({ after: 3 }), "It goes on from turn 13.");
  assert.equal(said({ after: 3, answered: false }), "It goes on from turn 13, without the answer of that turn.");
  assert.equal(said({ after: 3, answered: false }, []), "It asks the same again as before turn 13.");
  assert.equal(said({ answered: false }), "The program dropped this answer.");
  assert.equal(said({ answered: false }, ["assistant", "user"]), "The program wrote this answer anew.");
  assert.equal(said({ answered: false }, []), "The program dropped this answer, and asks the same again.");
});

test("the first error is the first turn of a path that was judged bad", () => {
  const tree = { nodes: nodes(), verdicts: ["bad"] } as unknown as TreeView;
  assert.equal(firstError(tree, [1, 3], 0), 3);
  assert.equal(firstError(tree, [1, 2], 0), 0);
  assert.equal(firstError(tree, [1, 3], -1), 0, "where nothing was judged bad");
});

const task = (key: string, ...scores: (number | null)[]) => ({ key, task: key, problem: key, scores, turns: scores });

test("tasks are lost, won, solved by both or by neither, the greatest change first", () => {
  const groups = flips([task("a", 1, 0.5), task("b", 1, 0), task("c", 0, 1), task("d", 1, 1), task("e", 0, 0), task("f", null, 1)], 0, 1);
  assert.deepEqual(Object.fromEntries(Object.entries(groups).map(([name, lines]) => [name, lines.map((line) => line.key).join()])), {
    lost: "b,a", won: "c", both: "d", neither: "e", unmeasured: "f",
  });
});

test("the control is no round that success is followed to", () => {
  assert.deepEqual(defaultPair([{ title: "warm start", stage: "0" }, { title: "round 1", stage: "1" }, { title: "control", stage: "c" }]), [0, 1]);
});

test("episodes differ at the first turn with another text", () => {
  const turns = (...texts: string[]) => texts.map((text) => ({ text, cut: 0 }));
  assert.equal(firstDifferent(turns("a", "b"), turns("a", "c")), 1);
  assert.equal(firstDifferent(turns("a"), turns("a", "c")), null);
  assert.equal(firstDifferent([{ text: "a", cut: 5 }], [{ text: "a", cut: 6 }]), 0);
});

test("what is not seen is named, wherever text is shown", () => {
  assert.deepEqual(pieces("a\u202Eb\u0000"), [
    { text: "a", unseen: false }, { text: "U+202E", unseen: true }, { text: "b", unseen: false }, { text: "U+0000", unseen: true },
  ]);
  for (const point of [0, 7, 8, 0x0b, 0x0d, 0x1b, 0x7f, 0x85, 0xad, 0x200b, 0x200e, 0x200f, 0x202a, 0x202e, 0x2066, 0x2069, 0x2028, 0xfeff, 0xe0041, 0xd800]) {
    const text = String.fromCodePoint(point);
    assert.equal(plain(`x${text}y`), `x[U+${point.toString(16).toUpperCase().padStart(4, "0")}]y`);
  }
  assert.equal(plain("tab\tline\n<b>& \u00e9 \u6f22 \u{1f600}"), "tab\tline\n<b>& \u00e9 \u6f22 \u{1f600}");
});

test("a key is read without its escapes, and one that only looks escaped stays", () => {
  assert.equal(readable("acacia~20~door~40~6"), "acacia door@6");
  assert.equal(readable("~c3~~a9~"), "\u00e9");
  assert.equal(readable("~ff~"), "~ff~");
});

test("an answer's address has its parameters in order, escaped as the server's are", () => {
  assert.equal(address("tree", { stage: "rounds/01/revise", run: "run", key: "a~b (c)'!*" }), "api/tree?key=a~b%20(c)'!*&run=run&stage=rounds%2F01%2Frevise");
  assert.equal(address("home", {}), "api/home");
  assert.equal(address("forest", { run: "r", search: "", step: null, down: 0 }), "api/forest?down=0&run=r");
});

test("an address leads where it was made for, whatever a run is called", () => {
  for (const run of ["demo", "cmp/sft/seed-0", "a?b#c&d=e %41"]) {
    const query = { key: "x&y=z#%", row: "rounds/01/dataset:3:row" };
    assert.deepEqual(parse(href("tree", run, query)), { page: "tree", run, query });
    assert.deepEqual(parse(href("compare", run)), { page: "compare", run, query: {} });
  }
  assert.equal(parse("#/").page, "runs");
  assert.equal(parse("").page, "runs");
  assert.equal(parse("#/run/a/nothing").page, "unknown");
});

test("what is not known of a token is never taken for something", () => {
  assert.deepEqual([null, undefined, 0, -0.05, -0.5, -1, -3, -50].map(surprise), [-1, -1, 0, 0, 1, 2, 3, 4]);
  const runs = runsOf(4, [null, null, -0.01, -0.02], [0, 0, 1, 1]);
  assert.deepEqual(runs.map((run) => [run.from, run.to, run.level, run.learnt]), [[0, 2, -1, false], [2, 3, 0, true], [3, 4, 0, true]]);
});
