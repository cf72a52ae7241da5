// Attempts to make better episodes of those that are there: what was tried, what was written, and what came of it.

import { Chip, Said } from "../parts";
import { number } from "../format";
import type { EvolutionView } from "../api";
import type { Scene } from "./scene";
import { spoken } from "../words";

const MOST = 100;

export function Evolutions({ scene, onSelect }: { scene: Scene; onSelect: (id: number) => void }) {
  const { evolutions, nodes } = scene.tree;
  if (!evolutions.length) return null;
  const turn = (id: number, title: string) => <button type="button" class="id" aria-label={`${title}: turn ${id}`} onClick={() => onSelect(id)}>{id}</button>;
  const better = (made: EvolutionView) => nodes.reward[made.end] > nodes.reward[made.parent];
  return (
    <details class="revisions" open>
      <summary>{evolutions.length} {evolutions.length === 1 ? "episode" : "episodes"} tried again</summary>
      <ul>
        {evolutions.slice(0, MOST).map((made) => (
          <li class={scene.node === made.parent || scene.node === made.end ? "chosen" : ""}>
            <Chip><Said text={spoken(made.operator)} /></Chip> <span>of the end {turn(made.parent, "End that it started from")}</span>{" "}
            {made.kept > 0 && <span>keeps {made.kept} {made.kept === 1 ? "turn" : "turns"}</span>}{" "}
            {made.end >= 0
              ? <span><Chip kind={better(made) ? "good" : "plain"}>earned {number(nodes.reward[made.end])}</Chip> at {turn(made.end, "End of the new episode")}</span>
              : <Chip kind="bad"><Said text={made.reason || "no episode"} /></Chip>}
            {made.answer && <blockquote class="observed"><Said text={made.answer} /></blockquote>}
            {made.guidance && <p class="small"><span class="faint">The policy was told:</span> <Said text={made.guidance} /></p>}
          </li>
        ))}
      </ul>
      {evolutions.length > MOST && <p class="faint">The first {MOST}.</p>}
    </details>
  );
}
