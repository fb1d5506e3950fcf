/** Folds the parameters of a plan by name, shape and placement into rows of a table. */

import { elements } from '../../ops/record/record.ts';
import type { Plan } from '../../plan/record/types.ts';
import { tableText } from '../../units.ts';

/** One row of the folded parameter table. */
interface FoldedParameter {
  /** Name with layer numbers replaced by `*` where several are folded. */
  readonly name: string;
  readonly count: number;
  readonly shape: readonly number[];
  readonly placement: string;
}

/** Elements of all parameters; a tied weight counts once. */
export function parameterElements(plan: Plan): number {
  const own = plan.parameters.filter((p) => p.tiedTo === undefined);
  return own.reduce((sum, p) => sum + elements(p.shape), 0);
}

/**
 * Parameters of equal name up to numbers, equal shape and equal placement are one row; other names
 * of one have none.
 */
export function foldParameters(plan: Plan): FoldedParameter[] {
  const rows = new Map<
    string,
    { first: string; count: number; pattern: string; shape: readonly number[]; placement: string }
  >();
  for (const p of plan.parameters) {
    if (p.tiedTo !== undefined) continue;
    const pattern = p.name.replace(/(^|[._])\d+(?=[._]|$)/g, '$1*');
    const key = `${pattern}|${p.shape.join()}|${p.placement}`;
    const row = rows.get(key);
    if (row === undefined)
      rows.set(key, { first: p.name, count: 1, pattern, shape: p.shape, placement: p.placement });
    else row.count++;
  }
  return [...rows.values()].map(({ first, count, pattern, shape, placement }) => ({
    name: count === 1 ? first : pattern,
    count,
    shape,
    placement,
  }));
}

export function parameterTable(plan: Plan): string {
  const mesh = plan.mesh.map((d) => d.name).join(', ');
  return tableText([
    ['parameter', 'shape', `placement (${mesh})`],
    ...foldParameters(plan).map((row) => [
      row.count > 1 ? `${row.name} x${row.count}` : row.name,
      `[${row.shape.join(', ')}]`,
      row.placement,
    ]),
    ...plan.parameters.flatMap(({ name, tiedTo }) =>
      tiedTo === undefined ? [] : [[name, 'tied to', tiedTo]],
    ),
  ]);
}
