// Where good and bad paths part, what was judged there, and what came of it.

import { Chip, Said } from "../parts";
import { number } from "../format";
import type { Revision } from "../api";
import type { Scene } from "./scene";

const MOST = 100;

export function Revisions({ scene, onSelect }: { scene: Scene; onSelect: (id: number) => void }) {
  const { revisions } = scene.tree;
  if (!revisions.length) return null;
  const turn = (id: number, title: string) => <button type="button" class="id" aria-label={`${title}: turn ${id}`} onClick={() => onSelect(id)}>{id}</button>;
  return (
    <details class="revisions" open>
      <summary>{revisions.length} {revisions.length === 1 ? "revision" : "revisions"}: where good and bad paths part</summary>
      <ul>
        {revisions.slice(0, MOST).map((revision) => (
          <li class={scene.node === revision.transition || scene.node === revision.end ? "chosen" : ""}>
            <span>bad end {turn(revision.bad, "Bad end")}</span> <span>good end {turn(revision.good, "Good end")}</span>{" "}
            <span>part after {turn(revision.ancestor, "The paths part after")}</span>{" "}
            {revision.transition > 0 ? <span>turn to revise at {turn(revision.transition, "Turn to revise at")} <Verdict scene={scene} id={revision.transition} /></span> : <Chip>no turn to revise at</Chip>}{" "}
            <Outcome revision={revision} turn={turn} scene={scene} />
            {revision.reflection && <blockquote class="observed"><Said text={revision.reflection} /></blockquote>}
          </li>
        ))}
      </ul>
      {revisions.length > MOST && <p class="faint">The first {MOST}.</p>}
    </details>
  );
}

function Verdict({ scene, id }: { scene: Scene; id: number }) {
  const verdict = scene.tree.verdicts[scene.tree.nodes.verdict[id]];
  return <Chip kind={verdict === "bad" ? "bad" : "plain"}>{verdict ? <>judge: <Said text={verdict} /></> : "not judged"}</Chip>;
}

/** What came of carrying the revision out. */
function Outcome({ revision, turn, scene }: { revision: Revision; turn: (id: number, title: string) => preact.JSX.Element; scene: Scene }) {
  if (!revision.spliced) return <Chip>not executed</Chip>;
  if (revision.end < 0) return <Chip kind="bad">executed: earned less than the good path</Chip>;
  const reward = scene.tree.nodes.reward[revision.end];
  return (
    <span>
      <Chip kind="good">executed: earned {number(reward)}</Chip> at {turn(revision.end, "End of the executed revision")}
      {revision.continued && <Chip kind="splice">the policy went on by itself</Chip>}
    </span>
  );
}
