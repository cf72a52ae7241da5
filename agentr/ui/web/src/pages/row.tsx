export function RowPage(_: { run: string; query: Record<string, string> }) { return <p>later</p>; }
