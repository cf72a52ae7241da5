// Methods against each other.

import { address } from "../answers";
import type { Compare, Contrast } from "../api";
import { count, interval, percent, plural, points, seconds } from "../format";
import { CurvePlot } from "../curve_plot";
import { isReference, sign } from "../flips";
import { plain, readable } from "../hostile";
import { go, useAnswer } from "../hooks";
import { IntervalPlot } from "../interval_plot";
import { Chip, Pager, Said, Scroll, Select, Shown, Whisker } from "../parts";
import { href } from "../route";

type Query = Record<string, string>;

const SIZE = 100;
const COSTS = ["calls", "tokens"].map((value) => ({ value, title: value }));

export function ComparePage({ id, query }: { id: string; query: Query }) {
  const answer = useAnswer<Compare>(address("compare", { run: id }));
  return <Shown answer={answer} tall="60rem">{(found) => <Found found={found} id={id} query={query} />}</Shown>;
}

function Found({ found, id, query }: { found: Compare; id: string; query: Query }) {
  const labels = found.methods.map((method) => method.label);
  const baseline = Math.max(0, labels.indexOf(query.baseline ?? ""));
  const set = (change: Query) => go(href("compare", id, { ...query, ...change }), true);
  return (
    <>
      <h1><Said text={found.card.name} /></h1>
      <p class="about">{Object.entries(found.about).map(([name, value]) => <span class="pair"><span class="faint"><Said text={name} /></span> <Said text={value} /></span>)}<span class="pair">{found.card.done} of {found.card.runs} runs done</span></p>
      <section aria-labelledby="success">
        <h2 id="success">Success on held-out tasks</h2>
        <IntervalPlot title="Success by policy and method, with 95 % intervals" groups={found.methods.map((method) => ({ label: method.label, points: method.points.map((point) => ({ title: point.title, found: point.success })) }))} />
      </section>
      <section aria-labelledby="against">
        <div class="bar"><h2 id="against">Last policies against</h2><Select label="Baseline" value={labels[baseline] ?? ""} choices={labels.map((label) => ({ value: label, title: label }))} onChange={(label) => set({ baseline: label })} /></div>
        <Methods found={found} baseline={baseline} />
      </section>
      {found.states.length > 0 && <States found={found} />}
      <Cost found={found} cost={query.cost === "tokens" ? "tokens" : "calls"} set={set} />
      <Points found={found} />
      <Runs found={found} />
      <TaskTable found={found} baseline={baseline} query={query} set={set} />
    </>
  );
}

function Methods({ found, baseline }: { found: Compare; baseline: number }) {
  const labels = found.methods.map((method) => method.label);
  const comparisons = Object.values(found.differences).reduce((sum, others) => sum + Object.keys(others).length, 0) / 2;
  return (
    <Scroll label="Paired differences">
      <table class="narrow">
        <thead><tr><th scope="col">Method</th><th scope="col">Success</th><th scope="col" class="num">Difference, points</th><th scope="col" class="num">95 % interval</th><th scope="col" class="num">p, adjusted</th><th scope="col">In words</th></tr></thead>
        <tbody>
          {found.methods.map((method, at) => {
            const difference = at === baseline ? null : (found.differences[method.label]?.[labels[baseline]] ?? null);
            const last = method.points.filter((point) => !isReference(point.title)).at(-1);
            return (
              <tr class={at === baseline ? "chosen" : ""}>
                <th scope="row"><Said text={method.label} /></th>
                <td><Whisker found={last?.success ?? null} small /></td>
                <td class="num">{difference ? points(difference.mean) : "–"}</td>
                <td class="num">{difference ? interval(difference) : "–"}</td>
                <td class="num">{difference ? chance(difference.p) : "–"}</td>
                <td class="wide">{at === baseline ? <span class="faint">the baseline</span> : words(difference, comparisons)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      <p class="about">p is adjusted for all pairs of methods ({plural(comparisons, "comparison")}, Holm): below 0.05 a difference stands.</p>
    </Scroll>
  );
}

/** Success of the last policies from bad beginnings. */
function States({ found }: { found: Compare }) {
  const comparisons = found.states.reduce((sum, state) => sum + Object.keys(state.differences).length, 0);
  return (
    <section aria-labelledby="states">
      <h2 id="states">From bad beginnings</h2>
      <Scroll label="Success from bad beginnings">
        <table class="narrow">
          <thead><tr><th scope="col">After</th><th scope="col">Method</th><th scope="col">Success</th><th scope="col" class="num">Difference, points</th><th scope="col" class="num">95 % interval</th><th scope="col" class="num">p, adjusted</th></tr></thead>
          <tbody>
            {found.states.flatMap((state) => Object.entries(state.success).map(([label, success], at) => {
              const difference = state.differences[label];
              return (
                <tr>
                  <th scope="row">{at === 0 ? state.title : ""}</th>
                  <td><Said text={label} /></td>
                  <td><Whisker found={success} small /></td>
                  <td class="num">{difference ? points(difference.mean) : "–"}</td>
                  <td class="num">{difference ? interval(difference) : "–"}</td>
                  <td class="num">{difference ? chance(difference.p) : "–"}</td>
                </tr>
              );
            }))}
          </tbody>
        </table>
      </Scroll>
      <p class="about">The beginnings are the same for all policies of a seed: from the warm start's episodes on held-out tasks. Differences are to the first method; p is adjusted for all of them ({plural(comparisons, "comparison")}, Holm).</p>
    </section>
  );
}

function chance(p: number): string {
  return p < 0.001 ? "< 0.001" : p.toFixed(3);
}

/** "Better" and "worse" are said only of what stands among all comparisons that are made here. */
function words(difference: Contrast | null, comparisons: number): string {
  if (!difference) return "no tasks in common";
  const tasks = `on ${difference.n} paired tasks`;
  const told = difference.low > 0 ? "better" : difference.high < 0 ? "worse" : "";
  if (!told) return `no difference can be told, ${tasks}`;
  return difference.p < 0.05 ? `${told}, ${tasks}` : `${told} by itself, ${tasks}; not among ${plural(comparisons, "comparison")}`;
}

/** Success of every policy, the control aside, against what was spent on exploration up to it. */
function Cost({ found, cost, set }: { found: Compare; cost: "calls" | "tokens"; set: (change: Query) => void }) {
  const curves = found.methods.map((method) => ({
    label: method.label, points: method.points.filter((point) => !isReference(point.title)).map((point): [number, number] => [Math.round(point[cost]), 100 * point.success.mean]),
  }));
  return (
    <section aria-labelledby="cost">
      <div class="bar"><h2 id="cost">Success by cost</h2><Select label="Cost" value={cost} choices={COSTS} onChange={(next) => set({ cost: next })} /></div>
      <CurvePlot title={`Success on held-out tasks in % by ${cost} of exploration`} unit={`${cost} of exploration`} curves={curves} />
      <p class="about">Calls and tokens are those of exploration (search, revision), without evaluation. A call may ask for several completions at once, tokens count them all.</p>
    </section>
  );
}

function Points({ found }: { found: Compare }) {
  const seeds = found.card.seeds.map(String);
  const ways = found.methods.some((method) => method.points.some((point) => point.way));
  return (
    <section aria-labelledby="points">
      <h2 id="points">By policy</h2>
      <Scroll label="Policies of every method">
        <table>
          <thead><tr><th scope="col">Method</th><th scope="col">Policy</th><th scope="col">Success</th><th scope="col" class="num">Gain, points</th>{ways && <th scope="col" class="num">Of the way to the ceiling</th>}<th scope="col" class="num">Calls</th><th scope="col" class="num">Tokens</th><th scope="col" class="num">Work</th>{seeds.map((seed) => <th scope="col" class="num">Seed {seed}</th>)}</tr></thead>
          <tbody>
            {found.methods.flatMap((method) => method.points.map((point) => (
              <tr>
                <th scope="row"><Said text={method.label} /></th>
                <td><Said text={point.title} /></td>
                <td><Whisker found={point.success} small /></td>
                <td class="num">{point.gain ? `${points(point.gain.mean)} (${interval(point.gain)})` : "–"}</td>
                {ways && <td class="num">{point.way ? `${percent(point.way.mean, 0)} (${percent(point.way.low, 0)} to ${percent(point.way.high, 0)})` : "–"}</td>}
                <td class="num">{count(Math.round(point.calls))}</td>
                <td class="num">{count(Math.round(point.tokens))}</td>
                <td class="num">{seconds(point.seconds)}</td>
                {seeds.map((seed) => <td class="num">{percent(point.by_seed[seed])}</td>)}
              </tr>
            )))}
          </tbody>
        </table>
      </Scroll>
      <p class="about">Differences are paired by task and seed. Intervals: percentile bootstrap over seeds and problems, drawn independently, each with all its tasks. With few seeds that differ much they are a little too narrow.</p>
    </section>
  );
}

function Runs({ found }: { found: Compare }) {
  return (
    <section aria-labelledby="its-runs">
      <h2 id="its-runs">Its runs</h2>
      <ul>
        {found.methods.map((method) => (
          <li><Said text={method.label} />: {method.runs.map((run) => <span class="pair">{run.run ? <a href={href("run", run.run)}>seed {run.seed}</a> : `seed ${run.seed}`} <Chip>{run.state}</Chip>{run.run && <> <a href={href("tasks", run.run)} aria-label={`Tasks of ${method.label}, seed ${run.seed}`}>tasks</a></>}</span>)}</li>
        ))}
      </ul>
      {Object.entries(found.failed).map(([run, why]) => <p class="wrong"><Said text={run} /> could not be finished: <Said text={why} /></p>)}
    </section>
  );
}

function TaskTable({ found, baseline, query, set }: { found: Compare; baseline: number; query: Query; set: (change: Query) => void }) {
  const labels = found.methods.map((method) => method.label);
  const chosen = labels.indexOf(query.method ?? "");
  const other = chosen >= 0 && chosen !== baseline ? chosen : labels.findIndex((_, at) => at !== baseline);
  if (other < 0 || !found.tasks.length) return null;
  const change = (scores: (number | null)[]) => (scores[other] === null || scores[baseline] === null ? null : scores[other] - scores[baseline]);
  const lines = [...found.tasks].sort((a, b) => Math.abs(change(b.scores) ?? -1) - Math.abs(change(a.scores) ?? -1) || (change(a.scores) ?? 0) - (change(b.scores) ?? 0));
  const offset = Number(query.offset ?? 0) || 0;
  return (
    <section aria-labelledby="by-task">
      <div class="bar">
        <h2 id="by-task">By task</h2>
        <Select label="Greatest difference first, of" value={labels[other]} choices={labels.filter((_, at) => at !== baseline).map((label) => ({ value: label, title: `${label} less ${labels[baseline]}` }))} onChange={(method) => set({ method, offset: "" })} />
      </div>
      <Pager offset={offset} size={SIZE} total={lines.length} onMove={(next) => set({ offset: String(next || "") })} />
      <Scroll label="Tasks by method">
        <table class="narrow">
          <thead><tr><th scope="col">Task</th>{labels.map((label) => <th scope="col"><Said text={label} /></th>)}<th scope="col" class="num">Difference</th><th scope="col">Both episodes</th></tr></thead>
          <tbody>
            {lines.slice(offset, offset + SIZE).map((task) => {
              const difference = change(task.scores);
              return (
                <tr>
                  <th scope="row"><Said text={readable(task.key)} /></th>
                  {task.scores.map((score) => <td class="num">{percent(score, 0)}</td>)}
                  <td class="num">{difference === null ? "–" : points(difference)}</td>
                  <td>{found.card.seeds.map((seed) => <Seed seed={seed} task={task} base={found.methods[baseline]} method={found.methods[other]} scores={[baseline, other].map((at) => task.by_seed[seed]?.[at] ?? null)} />)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

interface SeedProps { seed: number; task: Compare["tasks"][number]; base: Compare["methods"][number]; method: Compare["methods"][number]; scores: (number | null)[] }

/** The way to one seed's episodes of a task: the baseline's and the method's, beside each other. */
function Seed({ seed, task, base, method, scores }: SeedProps) {
  const [before, after] = scores;
  const [against, run] = [base, method].map((one) => one.runs.find((found) => found.seed === seed)?.run);
  if (before === null || after === null || !against || !run) return null;
  const told = `Seed ${seed}: ${percent(before, 0)} under ${base.label}, ${percent(after, 0)} under ${method.label}`;
  return (
    <span class="pair">
      <a href={href("episodes", run, { task: task.key, against, a: base.stage, b: method.stage })} aria-label={plain(told)} title={plain(told)}>seed {seed} {sign(before)}→{sign(after)}</a>
    </span>
  );
}
