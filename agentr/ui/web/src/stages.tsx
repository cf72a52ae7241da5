// Choosing a stage of a run.

import type { RunPage, StageLine } from "./api";
import { Select } from "./parts";

export function stagesOf(page: RunPage | null, kinds: StageLine["kind"][]): { title: string; stage: StageLine }[] {
  return (page?.arms ?? []).flatMap((arm) => arm.stages.filter((stage) => kinds.includes(stage.kind)).map((stage) => ({ title: `${arm.title}: ${stage.step}`, stage })));
}

/** A stage that is not among those of the run, such as the rows of one step of online training, is there while it is chosen. */
export function StageSelect({ page, kinds, stage, onChange }: { page: RunPage | null; kinds: StageLine["kind"][]; stage: string; onChange: (stage: string) => void }) {
  const found = stagesOf(page, kinds);
  const choices = found.map(({ title, stage: line }) => ({ value: line.name, title: line.size === null ? title : `${title} (${line.size})` }));
  if (stage && !found.some(({ stage: line }) => line.name === stage)) choices.unshift({ value: stage, title: stage });
  return <Select label="Stage" value={stage} choices={choices} onChange={onChange} />;
}
