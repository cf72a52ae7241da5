// Where the time went: every stage from its start to its end, and what it waited for.

import type { ArmView, StageLine } from "../api";
import { count, percent, seconds } from "../format";
import { plain } from "../hostile";
import { Chip, Said, Scroll } from "../parts";
import { href, type PageName } from "../route";

const LEADS_TO: Partial<Record<StageLine["kind"], PageName>> = { trees: "forest", episodes: "forest", rollouts: "forest", dataset: "dataset" };

export function Timeline({ arms, run }: { arms: ArmView[]; run: string }) {
  const lines = arms.flatMap((arm) => arm.stages.map((stage) => ({ arm, stage })));
  lines.sort((a, b) => (a.stage.started ?? Infinity) - (b.stage.started ?? Infinity));
  const end = Math.max(1, ...lines.map(({ stage }) => stage.ended ?? (stage.started ?? 0) + stage.seconds));
  const work = lines.reduce((sum, { stage }) => sum + stage.seconds, 0);
  const told = lines.some(({ stage }) => stage.predicted.length);
  if (!lines.length) return null;
  return (
    <section aria-labelledby="time">
      <h2 id="time">Where the time went</h2>
      <p class="about">{seconds(work)} of work in {seconds(end)} from the first start to the last end. Waits are summed over everything that waited at the same time.</p>
      <Scroll label="Stages by time">
        <table class="timeline">
          <thead><tr><th scope="col">Stage</th><th scope="col" class="when">From start to end</th><th scope="col" class="num">Work</th>{told && <th scope="col" class="num">Predicted</th>}<th scope="col" class="num">Share</th><th scope="col">Waited for</th><th scope="col">What it came to</th></tr></thead>
          <tbody>{lines.map(({ arm, stage }) => <Line arm={arm} stage={stage} end={end} work={work} told={told} run={run} />)}</tbody>
        </table>
      </Scroll>
    </section>
  );
}

function Line({ arm, stage, end, work, told, run }: { arm: ArmView; stage: StageLine; end: number; work: number; told: boolean; run: string }) {
  const [low, expected, high] = stage.predicted;
  const page = LEADS_TO[stage.kind];
  const ended = stage.ended ?? (stage.started ?? 0) + stage.seconds;
  const title = plain(`${arm.title}: ${stage.step}`);
  return (
    <tr>
      <th scope="row">{page ? <a href={href(page, run, { stage: stage.name })}>{title}</a> : title} {stage.state !== "sealed" && <Chip kind={stage.state}>{stage.state}</Chip>}</th>
      <td class="when">
        {stage.started !== null && (
          <span class="span" title={`${seconds(stage.started)} to ${seconds(stage.ended)}`}>
            <span class={`fill kind-${stage.kind}`} style={{ left: `${(100 * stage.started) / end}%`, width: `max(2px, ${(100 * (ended - stage.started)) / end}%)` }} />
          </span>
        )}
      </td>
      <td class="num">{seconds(stage.seconds)}</td>
      {told && <td class="num">{expected === undefined ? "–" : <span title={`${seconds(low)} to ${seconds(high)}`}>{seconds(expected)}</span>}</td>}
      <td class="num">{percent(work ? stage.seconds / work : 0, 0)}</td>
      <td><Waits waited={stage.waited} /></td>
      <td class="wide"><Said text={stage.about} /></td>
    </tr>
  );
}

function Waits({ waited }: { waited: Record<string, number> }) {
  const all = Object.values(waited).reduce((sum, value) => sum + value, 0);
  if (all <= 0) return <span class="faint">–</span>;
  return <>{Object.entries(waited).map(([what, value]) => <span class="pair"><span class="faint"><Said text={what} /></span> {count(Math.round(value))} s ({percent(value / all, 0)})</span>)}</>;
}
