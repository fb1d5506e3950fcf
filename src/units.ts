/** Numbers as people read them: three significant digits, binary units for memory. */

export function secondsText(seconds: number): string {
  if (!Number.isFinite(seconds)) return String(seconds);
  if (seconds === 0) return '0 s';
  const scales: readonly (readonly [number, string])[] = [
    [1, 's'],
    [1e-3, 'ms'],
    [1e-6, 'µs'],
    [1e-9, 'ns'],
  ];
  const [unit, name] = scales.find(([u]) => seconds >= u * 0.9995) ?? scales[3];
  return `${significant(seconds / unit)} ${name}`;
}

/** A duration for people: 41.2 days, 3.3 h, 12 min, 45 s. */
export function durationText(seconds: number): string {
  if (seconds >= 2 * 86_400) return `${significant(seconds / 86_400)} days`;
  if (seconds >= 2 * 3600) return `${significant(seconds / 3600)} h`;
  return seconds >= 120 ? `${significant(seconds / 60)} min` : secondsText(seconds);
}

export function bytesText(bytes: number): string {
  const scales: readonly (readonly [number, string])[] = [
    [2 ** 40, 'TiB'],
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
    [2 ** 10, 'KiB'],
  ];
  const found = scales.find(([u]) => bytes >= u);
  return found === undefined ? `${bytes} B` : `${significant(bytes / found[0])} ${found[1]}`;
}

/** Below this share of a time, and below a picosecond, two times differ by rounding alone. */
export const ROUNDING = 1e-9;
const PICOSECOND = 1e-12;

/** A signed time: `+1.20 ms`; less than a picosecond is none. */
export function deltaSecondsText(seconds: number): string {
  return Math.abs(seconds) < PICOSECOND
    ? '0 s'
    : `${seconds > 0 ? '+' : '-'}${secondsText(Math.abs(seconds))}`;
}

/** Signed bytes: `+1.50 GiB`. */
export function deltaBytesText(bytes: number): string {
  return bytes === 0 ? '0 B' : `${bytes > 0 ? '+' : '-'}${bytesText(Math.abs(bytes))}`;
}

export function flopsText(flops: number): string {
  const scales: readonly (readonly [number, string])[] = [
    [1e15, 'PFLOP'],
    [1e12, 'TFLOP'],
    [1e9, 'GFLOP'],
    [1e6, 'MFLOP'],
  ];
  const found = scales.find(([u]) => flops >= u);
  return found === undefined ? `${flops} FLOP` : `${(flops / found[0]).toFixed(3)} ${found[1]}`;
}

export function countText(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

export function percentText(fraction: number): string {
  if (fraction === 0) return '0 %';
  if (fraction === Infinity) return '∞ %';
  const percent = fraction * 100;
  return `${Math.abs(percent) < 0.01 ? percent.toExponential(1) : significant(percent)} %`;
}

/** A difference to two digits after the point at most: `+16.4 %`, `-0.03 %`, `+0.00 %`, `+0 %`. */
export function differenceText(fraction: number): string {
  if (fraction === 0) return '+0 %';
  const sign = fraction < 0 ? '-' : '+';
  const size = Math.abs(fraction);
  return sign + (size < 1e-4 ? `${(100 * size).toFixed(2)} %` : percentText(size));
}

function significant(value: number): string {
  if (value >= 999.5) return value.toFixed(0);
  return value.toPrecision(3);
}

/** A probability in whole percent, never 0 or 100: `93 %`. */
export function probabilityText(probability: number): string {
  return `${Math.min(99, Math.max(1, Math.round(100 * probability)))} %`;
}

/** The part that `part` is of `whole`; 0 where the part is 0. */
export function shareOf(part: number, whole: number): number {
  return part === 0 ? 0 : part / whole;
}

/**
 * How much more than `base` a number is, as a part of it; equal numbers, zeros too, differ by
 * nothing.
 */
export function excessOver(base: number, value: number): number {
  return value === base ? 0 : value / base - 1;
}

/**
 * How much slower than the plan: `+16.4 %`. A plan with pins may be the slower one, and then it
 * says so.
 */
export function slowerText(seconds: number, planSeconds: number): string {
  const more = excessOver(planSeconds, seconds);
  return differenceText(Math.abs(more) < ROUNDING ? 0 : more);
}

/** `1 view`, `1,024 views`. @param many the plural, where it is not the singular with an s */
export function countedText(n: number, one: string, many = `${one}s`): string {
  return `${countText(n)} ${n === 1 ? one : many}`;
}

/** A name as part of a line: a line break in it is shown, and begins no line. */
export function lineText(name: string): string {
  return name.replaceAll('\n', '\\u000a');
}

/**
 * A table with aligned columns; `right` columns are right-aligned. A line break in a cell is shown
 * as one, and breaks no row.
 */
export function tableText(
  cells: readonly (readonly string[])[],
  right: readonly number[] = [],
): string {
  const rows = cells.map((row) => row.map(lineText));
  const widths: number[] = [];
  for (const row of rows)
    row.forEach((cell, c) => (widths[c] = Math.max(widths[c] ?? 0, cell.length)));
  return rows
    .map((row) =>
      row
        .map((cell, c) => (right.includes(c) ? cell.padStart(widths[c]) : cell.padEnd(widths[c])))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
