/**
 * The table of `bench/own-machine.md` follows from the steps that were recorded beside it.
 */

import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

interface Row {
  readonly model: string;
  readonly predicted: number;
  readonly measured: number;
  readonly spread: number;
}

const read = (path: string): string =>
  readFileSync(new URL(`../../bench/${path}`, import.meta.url), 'utf8');
const rows = JSON.parse(read('own-machine.json')) as Row[];
const cells = new Map(
  read('own-machine.md')
    .split('\n')
    .filter((line) => line.startsWith('|'))
    .map((line) => line.split('|').slice(1, -1))
    .map((row) => row.map((cell) => cell.trim()))
    .map(([model, ...rest]) => [model, rest] as const),
);

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
}

/** Pairs whose steps differ by more than either spread, and those of them in the right order. */
function pairs(plans: readonly Row[]): string {
  const differ = plans
    .flatMap((a, i) => plans.slice(i + 1).map((b) => [a, b] as const))
    .filter(([a, b]) => Math.abs(a.measured - b.measured) > Math.max(a.spread, b.spread));
  const right = differ.filter(
    ([a, b]) => a.measured < b.measured === a.predicted < b.predicted,
  ).length;
  return `${right} of ${differ.length}`;
}

describe('bench/own-machine.md', () => {
  const models = [...new Set(rows.map(({ model }) => model))];

  it('has the six models', () => {
    expect(models).toHaveLength(6);
    expect(models.filter((model) => !cells.has(model))).toEqual([]);
  });

  it.each(models)('has the figures of %s', (model) => {
    const plans = rows.filter((row) => row.model === model);
    const first = plans.reduce((a, b) => (b.predicted < a.predicted ? b : a));
    const lost = first.measured / Math.min(...plans.map(({ measured }) => measured)) - 1;
    const off = median(plans.map((p) => Math.abs(p.predicted / p.measured - 1)));
    const [count, , inOrder, ...rest] = cells.get(model) ?? [];
    expect([count, inOrder, ...rest]).toEqual([
      String(plans.length),
      pairs(plans),
      (1e3 * first.predicted).toFixed(0),
      (1e3 * first.measured).toFixed(0),
      `${(100 * lost).toFixed(0)} %`,
      `${(100 * off).toFixed(0)} %`,
    ]);
  });
});
