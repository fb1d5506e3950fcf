import * as sourceHooks from '../../../src/trace/source/hooks.ts';
import { wrapConditions } from '../../../src/trace/source/wrap-conditions.ts';

/**
 * Programs as they are written, on arrays of numbers whose comparisons are plain booleans: the
 * truth for the rewritten source.
 */

export class Plain {
  constructor(readonly values: readonly number[]) {}
  private readonly map = (f: (v: number) => number): Plain => new Plain(this.values.map(f));
  sum = (): Plain => new Plain([this.values.reduce((a, b) => a + b, 0)]);
  add = (n: number): Plain => this.map((v) => v + n);
  sub = (n: number): Plain => this.map((v) => v - n);
  mul = (n: number): Plain => this.map((v) => v * n);
  amax = (): Plain => new Plain([Math.max(...this.values)]);
  neg = (): Plain => this.map((v) => -v);
  gt = (n: number): boolean => this.values[0] > n;
  lt = (n: number): boolean => this.values[0] < n;
}

/** The function `model` of a text. */
export function load<T>(text: string): (x: T) => T {
  const body = text.replace(/^import .*$/m, '').replaceAll(/^export /gm, '');
  // The tests run the transformed text, which is their subject.
  // eslint-disable-next-line @typescript-eslint/no-implied-eval
  const made = new Function('__shardwright', `${body}\nreturn model;`) as (
    hooks: unknown,
  ) => (x: T) => T;
  return made(sourceHooks);
}

/** `model` with this body, rewritten. */
export const rewritten = <T>(body: string): ((x: T) => T) =>
  load(wrapConditions(`export function model(x) { ${body} }`, 'm.model.ts', { mode: 'rewrite' }));
