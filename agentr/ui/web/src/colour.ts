// Colours that carry numbers. Both scales go without green, so that they are told apart by the colour-blind.

type Triple = [number, number, number];

const LIGHT: Triple[] = [[178, 24, 43], [224, 122, 88], [176, 166, 166], [104, 160, 200], [33, 102, 172]];
const DARK: Triple[] = [[222, 66, 82], [226, 136, 104], [150, 146, 150], [104, 164, 212], [76, 146, 224]];

/** Colours of both scales in steps: thousands of cells are drawn at a time. */
const STEPS = 100;
const [LIGHT_STEPS, DARK_STEPS] = [LIGHT, DARK].map((stops) => Array.from({ length: STEPS + 1 }, (_, step) => `rgb(${mixed(stops, step / STEPS).join(",")})`));

/** From red (0) over grey to blue (1); null is what is not known. */
export function valueColour(value: number | null, dark: boolean): string {
  if (value === null || Number.isNaN(value)) return dark ? "rgb(84,94,100)" : "rgb(198,206,210)";
  return (dark ? DARK_STEPS : LIGHT_STEPS)[Math.round(STEPS * Math.min(1, Math.max(0, value)))];
}

/** Black or white, whichever is read better on a value's colour. */
export function inkOn(value: number | null, dark: boolean): string {
  if (value === null) return dark ? "#fff" : "#000";
  const [red, green, blue] = mixed(dark ? DARK : LIGHT, value).map((part) => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

function mixed(stops: Triple[], value: number): Triple {
  const place = Math.min(1, Math.max(0, value)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  const [a, b] = [stops[low], stops[low + 1]];
  return a.map((part, index) => Math.round(part + (b[index] - part) * (place - low))) as Triple;
}

/** How surprising a token was, from 0 (hardly) to 4; -1 where it is not known. Never guessed. */
export function surprise(logprob: number | null | undefined): number {
  if (logprob === null || logprob === undefined) return -1;
  const limits = [-0.1, -0.7, -2.3, -4.6]; // probabilities of 0.9, 0.5, 0.1 and 0.01
  const level = limits.findIndex((limit) => logprob >= limit);
  return level < 0 ? 4 : level;
}

export const SURPRISES = ["p ≥ 0.9", "0.5 to 0.9", "0.1 to 0.5", "0.01 to 0.1", "below 0.01"];
