// Made of agentr/ui/api.py, which says what each is, by python -m tests.ui.page_types. A test compares them.
export interface Arm { kind: "warm start" | "round" | "control" | "ceiling"; number: number }

export interface ArmView {
  title: string;
  folder: string;
  policy: string;
  success: Estimate | null;
  trees: number;
  solved: number;
  rows: number;
  kinds: Record<string, number>;
  calls: number;
  tokens: number;
  cached: number;
  seconds: number;
  stages: StageLine[];
  curve: (Record<string, number | null>)[];
}

export interface AskedMessage { role: string; content: string; cut: number; answers: [number, number] | null }
export interface Command { title: string; command: string }

export interface Compare {
  card: ComparisonCard;
  about: Record<string, string>;
  methods: ComparedMethod[];
  differences: Record<string, Record<string, Contrast>>;
  states: ComparedState[];
  tasks: ComparedTask[];
  failed: Record<string, string>;
  problems: PageProblem[];
}

export interface ComparedMethod { label: string; points: ComparedPoint[]; stage: string; runs: ComparedSeed[] }

export interface ComparedPoint {
  arm: Arm;
  title: string;
  success: Estimate;
  by_seed: Record<string, number>;
  calls: number;
  tokens: number;
  seconds: number;
  gain: Contrast | null;
  way: Estimate | null;
}

export interface ComparedSeed { seed: number; run: string; state: string }

export interface ComparedState {
  title: string;
  success: Record<string, Estimate>;
  by_seed: Record<string, Record<string, number>>;
  differences: Record<string, Contrast>;
}

export interface ComparedTask { key: string; problem: string; scores: (number | null)[]; by_seed: Record<string, (number | null)[]> }

export interface ComparisonCard {
  id: string;
  name: string;
  path: string;
  methods: string[];
  seeds: number[];
  done: number;
  runs: number;
  problem: string;
}

export interface Contrast { mean: number; low: number; high: number; n: number; p: number }

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

export interface Difference { after: string; before: string; difference: Contrast; words: string; way: Estimate | null }
export interface Estimate { mean: number; low: number; high: number; n: number }

export interface EvolutionView {
  parent: number;
  operator: string;
  kept: number;
  end: number;
  reason: string;
  answer: string;
  guidance: string;
}

export interface Example { title: string; page: "episodes" | "row"; query: Record<string, string> }
export interface Failure { error: PageProblem }

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


export interface ForestView {
  stage: string;
  state: "sealed" | "growing";
  total: number;
  matched: number;
  failed: GivenUp[];
  offset: number;
  rows: ForestRow[];
  problems: PageProblem[];
}

export interface GivenUp { key: string; reason: string }
export interface Home { folders: string[]; version: string; runs: RunCard[]; comparisons: ComparisonCard[]; problems: PageProblem[] }
export interface Log { name: string; size: number; from: number; text: string }
export interface LogFileSize { name: string; size: number }
export interface Luck { title: string; stage: string; tried: number; luck: number; keys: string[] }
export interface Margin { chosen: number | null; rejected: number | null; difference: number | null }
export interface MessageView { role: string; content: string; cut: number }
export interface NamedText { name: string; content: string; cut: number }

export interface Nodes {
  parent: number[];
  origin: number[];
  outcome: number[];
  verdict: number[];
  visits: number[];
  value: number[];
  reward: number[];
  valid: number[];
  draws: number[];
  logprob: (number | null)[];
  label: string[];
}

export interface PageProblem { message: string; hint: string }
export interface Pattern { name: string; about: string; episodes: number; of: number; succeeded: number; keys: string[] }
export interface Patterns { policies: PolicyPatterns[]; luck: Luck[]; problems: PageProblem[] }
export interface PolicyChoice { name: string; title: string }
export interface PolicyName { title: string; stage: string }

export interface PolicyPatterns {
  title: string;
  stage: string;
  episodes: number;
  read: number;
  patterns: Pattern[];
  openings: Pattern[];
  lengths: [number, number, number][];
  outcomes: Record<string, number>;
}


export interface Probe {
  state: "running" | "done" | "failed";
  problem: string;
  seconds: number;
  policies: ProbedPolicy[];
  siblings: number[];
}

export interface ProbedPolicy { title: string; stage: string; logprobs: (number | null)[]; problem: string }

export interface ProgramView {
  given: NamedText[];
  messages: AskedMessage[];
  asks: boolean;
  after: number;
  answered: boolean;
  tools: number[];
  settings: NamedText[];
  others: NamedText[];
  refused: string;
  cut: number;
}


export interface Revision {
  bad: number;
  good: number;
  ancestor: number;
  transition: number;
  reflection: string;
  spliced: boolean;
  end: number;
  continued: boolean;
}

export interface RoundsDone { done: number; planned: number }

export interface RowLine {
  index: number;
  kind: string;
  tree: string;
  stage: string;
  tokens: number;
  targets: number;
  detail: Record<string, string | number>;
}


export interface RowProbe {
  state: "running" | "done" | "failed";
  problem: string;
  seconds: number;
  policies: RowProbedPolicy[];
  siblings: number[];
}

export interface RowProbedPolicy { title: string; stage: string; logprobs: ((number | null)[] | null)[]; problem: string }

export interface RowUse {
  dataset: string;
  index: number | null;
  side: "row" | "chosen" | "rejected";
  kind: string;
  reason: string;
  nodes: number[];
}


export interface RowView {
  stage: string;
  index: number;
  total: number;
  type: string;
  kind: string;
  detail: Record<string, string | number>;
  sides: SideView[];
  margin: Margin | null;
  rewards: Record<string, number>;
  problem: string;
}


export interface RunCard {
  id: string;
  name: string;
  path: string;
  state: "finished" | "running" | "stopped" | "begun" | "unreadable";
  problem: string;
  method: string;
  environment: string;
  model: string;
  seed: number;
  rounds: RoundsDone;
  before: Estimate | null;
  after: Estimate | null;
  afterTitle: string;
  seconds: number;
  completions: number;
  tokens: number;
  started: string;
}


export interface RunPage {
  card: RunCard;
  claims: Difference[];
  selection: string;
  about: Record<string, string>;
  arms: ArmView[];
  tables: Table[];
  examples: Example[];
  splices: Record<string, number>;
  troubles: string[];
  config: string;
  command: string;
  logs: LogFileSize[];
  problems: PageProblem[];
}


export interface SideView {
  name: "prompt" | "row" | "chosen" | "rejected";
  stage: string;
  key: string;
  policy: string;
  nodes: number[];
  tokens: string[] | null;
  count: number;
  mask: number[];
  logprobs: (number | null)[];
  advantages: number[];
  spans: [number, number, number][];
  problem: string;
}


export interface StageLine {
  name: string;
  step: string;
  kind: "trees" | "episodes" | "rollouts" | "dataset" | "training" | "other";
  state: "sealed" | "running" | "stopped";
  started: number | null;
  ended: number | null;
  seconds: number;
  predicted: number[];
  waited: Record<string, number>;
  about: string;
  size: number | null;
}

export interface State { stamp: string; live: boolean; now: string }
export interface StepsView { stage: string; lines: (Record<string, number | null>)[]; problems: PageProblem[] }
export interface Table { title: string; lines: Record<string, Record<string, number | Estimate | null>>; share: boolean; notes: string[] }
export interface TaskScores { key: string; task: string; problem: string; scores: (number | null)[]; turns: (number | null)[] }
export interface Tasks { policies: PolicyName[]; tasks: TaskScores[]; problems: PageProblem[] }
export interface TreePlace { stage: string; key: string; title: string }
export interface TreeTask { id: string; env: string; split: string; labels: Record<string, unknown> }

export interface TreeView {
  stage: string;
  key: string;
  task: TreeTask;
  policy: string;
  method: string;
  stopped: string;
  messages: MessageView[];
  origins: string[];
  outcomes: string[];
  verdicts: string[];
  nodes: Nodes;
  program: ProgramView | null;
  tools: NamedText[];
  partings: [number, number][];
  searched: boolean;
  exploration: number | null;
  revisions: Revision[];
  evolutions: EvolutionView[];
  uses: RowUse[];
  facts: Record<string, number>;
  elsewhere: TreePlace[];
  commands: Command[];
  policies: PolicyChoice[];
  problems: PageProblem[];
}

export interface TurnSeconds { policy: number; environment: number }

export interface TurnView {
  id: number;
  text: string;
  cut: number;
  observation: string;
  observationCut: number;
  action: string;
  tokens: string[] | null;
  logprobs: (number | null)[];
  reasoning: number;
  forgotten: number;
  finish: string;
  status: string;
  scores: Record<string, number>;
  verdict: VerdictView | null;
  uct: number | null;
  seconds: TurnSeconds | null;
  program: ProgramView | null;
}

export interface Turns { turns: TurnView[]; problem: string }
export interface VerdictView { rating: string; reason: string; answer: string }
