// Curves of training, a line a policy; of online training, the way to its steps.

import { useState } from "preact/hooks";
import type { ArmView } from "../api";
import { CurvePlot } from "../curve_plot";
import { Said, Select } from "../parts";
import { href } from "../route";

/** What every line has and is no measure. */
const NO_MEASURE = new Set(["step", "steps", "seconds"]);

export function Curves({ arms, run }: { arms: ArmView[]; run: string }) {
  const trained = arms.filter((arm) => arm.curve.length > 0);
  const measures = [...new Set(trained.flatMap((arm) => arm.curve.flatMap((line) => Object.keys(line))))].filter((name) => !NO_MEASURE.has(name));
  measures.sort((a, b) => Number(b === "loss") - Number(a === "loss"));
  const [chosen, choose] = useState("loss");
  const measure = measures.includes(chosen) ? chosen : measures[0];
  const rollouts = arms.flatMap((arm) => arm.stages.filter((stage) => stage.kind === "rollouts").map((stage) => ({ arm, stage })));
  return (
    <>
      {rollouts.length > 0 && (
        <section aria-labelledby="online">
          <h2 id="online">Online training</h2>
          <ul>{rollouts.map(({ arm, stage }) => <li><a href={href("steps", run, { stage: stage.name })}>Online steps of <Said text={arm.title} /></a> <span class="faint"><Said text={stage.about} /></span></li>)}</ul>
        </section>
      )}
      {measure && (
        <section aria-labelledby="training">
          <div class="bar">
            <h2 id="training">Training</h2>
            <Select label="Measure" value={measure} choices={measures.map((name) => ({ value: name, title: name.replaceAll("_", " ") }))} onChange={choose} />
          </div>
          <CurvePlot
            title={`${measure} by optimiser step`} unit="optimiser step"
            curves={trained.map((arm) => ({ label: arm.title, points: arm.curve.flatMap(({ step, [measure]: value }) => (typeof step === "number" && typeof value === "number" ? [[step, value] as [number, number]] : [])) }))}
          />
        </section>
      )}
    </>
  );
}
