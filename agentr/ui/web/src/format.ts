// Numbers as people read them.

import type { Estimate } from "./api";

const UNKNOWN = "–";

export function percent(value: number | null | undefined, digits = 1): string {
  return value === null || value === undefined ? UNKNOWN : `${(100 * value).toFixed(digits)} %`;
}

export function points(value: number): string {
  return `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(100 * value).toFixed(1)}`;
}

export function interval(found: Estimate): string {
  return `${(100 * found.low).toFixed(1)} to ${(100 * found.high).toFixed(1)}`.replaceAll("-", "\u2212");
}

/** 1234567 as 1.23 M. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toPrecision(3)} G`;
  if (size >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${Math.round(value / 1e3)} k`;
  return Number.isInteger(value) ? String(value) : number(value);
}

export function number(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (Number.isInteger(value)) return String(value).replace("-", "−");
  const size = Math.abs(value);
  const text = size >= 1000 ? value.toFixed(0) : size >= 1 ? value.toFixed(2) : size >= 0.001 ? value.toFixed(3) : value.toPrecision(2);
  return text.replace("-", "−");
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  return value < 1e6 ? `${(value / 1e3).toFixed(1)} kB` : `${(value / 1e6).toFixed(1)} MB`;
}

export function day(iso: string): string {
  const time = new Date(iso);
  return Number.isNaN(time.getTime()) ? UNKNOWN : time.toISOString().slice(0, 16).replace("T", " ");
}

export function plural(amount: number, one: string, many = `${one}s`): string {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}
