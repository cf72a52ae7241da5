// What else was measured: a table for each kind of figure, a line for each policy.

import type { Estimate, Table } from "../api";
import { interval, number, percent } from "../format";
import { Said, Scroll } from "../parts";

type Cell = Table["lines"][string][string] | undefined;

export function Tables({ tables }: { tables: Table[] }) {
  return <>{tables.map((table) => <OneTable table={table} />)}</>;
}

function OneTable({ table }: { table: Table }) {
  const lines = Object.entries(table.lines);
  const columns = [...new Set(lines.flatMap(([, line]) => Object.keys(line)))];
  return (
    <section aria-label={table.title}>
      <h2><Said text={table.title} /></h2>
      <Scroll label={table.title}>
        <table class="narrow">
          <thead><tr><th scope="col">{table.title.startsWith("Flywheel") ? "Operator" : "Policy"}</th>{columns.map((name) => <th scope="col" class="num"><Said text={name} /></th>)}</tr></thead>
          <tbody>
            {lines.map(([title, line]) => <tr><th scope="row"><Said text={title} /></th>{columns.map((name) => <td class="num">{shown(line[name], table.share)}</td>)}</tr>)}
          </tbody>
        </table>
      </Scroll>
      {table.notes.map((note) => <p class="about"><Said text={note} /></p>)}
    </section>
  );
}

function shown(cell: Cell, share: boolean) {
  const write = (value: number | null | undefined) => (share ? percent(value) : number(value));
  return isEstimate(cell) ? <>{write(cell.mean)} <span class="faint">({share ? interval(cell) : `${number(cell.low)} to ${number(cell.high)}`}, n = {cell.n})</span></> : write(cell);
}

function isEstimate(cell: Cell): cell is Estimate {
  return typeof cell === "object" && cell !== null;
}
