// A log of the run, from its end backwards.

import { useState } from "preact/hooks";
import { address } from "../answers";
import type { Log } from "../api";
import { bytes } from "../format";
import { go, useAnswer, useRun } from "../hooks";
import { Said, Select, Shown } from "../parts";
import { href } from "../route";

export function LogPage({ run, query }: { run: string; query: Record<string, string> }) {
  const page = useRun(run);
  const logs = page.data?.logs ?? [];
  const name = query.name ?? logs[0]?.name ?? "";
  const set = (change: Record<string, string>) => go(href("log", run, { ...query, name, ...change }));
  const [only, setOnly] = useState("");
  const answer = useAnswer<Log>(name ? address("log", { run, name, end: query.end ?? -1 }) : null, true);
  return (
    <>
      <h1>Logs</h1>
      <div class="bar">
        <Select label="Log" value={name} choices={logs.map((log) => ({ value: log.name, title: `${log.name} (${bytes(log.size)})` }))} onChange={(next) => set({ name: next, end: "" })} />
        <label class="field"><span>Lines with</span><input type="search" value={only} onInput={(event) => setOnly(event.currentTarget.value)} /></label>
      </div>
      {!name && page.data ? <p>This run has no logs.</p> : (
        <Shown answer={answer} tall="30rem">
          {(log) => {
            const lines = log.text.split("\n");
            const shown = only ? lines.filter((line) => line.toLowerCase().includes(only.toLowerCase())) : lines;
            return (
              <>
                <div class="bar">
                  <button type="button" disabled={log.from === 0} onClick={() => set({ end: String(log.from) })}>Before this</button>
                  <button type="button" disabled={query.end === undefined || query.end === ""} onClick={() => set({ end: "" })}>To the end</button>
                  <span class="faint" role="status">bytes {log.from} to {log.from + new TextEncoder().encode(log.text).length} of {log.size}{only && `; ${shown.length} of ${lines.length} lines`}</span>
                </div>
                <pre class="long log" tabIndex={0} aria-label="Log"><Said text={shown.join("\n")} /></pre>
              </>
            );
          }}
        </Shown>
      )}
    </>
  );
}
