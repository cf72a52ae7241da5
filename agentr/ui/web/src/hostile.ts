// Text of models and environments may hold characters that are not seen, or that turn the order of what stands beside them.
// They are shown by their names.

/** Control characters but tab and newline, soft hyphens, zero-width and direction characters, tags, halves of surrogate pairs. */
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\u{e0000}-\u{e0fff}]/gu;

export interface Piece { text: string; unseen: boolean }

/** Splits text into what can be shown as it is and the names of what cannot, such as U+202E. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > from) found.push({ text: text.slice(from, match.index), unseen: false });
    found.push({ text: nameOf(match[0]), unseen: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push({ text: text.slice(from), unseen: false });
  return found;
}

/** The same as one string, where there can be no markup: titles, options, canvases. */
export function plain(text: string): string {
  return text.replace(UNSEEN, (found) => `[${nameOf(found)}]`);
}

/** A tree's key with its escapes (`~40~` for `@`) undone, to be read; what is no escape stays. */
export function readable(key: string): string {
  return key.replace(/(?:~[0-9a-f]{2}~)+/g, (escaped) => {
    const bytes = Uint8Array.from(escaped.match(/[0-9a-f]{2}/g) ?? [], (byte) => parseInt(byte, 16));
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      return escaped;
    }
  });
}

function nameOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}
