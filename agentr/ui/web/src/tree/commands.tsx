// What this state is, for a terminal.

import { useState } from "preact/hooks";
import type { TreeView } from "../api";
import { isReference } from "../flips";
import { plain } from "../hostile";
import { Copy, Said, Select } from "../parts";

/** A command that names a policy: the reader chooses which. */
const POLICY = /\bPOLICY$/;

export function Commands({ tree, node }: { tree: TreeView; node: number }) {
  const [chosen, setChosen] = useState("");
  const policy = tree.policies.find((one) => one.name === chosen) ?? tree.policies.findLast((one) => !isReference(one.name));
  const commands = tree.commands.filter((one) => policy || !POLICY.test(one.command));
  if (!commands.length) return null;
  return (
    <section class="commands" aria-labelledby="commands">
      <h3 id="commands">Commands for this state</h3>
      <p class="faint">They act on copies, never on the run.</p>
      {commands.map((one) => (
        <div>
          <p><Said text={one.title} /></p>
          {policy && POLICY.test(one.command) && <Select label="Policy" value={policy.name} choices={tree.policies.map(({ name, title }) => ({ value: name, title }))} onChange={setChosen} />}
          <Copy text={one.command.replace(/\bNODE\b/, String(node)).replace(POLICY, policy?.name ?? "")} label={plain(one.title)} />
        </div>
      ))}
    </section>
  );
}
