export function LogPage(_: { run: string; query: Record<string, string> }) { return <p>later</p>; }
