// What the server answers (agentr/ui/views). One address a view, GET alone; a file made by `agentr report --tree` holds the same answers in itself.
//
//   api/home                                              Home
//   api/state?run                                         State         asked again and again while a run is worked on
//   api/run?run                                           RunPage
//   api/tasks?run                                         Tasks         held-out tasks by policies
//   api/patterns?run                                      Patterns
//   api/steps?run&stage                                   Steps         of online training
//   api/forest?run&stage&sort&down&search&only&step&offset&limit        Forest
//   api/tree?run&stage&key                                TreeView      topology: everything but the turns' texts
//   api/turns?run&stage&key&nodes=3,4&whole=0             Turns
//   api/probe?run&stage&key&at                            Probe         of a tree's turn
//   api/probe?run&stage&at                                RowProbe      of a dataset's row
//   api/dataset?run&stage&kind&offset&limit               DatasetView
//   api/row?run&stage&index                               RowView
//   api/compare?run                                       Compare       `run` is the comparison's id
//   api/log?run&name&end                                  Log
//
// A file that `agentr report --tree` made has <script type="application/json" id="answers">{"route": "#/...", "answers": {ADDRESS: answer}}</script>:
// it opens at `route` if the address has no hash, and asks nobody. ADDRESS is as above with its parameters sorted by name and escaped by
// encodeURIComponent. Turns are there one by one (nodes=3), however many are asked for together; what is not there (home, probe, ...)
// is said to be in `agentr ui` alone.
//
// `run` is an id of Home, `stage` a stage's name such as rounds/01/collect, `key` a tree's key. An error is {"error": {message, hint}} with
// its status; `problems` of an answer name what could not be read, and the rest is there. All text comes from models and environments: it is shown as text, never as markup.

/** A mean with its 95 % interval over n tasks. */
export interface Estimate { mean: number; low: number; high: number; n: number }

export interface Problem { message: string; hint: string }
export interface Failure { error: Problem }

// ---------------------------------------------------------------------------------------------------------------- all runs

export type RunState = "finished" | "running" | "stopped" | "begun" | "unreadable";

export interface RunCard {
  id: string;
  name: string;
  path: string;
  state: RunState;
  /** Why it cannot be read, or what holds it up; empty if nothing does. */
  problem: string;
  method: string;
  environment: string;
  model: string;
  seed: number;
  rounds: { done: number; planned: number };
  /** Held-out success of the warm start and of the last policy that was measured. */
  before: Estimate | null;
  after: Estimate | null;
  afterTitle: string;
  /** Seconds of work. */
  seconds: number;
  completions: number;
  tokens: number;
  /** ISO time of its first event; empty if unknown. */
  started: string;
}

export interface ComparisonCard { id: string; name: string; path: string; methods: string[]; seeds: number[]; done: number; runs: number; problem: string }

export interface Home { folders: string[]; version: string; runs: RunCard[]; comparisons: ComparisonCard[]; problems: Problem[] }

/** `stamp` changes when anything of the run did; `live` while a process works on it. */
export interface State { stamp: string; live: boolean; now: string }

// ---------------------------------------------------------------------------------------------------------------- a run

export type StageKind = "trees" | "episodes" | "rollouts" | "dataset" | "training" | "other";

export interface StageLine {
  name: string;
  /** Name in its round: collect, dataset, train, eval, ... */
  step: string;
  kind: StageKind;
  state: "sealed" | "running" | "stopped";
  /** Seconds since the run's first event; null if unknown. */
  started: number | null;
  ended: number | null;
  /** Seconds of work. */
  seconds: number;
  /** What it waited for, in seconds: policy, environment. Summed over everything that waited at the same time. */
  waited: Record<string, number>;
  /** What it came to, in one line. */
  about: string;
  /** Trees or rows; null if it has none. */
  size: number | null;
}

export interface Arm {
  title: string;
  folder: string;
  /** Name by which trees name the policy that was trained here; empty if none was. */
  policy: string;
  success: Estimate | null;
  recovery: Estimate | null;
  trees: number;
  solved: number;
  rows: number;
  /** Rows by kind. */
  kinds: Record<string, number>;
  calls: number;
  tokens: number;
  cached: number;
  seconds: number;
  stages: StageLine[];
  /** Logged steps of training: step, loss, and what the loss logs besides. */
  curve: Record<string, number>[];
}

export interface Difference { after: string; before: string; difference: Estimate; words: string }

export interface RunPage {
  card: RunCard;
  /** The claim: differences of held-out success with their meaning in words. */
  claims: Difference[];
  /** On which tasks the best round is chosen; empty with one policy. */
  selection: string;
  about: Record<string, string>;
  arms: Arm[];
  tables: { title: string; lines: Record<string, Record<string, number | Estimate | null>>; share: boolean; notes: string[] }[];
  examples: { title: string; page: "episodes" | "row"; query: Record<string, string> }[];
  /** Executed splices: tried, kept, ... */
  splices: Record<string, number>;
  troubles: string[];
  /** The configuration as YAML, and the command that repeats the run. */
  config: string;
  command: string;
  logs: { name: string; size: number }[];
  problems: Problem[];
}

// ---------------------------------------------------------------------------------------------------------------- held-out tasks, patterns

export interface Tasks {
  policies: { title: string; stage: string }[];
  /** A row for each held-out task; `scores` and `turns` are by policy, null where it was not measured. */
  tasks: { key: string; task: string; problem: string; scores: (number | null)[]; turns: (number | null)[] }[];
  problems: Problem[];
}

export interface Pattern { name: string; about: string; episodes: number; of: number; succeeded: number; keys: string[] }

export interface Patterns {
  policies: {
    title: string;
    stage: string;
    episodes: number;
    /** Episodes that were read, where there are too many for all. */
    read: number;
    patterns: Pattern[];
    /** Openings (first sentences of turns) that recur: in how many episodes, and how many of those succeeded. */
    openings: Pattern[];
    /** Episodes by their number of turns: [turns, episodes, succeeded]. */
    lengths: [number, number, number][];
    outcomes: Record<string, number>;
  }[];
  problems: Problem[];
}

export interface Steps {
  stage: string;
  /** A line for each step of online training: step, success, reward/..., calls, entropy, staleness, groups, silent, ... */
  lines: Record<string, number | null>[];
  problems: Problem[];
}

// ---------------------------------------------------------------------------------------------------------------- forests and trees

export interface ForestRow {
  key: string;
  task: string;
  turns: number;
  depth: number;
  ends: number;
  successes: number;
  best: number | null;
  mean: number | null;
  revisions: number;
  stopped: string;
  completions: number;
  tokens: number;
  seconds: number;
  step: number | null;
}

export interface Forest {
  stage: string;
  state: "sealed" | "growing";
  total: number;
  /** Trees that match search and filter. */
  matched: number;
  /** Units that were given up, with the reason. */
  failed: { key: string; reason: string }[];
  offset: number;
  rows: ForestRow[];
  problems: Problem[];
}

/** Columns, one value a node, in the order of ids; node 0 is the root. */
export interface Nodes {
  parent: number[];
  /** Index in `origins`, `outcomes`, `verdicts`; -1 for none. */
  origin: number[];
  outcome: number[];
  verdict: number[];
  visits: number[];
  /** Sum of the returns of the ended leaves below. */
  value: number[];
  reward: number[];
  valid: number[];
  draws: number[];
  /** Mean log-probability of a token of the turn; null where none is known. */
  logprob: (number | null)[];
  /** The action, shortened. */
  label: string[];
}

export interface RevisionView {
  bad: number;
  good: number;
  ancestor: number;
  transition: number;
  reflection: string;
  spliced: boolean;
  /** Leaf of the executed revision if it earned the good path's return, else -1. */
  end: number;
  continued: boolean;
}

/** A row of a dataset that turns of this tree went into (`index` null: a candidate that was dropped, and why). */
export interface RowUse { dataset: string; index: number | null; side: "row" | "chosen" | "rejected"; kind: string; reason: string; nodes: number[] }

export interface TreeView {
  stage: string;
  key: string;
  task: { id: string; env: string; split: string; labels: Record<string, unknown> };
  policy: string;
  method: string;
  stopped: string;
  messages: { role: string; content: string; cut: number }[];
  origins: string[];
  outcomes: string[];
  verdicts: string[];
  nodes: Nodes;
  /** Whether returns are of ended leaves that were backed up, so that `visits` and `value` say something. */
  searched: boolean;
  /** The constant of the UCT score; null where the strategy has none. */
  exploration: number | null;
  revisions: RevisionView[];
  uses: RowUse[];
  /** Numbers of the tree: calls, completions, tokens, seconds, events by name. */
  facts: Record<string, number>;
  /** The same task's trees in other stages: of other policies, other rounds. */
  elsewhere: { stage: string; key: string; title: string }[];
  /** Commands to copy, with NODE where the selected turn's number belongs: they act on copies, never on the run. */
  commands: { title: string; command: string }[];
  policies: { name: string; title: string }[];
  problems: Problem[];
}

export interface TurnView {
  id: number;
  text: string;
  /** Characters left out at the end; `whole=1` brings them. */
  cut: number;
  observation: string;
  observationCut: number;
  action: string;
  /** Texts of the tokens; null without a tokenizer, and `problem` says why. */
  tokens: string[] | null;
  /** Of each token; null where it is not known. */
  logprobs: (number | null)[];
  /** How many leading tokens are reasoning. */
  reasoning: number;
  forgotten: number;
  finish: string;
  status: string;
  scores: Record<string, number>;
  verdict: { rating: string; reason: string; answer: string } | null;
  /** UCT score as the search would see it now; null where it has none. */
  uct: number | null;
  seconds: { policy: number; environment: number } | null;
}

export interface Turns { turns: TurnView[]; problem: string }

/** Log-probabilities under each policy, computed on demand in a process of its own. */
export interface Probed<T> {
  state: "running" | "done" | "failed";
  problem: string;
  /** Seconds since it was asked for. */
  seconds: number;
  policies: { title: string; stage: string; logprobs: T[]; problem: string }[];
}
/** Of a turn and its siblings. */
export interface Probe extends Probed<number | null> { siblings: number[] }
/** Of the learnt tokens of a row: a list for each of its sides, as long as the side; null for what is not learnt. */
export type RowProbe = Probed<(number | null)[] | null>;

// ---------------------------------------------------------------------------------------------------------------- datasets

export interface RowLine {
  index: number;
  kind: string;
  tree: string;
  stage: string;
  tokens: number;
  targets: number;
  detail: Record<string, string | number>;
}

export interface DatasetView {
  stage: string;
  type: string;
  total: number;
  matched: number;
  kinds: Record<string, number>;
  dropped: Record<string, number>;
  offset: number;
  rows: RowLine[];
}

export interface SideView {
  name: "prompt" | "row" | "chosen" | "rejected";
  stage: string;
  key: string;
  policy: string;
  /** Node ids, -1 for inserted text. */
  nodes: number[];
  tokens: string[] | null;
  count: number;
  /** 1 where a token is learnt. */
  mask: number[];
  logprobs: (number | null)[];
  advantages: number[];
  /** Where turns stand among the tokens: [node, from, to]. Those that the row shows otherwise than the tree has them are left out. */
  spans: [number, number, number][];
  problem: string;
}

export interface RowView {
  stage: string;
  index: number;
  total: number;
  type: string;
  kind: string;
  detail: Record<string, string | number>;
  sides: SideView[];
  /** Of a pair: mean log-probability of each side under the policy that drew it, and their difference; null where unknown. */
  margin: { chosen: number | null; rejected: number | null; difference: number | null } | null;
  rewards: Record<string, number>;
  problem: string;
}

// ---------------------------------------------------------------------------------------------------------------- comparisons

export interface ComparePoint { title: string; success: Estimate; by_seed: Record<string, number>; calls: number; tokens: number; seconds: number; gain: Estimate | null }

export interface Compare {
  card: ComparisonCard;
  about: Record<string, string>;
  /** `stage` is the evaluation of a method's last policy that all its seeds have; empty if there is none. */
  methods: { label: string; points: ComparePoint[]; stage: string; runs: { seed: number; run: string; state: string }[] }[];
  /** Paired differences of the last policies: differences[a][b] is a less b; null on the diagonal or where there are none. */
  differences: Record<string, Record<string, Estimate>>;
  failed: Record<string, string>;
  /** Held-out tasks by method (last policy): mean of the seeds, and each seed by itself. */
  tasks: { key: string; problem: string; scores: (number | null)[]; by_seed: Record<string, (number | null)[]> }[];
  problems: Problem[];
}

export interface Log { name: string; size: number; from: number; text: string }
