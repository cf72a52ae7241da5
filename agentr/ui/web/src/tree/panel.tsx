// The path from the start to the chosen turn, with what was said.

import { useEffect, useRef, useState } from "preact/hooks";
import { number } from "../format";
import { Said, Select, Trouble } from "../parts";
import { Offer } from "../program";
import { Known, MODES, TurnBody, type TextMode } from "../turn";
import { TokenLegend } from "../tokens";
import { useTurns, type Where } from "../turns";
import { Commands } from "./commands";
import { Marks } from "./marks";
import { isLearnt, type Scene } from "./scene";
import { meanOf, pathTo } from "./shape";
import { Siblings } from "./siblings";

/** Turns that are shown at once. */
const WINDOW = 20;

interface PanelProps { scene: Scene; where: Where; mode: TextMode; onMode: (mode: TextMode) => void; onSelect: (id: number) => void }

export function Panel({ scene, where, mode, onMode, onSelect }: PanelProps) {
  const path = pathTo(scene.tree.nodes.parent, scene.node);
  const [end, setEnd] = useState(path.length);
  useEffect(() => setEnd(path.length), [scene.node, scene.tree.key, scene.tree.stage]);
  const last = Math.min(end, path.length);
  const first = Math.max(0, last - WINDOW);
  const shown = path.slice(first, last);
  const { turns, problem, note } = useTurns(where, shown);
  const box = useRef<HTMLElement>(null);
  const ready = shown.length > 0 && shown.every((id) => turns.has(id));
  useEffect(() => toChosen(box.current), [scene.node, ready]);
  return (
    <section class="panel" aria-label="Turns up to the chosen one" tabIndex={0} ref={box}>
      <div class="bar tight">
        <h2 aria-live="polite">{scene.node === 0 ? "Start" : `Turn ${scene.node}`} <span class="faint">{path.length > 0 && `${path.length} from the start`}</span></h2>
        <Select label="Show" value={mode} choices={MODES} onChange={(value) => onMode(value as TextMode)} />
      </div>
      {mode === "tokens" && <TokenLegend mask={scene.masks.size > 0} />}
      {note && <p class="faint"><Said text={note} /></p>}
      {problem && <Trouble problem={problem} />}
      <Opening scene={scene} open={path.length === 0} />
      {first > 0 && <button type="button" onClick={() => setEnd(Math.max(WINDOW, first))}>Earlier turns ({first})</button>}
      <ol class="turns" start={first + 1}>
        {shown.map((id) => {
          const turn = turns.get(id);
          return (
            <li key={id} class={`turn ${id === scene.node ? "chosen" : ""} ${isLearnt(scene, id) ? "learnt" : ""}`} aria-current={id === scene.node ? "true" : undefined}>
              <TurnHead scene={scene} id={id} onSelect={onSelect} logprobs={turn?.logprobs ?? null} />
              {turn ? <TurnBody turn={turn} where={where} mode={mode} mask={scene.masks.get(id) ?? null} tools={scene.tree.tools} /> : !problem && <div class="loading short">Loading…</div>}
            </li>
          );
        })}
      </ol>
      {last < path.length && <button type="button" onClick={() => setEnd(Math.min(path.length, last + WINDOW))}>Later turns ({path.length - last})</button>}
      {scene.node > 0 && <Siblings scene={scene} where={where} onSelect={onSelect} />}
      <Commands tree={scene.tree} node={scene.node} />
    </section>
  );
}

/** Brings the chosen turn into sight where the panel scrolls by itself; a phone's page stays where it is. */
function toChosen(panel: HTMLElement | null): void {
  const turn = panel?.querySelector<HTMLElement>("[aria-current]");
  if (!panel || !turn || panel.scrollHeight <= panel.clientHeight) return;
  panel.scrollTop = turn.offsetTop - panel.offsetTop - panel.clientHeight / 4;
}

function TurnHead({ scene, id, onSelect, logprobs }: { scene: Scene; id: number; onSelect: (id: number) => void; logprobs: (number | null)[] | null }) {
  const mean = meanOf(scene.tree, scene.grown, id);
  return (
    <div class="head">
      <button type="button" class="id" onClick={() => onSelect(id)} aria-label={`Choose turn ${id}`}>{id}</button>
      <Marks scene={scene} id={id} />
      <span class="numbers">
        {logprobs && <Known logprobs={logprobs} />}
        {scene.tree.searched && <> · visits {scene.grown.visits[id]}</>}
        {mean !== null && <> · mean {number(mean)}</>}
      </span>
    </div>
  );
}

/** The task, as the policy was told it. */
function Opening({ scene, open }: { scene: Scene; open: boolean }) {
  const { messages, program, tools } = scene.tree;
  return (
    <details class="opening" open={open}>
      <summary>The task as the policy was told it</summary>
      {messages.map((message) => (
        <div><span class="faint"><Said text={message.role} /></span><pre class="wrote"><Said text={message.content} /></pre>{message.cut > 0 && <p class="faint">{message.cut} characters are left out.</p>}</div>
      ))}
      {program && <Offer program={program} tools={tools} />}
    </details>
  );
}
