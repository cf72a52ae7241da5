// One run: what it claims, its policies, where the time went, and what it was made with.

import type { ArmView, RunPage as RunAnswer } from "../api";
import { isReference } from "../flips";
import { count, number, percent, plural, points, seconds } from "../format";
import { useRun } from "../hooks";
import { Chip, Copy, Said, Scroll, Shown, Whisker } from "../parts";
import { IntervalPlot } from "../interval_plot";
import { href } from "../route";
import { Curves } from "./run_curves";
import { Tables } from "./run_tables";
import { Timeline } from "./run_timeline";

export function RunPage({ run }: { run: string }) {
  const answer = useRun(run);
  return (
    <Shown answer={answer} tall="60rem">
      {(page) => (
        <>
          <Head page={page} />
          <Claims page={page} run={run} />
          <div class="columns">
            <Success arms={page.arms} />
            <Mix arms={page.arms} run={run} />
          </div>
          <Policies arms={page.arms} run={run} />
          <Curves arms={page.arms} run={run} />
          <Timeline arms={page.arms} run={run} />
          <Tables tables={page.tables} />
          <Rest page={page} run={run} />
        </>
      )}
    </Shown>
  );
}

function Head({ page }: { page: RunAnswer }) {
  const { card } = page;
  return (
    <>
      <h1><Said text={card.name} /> <Chip kind={card.state}>{card.state}</Chip></h1>
      <p class="about">
        {Object.entries(page.about).map(([name, value]) => <span class="pair"><span class="faint"><Said text={name} /></span> <Said text={value} /></span>)}
        <span class="pair"><span class="faint">work</span> {seconds(card.seconds)}</span>
        <span class="pair"><span class="faint">completions</span> {count(card.completions)}</span>
        {card.path && <span class="pair"><span class="faint">folder</span> <Said text={card.path} /></span>}
      </p>
    </>
  );
}

function Claims({ page, run }: { page: RunAnswer; run: string }) {
  return (
    <section aria-labelledby="claims">
      <h2 id="claims">What it came to</h2>
      {page.claims.length === 0 && <p>Nothing can be said yet: two policies have to be measured on held-out tasks.</p>}
      <ul class="claims">
        {page.claims.map((claim) => (
          <li>
            <span class={`delta ${claim.difference.low > 0 ? "up" : claim.difference.high < 0 ? "down" : ""}`}>{points(claim.difference.mean)}</span>
            <span><Said text={claim.words} />{pairOf(page, claim) && <> <a href={href("tasks", run, pairOf(page, claim) ?? {})}>Which were lost, which won</a></>}</span>
          </li>
        ))}
      </ul>
      {page.examples.length > 0 && (
        <p>Look first at {page.examples.map((one, at) => <>{at > 0 && ", "}<a href={href(one.page, run, one.query)}><Said text={one.title} /></a></>)}.</p>
      )}
      {page.selection && <p class="about"><Said text={page.selection} /></p>}
      {page.troubles.length > 0 && (
        <div class="note"><h3>Troubles</h3><ul>{page.troubles.map((line) => <li><Said text={line} /></li>)}</ul></div>
      )}
    </section>
  );
}

/** The evaluations that a claim is about. */
function pairOf(page: RunAnswer, claim: RunAnswer["claims"][number]): { a: string; b: string } | null {
  const stage = (title: string) => evalOf(page.arms.find((arm) => arm.title === title));
  const [a, b] = [stage(claim.before), stage(claim.after)];
  return a && b ? { a, b } : null;
}

function Success({ arms }: { arms: ArmView[] }) {
  const measured = arms.filter((arm) => arm.success);
  if (!measured.length) return null;
  return (
    <section aria-labelledby="success">
      <h2 id="success">Success on held-out tasks</h2>
      <IntervalPlot title="Success on held-out tasks by policy, with 95 % intervals" groups={[{ label: "success", points: measured.map((arm) => ({ title: arm.title, found: arm.success })) }]} />
    </section>
  );
}

function Mix({ arms, run }: { arms: ArmView[]; run: string }) {
  const kinds = [...new Set(arms.flatMap((arm) => Object.keys(arm.kinds)))];
  const most = Math.max(1, ...arms.map((arm) => arm.rows));
  if (!kinds.length) return null;
  return (
    <section aria-labelledby="mix">
      <h2 id="mix">Rows that were trained on</h2>
      <ul class="stacks">
        {arms.filter((arm) => arm.rows > 0).map((arm) => (
          <li>
            <span class="label"><Said text={arm.title} /></span>
            <span class="stack">
              {kinds.map((kind, index) => arm.kinds[kind] > 0 && (
                <a class={`part series${index % 6}`} href={href("dataset", run, { stage: datasetOf(arm), kind })} style={{ width: `${(100 * arm.kinds[kind]) / most}%` }} aria-label={`${arm.title}: ${arm.kinds[kind]} ${kind}`} title={`${arm.kinds[kind]} ${kind}`} />
              ))}
            </span>
            <span class="num">{count(arm.rows)}</span>
          </li>
        ))}
      </ul>
      <p class="legend">{kinds.map((kind, index) => <span><span class={`swatch series${index % 6}`} /> <Said text={kind} /></span>)}</p>
    </section>
  );
}

function Policies({ arms, run }: { arms: ArmView[]; run: string }) {
  const evaluated = arms.filter((arm) => evalOf(arm));
  const first = evaluated.find((arm) => !isReference(arm.title));
  return (
    <section aria-labelledby="policies">
      <h2 id="policies">Policies</h2>
      <Scroll label="Policies as a table">
        <table class="policies">
          <thead>
            <tr>
              <th scope="col">Policy</th><th scope="col">Success</th><th scope="col" class="num">Trees solved</th><th scope="col" class="num">Rows</th>
              <th scope="col" class="num">Calls</th><th scope="col" class="num">Tokens</th><th scope="col" class="num">Cached</th><th scope="col" class="num">Work</th>
              <th scope="col">Look at</th>
            </tr>
          </thead>
          <tbody>
            {arms.map((arm) => (
              <tr>
                <th scope="row"><Said text={arm.title} /></th>
                <td><Whisker found={arm.success} small /></td>
                <td class="num">{arm.trees ? `${arm.solved} of ${arm.trees}` : "–"}</td>
                <td class="num">{count(arm.rows)}</td>
                <td class="num">{count(arm.calls)}</td>
                <td class="num">{count(arm.tokens)}</td>
                <td class="num">{percent(arm.cached, 0)}</td>
                <td class="num">{seconds(arm.seconds)}</td>
                <td class="links">
                  {arm.stages.filter((stage) => stage.kind === "trees" || stage.kind === "rollouts").map((stage) => <a href={href("forest", run, { stage: stage.name })}><Said text={stage.step} /></a>)}
                  {evalOf(arm) && <a href={href("forest", run, { stage: evalOf(arm) })}>episodes</a>}
                  {datasetOf(arm) && <a href={href("dataset", run, { stage: datasetOf(arm) })}>rows</a>}
                  {first && first !== arm && evalOf(arm) && <a href={href("tasks", run, { a: evalOf(first), b: evalOf(arm) })}>against {first.title}</a>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <p class="about">Intervals: percentile bootstrap over problems, each with all its tasks. Calls, tokens and cached, the share of prompt tokens from the prefix cache, are those of search and revision.</p>
    </section>
  );
}

function Rest({ page, run }: { page: RunAnswer; run: string }) {
  const splices = Object.entries(page.splices);
  return (
    <>
      {splices.length > 0 && (
        <section aria-labelledby="splices">
          <h2 id="splices">Revisions</h2>
          <p>{splices.map(([name, times]) => <span class="pair"><span class="faint"><Said text={name} /></span> {number(times)}</span>)}</p>
        </section>
      )}
      <section aria-labelledby="made">
        <h2 id="made">How it was made</h2>
        <Copy text={page.command} label="the command that repeats the run" />
        {page.config && <details><summary>Configuration</summary><pre class="long" tabIndex={0} aria-label="Configuration"><Said text={page.config} /></pre></details>}
        {page.logs.length > 0 && (
          <details>
            <summary>{plural(page.logs.length, "log")}</summary>
            <ul>{page.logs.slice(0, 200).map((log) => <li><a href={href("log", run, { name: log.name })}><Said text={log.name} /></a> <span class="faint">{count(log.size)} bytes</span></li>)}</ul>
          </details>
        )}
      </section>
    </>
  );
}

function evalOf(arm: ArmView | undefined): string {
  return arm?.stages.find((stage) => stage.kind === "episodes" && stage.step === "eval" && stage.state === "sealed")?.name ?? "";
}

function datasetOf(arm: ArmView): string {
  return arm.stages.find((stage) => stage.kind === "dataset" && stage.state === "sealed")?.name ?? "";
}
