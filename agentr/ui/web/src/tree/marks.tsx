// What is said of a turn beside its text, in words: no mark is told by its colour alone.

import { Chip, Said } from "../parts";
import { ending, spoken } from "../words";
import { isLearnt, type Scene } from "./scene";

export function Marks({ scene, id, brief = false }: { scene: Scene; id: number; brief?: boolean }) {
  const { tree } = scene;
  const { nodes } = tree;
  const outcome = tree.outcomes[nodes.outcome[id]];
  const verdict = tree.verdicts[nodes.verdict[id]];
  const origin = tree.origins[nodes.origin[id]];
  const used = scene.rows.get(id);
  const from = scene.parted.get(id);
  return (
    <span class="marks">
      {outcome && <Chip kind={outcome === "success" ? "good" : outcome === "refused" ? "plain" : "bad"}>{ending(outcome)} <Said text={spoken(outcome)} /></Chip>}
      {from !== undefined && <Chip>↳ {from ? `from turn ${from}` : "new conversation"}</Chip>}
      {verdict && <Chip kind={verdict === "bad" ? "bad" : "plain"}>judge: <Said text={verdict} /></Chip>}
      {id > 0 && scene.firstError === id && <Chip kind="bad">first error</Chip>}
      {scene.marks.transitions.has(id) && scene.firstError !== id && <Chip kind="bad">parts here</Chip>}
      {origin && origin !== "policy" && origin !== "root" && <Chip kind="splice">■ <Said text={origin} /></Chip>}
      {nodes.valid[id] === 0 && !brief && outcome !== "refused" && <Chip kind="bad">refused</Chip>}
      {scene.use ? <InRow scene={scene} id={id} /> : used && (
        <>
          {used.used > 0 && <Chip>in {used.used} {used.used === 1 ? "row" : "rows"}</Chip>}
          {used.rejected > 0 && <Chip kind="bad">rejected in {used.rejected} {used.rejected === 1 ? "pair" : "pairs"}</Chip>}
        </>
      )}
    </span>
  );
}

/** What the chosen row does with a turn. */
function InRow({ scene, id }: { scene: Scene; id: number }) {
  if (!scene.inRow.has(id) || !scene.use) return null;
  if (scene.use.index === null) return <Chip kind="bad">dropped</Chip>;
  const learnt = isLearnt(scene, id);
  return <Chip kind={learnt ? "good" : ""}>{learnt === null ? "in the row" : learnt ? "learnt" : "context"}</Chip>;
}

export function Legend({ tree, dark }: { tree: Scene["tree"]; dark: boolean }) {
  return (
    <p class="legend">
      <span><span class={`ramp ${dark ? "dark" : "light"}`} aria-hidden="true" /> mean return 0 to 1</span>
      <span><span class="swatch none" aria-hidden="true" /> unknown</span>
      <span>{tree.searched ? "size: visits" : "size: the same for all"}</span>
      <span><span class="ring" aria-hidden="true" /> judged bad</span>
      <span><span class="swatch splice" aria-hidden="true" /> revision, continuation</span>
      <span><span class="swatch lit" aria-hidden="true" /> chosen path</span>
      {tree.outcomes.includes("refused") && <span>⊘ refused: not known</span>}
      {tree.partings.length > 0 && <span>↳ another conversation</span>}
    </p>
  );
}
