/** The placement of partial p-norms that wait for the norm of all. */

import { checkKinds } from '../../../arguments.ts';
import type { PlacementKind } from '../kinds.ts';
import { Pending } from './pending.ts';

/**
 * Each rank holds the p-norm of its rows; pending is the norm of all: (sum x^p)^(1/p), the maximum
 * for p = inf, the minimum for p = -inf and the sum of counts for p = 0 (DTensor's _NormPartial).
 */
export class NormPartial extends Pending {
  readonly kind = 'norm-partial';
  readonly text: string;

  /** @throws RangeError when p is not a number */
  constructor(readonly p: number) {
    super();
    checkKinds('NormPartial', { p: [p, 'number'] });
    if (Number.isNaN(p)) throw new RangeError('internal: NormPartial of NaN');
    const name = Math.abs(p) === Infinity ? (p < 0 ? '-inf' : 'inf') : String(p);
    this.text = `_NormP(${name})`;
  }

  reduce(operands: readonly number[]): number {
    const { p } = this;
    if (p === Infinity) return operands.reduce((a, b) => Math.max(a, b), 0);
    if (p === -Infinity) return operands.reduce((a, b) => Math.min(a, b), Infinity);
    if (p === 0) return operands.reduce((a, b) => a + b, 0);
    // Scaled by the largest operand, so that powers neither overflow nor vanish.
    const scale = operands.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    if (scale === 0 || scale === Infinity) return p > 0 ? scale : 0;
    return (
      scale * operands.reduce((sum, x) => sum + Math.pow(Math.abs(x) / scale, p), 0) ** (1 / p)
    );
  }

  /**
   * Every rank holds value / n^(1/p); the value itself for infinite p; refused for p = 0, whose
   * counts are whole.
   */
  operand(value: number, _rank: number, n: number): number | undefined {
    if (this.p === 0) return undefined;
    return Math.abs(this.p) === Infinity ? value : value / n ** (1 / this.p);
  }
}

/** Reads `_NormP(2)`, `_NormPartial(inf)`. */
export const NORM: PlacementKind = {
  kind: 'norm-partial',
  words: ['_NormP', '_NormPartial', 'NormPartial'],
  parse(scan) {
    scan.expect('(');
    scan.keyword('norm_type');
    const number = scan.match(/-?(?:inf|\d{1,22}(?:\.\d{1,22})?(?:e[+-]?\d{1,3})?)/y);
    if (number === undefined) return scan.fail('the p of a norm', 'as in _NormP(2) or _NormP(inf)');
    scan.expect(')');
    return new NormPartial(Number(number.replace('inf', 'Infinity')));
  },
};
