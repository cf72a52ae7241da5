// What this state is, for a terminal.

import type { TreeView } from "../api";
import { plain } from "../hostile";
import { Copy, Said } from "../parts";

export function Commands({ tree, node }: { tree: TreeView; node: number }) {
  if (!tree.commands.length) return null;
  return (
    <section class="commands" aria-labelledby="commands">
      <h3 id="commands">Commands for this state</h3>
      <p class="faint">They act on copies, never on the run.</p>
      {tree.commands.map((one) => <div><p><Said text={one.title} /></p><Copy text={one.command.replace(/\bNODE\b/, String(node))} label={plain(one.title)} /></div>)}
    </section>
  );
}
