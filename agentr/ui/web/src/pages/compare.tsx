export function ComparePage(_: { id: string; query: Record<string, string> }) { return <p>later</p>; }
