// What else was drawn at the same place, what the search made of it, and what every policy of the run would do there.

import type { Probe } from "../api";
import { address, alone } from "../answers";
import { number } from "../format";
import { Said, Scroll } from "../parts";
import { type Probing, Underway, useProbe } from "../probe";
import type { Where } from "../turns";
import { Marks } from "./marks";
import type { Scene } from "./scene";
import { meanOf, uct } from "./shape";

/** Most siblings that are shown. */
const MOST = 60;

interface SiblingsProps { scene: Scene; where: Where; onSelect: (id: number) => void }

export function Siblings({ scene, where, onSelect }: SiblingsProps) {
  const { tree, grown } = scene;
  const siblings = scene.shape.children[tree.nodes.parent[scene.node]].filter((id) => id < scene.moment);
  const probe = useProbe<Probe>(address("probe", { ...where, at: scene.node }), `${where.run}\n${where.stage}\n${where.key}\n${tree.nodes.parent[scene.node]}`);
  return (
    <section class="siblings" aria-labelledby="siblings">
      <h3 id="siblings">{siblings.length === 1 ? "The only turn drawn here" : `The ${siblings.length} turns drawn here`}</h3>
      <Scroll label="Turns drawn at the same place">
        <table class="narrow">
          <thead>
            <tr>
              <th scope="col">Turn</th><th scope="col">Action</th><th scope="col" class="num">Drawn</th><th scope="col" class="num">Visits</th><th scope="col" class="num">Mean</th>
              {tree.exploration !== null && <th scope="col" class="num">UCT</th>}<th scope="col" class="num">log p a token</th>
            </tr>
          </thead>
          <tbody>
            {siblings.slice(0, MOST).map((id) => {
              const score = tree.exploration === null ? null : uct(grown, tree.nodes.parent, id, tree.exploration);
              const logprob = tree.nodes.logprob[id];
              return (
                <tr class={id === scene.node ? "chosen" : ""}>
                  <td><button type="button" class="id" onClick={() => onSelect(id)} aria-label={`Choose turn ${id}`}>{id}</button></td>
                  <td class="wide"><Said text={tree.nodes.label[id]} /> <Marks scene={scene} id={id} brief /></td>
                  <td class="num">{tree.nodes.draws[id]}</td>
                  <td class="num">{grown.visits[id]}</td>
                  <td class="num">{number(meanOf(tree, grown, id))}</td>
                  {score !== null && <td class="num" title={score === Infinity ? "never visited: it would be tried first" : ""}>{score === Infinity ? "∞" : number(score)}</td>}
                  <td class="num">{logprob === null ? "unknown" : number(logprob)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      {siblings.length > MOST && <p class="faint">The first {MOST} of {siblings.length}.</p>}
      {!alone && <button type="button" onClick={probe.start} disabled={probe.asked && !probe.done}>Probability under every policy</button>}
      {probe.asked && <Probed probe={probe} scene={scene} onSelect={onSelect} />}
    </section>
  );
}

function Probed({ probe, scene, onSelect }: { probe: Probing<Probe>; scene: Scene; onSelect: (id: number) => void }) {
  const { found } = probe;
  return (
    <div aria-live="polite">
      <Underway probe={probe} />
      {found && found.policies.length > 0 && (
        <Scroll label="Log-probability of each turn under every policy">
          <table class="narrow">
            <caption>Log-probability of the whole turn; the likeliest of these turns under each policy is marked ●.</caption>
            <thead><tr><th scope="col">Turn</th><th scope="col">Action</th>{found.policies.map((policy) => <th scope="col" class="num"><Said text={policy.title} /></th>)}</tr></thead>
            <tbody>
              {found.siblings.slice(0, MOST).map((id, at) => (
                <tr class={id === scene.node ? "chosen" : ""}>
                  <td><button type="button" class="id" onClick={() => onSelect(id)} aria-label={`Choose turn ${id}`}>{id}</button></td>
                  <td class="wide"><Said text={scene.tree.nodes.label[id] ?? ""} /></td>
                  {found.policies.map((policy) => {
                    const value = policy.logprobs[at] ?? null;
                    const best = value !== null && value === likeliest(policy.logprobs);
                    return <td class={best ? "num best" : "num"}>{best && "● "}{value === null ? "unknown" : number(value)}</td>;
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </div>
  );
}

function likeliest(values: (number | null)[]): number {
  return Math.max(...values.map((value) => value ?? -Infinity));
}
