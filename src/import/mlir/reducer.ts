/**
 * Bodies of reductions that are one operation: `add`, `maximum` ... of the two arguments, or one
 * argument itself.
 */

import { firstItems, itemAt } from '../../item-at.ts';
import type { Operation, Region } from './syntax/syntax.ts';

const KNOWN = new Set(['add', 'maximum', 'minimum', 'multiply', 'and', 'or', 'xor']);

/** Operations that hand values out of a region. */
export const TERMINATORS: ReadonlySet<string> = new Set([
  'func.return',
  'stablehlo.return',
  'mhlo.return',
  'sdy.return',
]);

/**
 * Name of the operation, `second` where the body returns the new value, `first` for the old; else
 * undefined.
 */
export function recogniseReducer(region: Region): string | undefined {
  const [a, b, ...more] = region.args;
  if (a === undefined || b === undefined || more.length > 0) return undefined;
  const last = region.operations[region.operations.length - 1] as Operation | undefined;
  if (last === undefined || !TERMINATORS.has(last.name) || last.operands.length !== 1)
    return undefined;
  const returned = itemAt(last.operands, 0);
  if (region.operations.length === 1) {
    if (returned.id === b.id) return 'second';
    return returned.id === a.id ? 'first' : undefined;
  }
  if (region.operations.length !== 2) return undefined;
  const [op] = firstItems(region.operations, 1);
  const base = op.name.slice(op.name.indexOf('.') + 1);
  const dialect = op.name.startsWith('stablehlo.') || op.name.startsWith('mhlo.');
  if (
    !dialect ||
    !KNOWN.has(base) ||
    op.results.length !== 1 ||
    itemAt(op.results, 0).id !== returned.id
  )
    return undefined;
  const used = op.operands.map((use) => use.id);
  const both = used.length === 2 && used.includes(a.id) && used.includes(b.id);
  return both ? base : undefined;
}
