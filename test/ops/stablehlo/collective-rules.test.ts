import { expect, test } from 'vitest';

import { Partial } from '../../../src/mesh/placements/partials/partial.ts';
import type { ReduceOp } from '../../../src/mesh/placements/placement.ts';
import { bind } from '../../../src/ops/record/infer.ts';
import { OperatorTable } from '../../../src/ops/record/table.ts';
import { stablehloOps } from '../../../src/ops/stablehlo/operators.ts';

const table = new OperatorTable(stablehloOps);
const REDUCERS: Readonly<Record<string, (values: readonly number[]) => number>> = {
  add: (values) => values.reduce((sum, v) => sum + v, 0),
  maximum: (values) => Math.max(...values),
  minimum: (values) => Math.min(...values),
};
const KINDS: readonly ReduceOp[] = ['sum', 'avg', 'max', 'min'];

/** Values by rank of another mesh dim, then by member of the group that the call reduces over. */
const DRAWS = [
  [
    [1, -2, 4],
    [3, 5, -7],
  ],
  [
    [-0.5, 2, 2],
    [6, -1, 0.25],
  ],
] as const;

/** Pending kinds of another mesh dim that stay so: reducing there first or last gives one number. */
function commuting(reduce: (values: readonly number[]) => number): ReduceOp[] {
  return KINDS.filter((kind) =>
    DRAWS.every((byRank) => {
      const pending = Partial.of(kind);
      const last = pending.reduce(
        byRank.map((group) => reduce(group)),
        'number',
      );
      const first = reduce(
        byRank[0].map((_, member) =>
          pending.reduce(
            byRank.map((group) => group[member]),
            'number',
          ),
        ),
      );
      return Math.abs(first - last) < 1e-12;
    }),
  );
}

test.each(Object.keys(REDUCERS))(
  'an all_reduce by %s hands on the pending reductions that commute with it, and no others',
  (reducer) => {
    const call = {
      target: 'stablehlo.all_reduce',
      name: 'y',
      args: [[{ kind: 'value', name: 'x' }]],
      kwargs: { reducer },
    } as const;
    const ctx = bind(table, call, () => ({ kind: 'tensor', dtype: 'f32', shape: [4] }));
    const rules = ctx === undefined ? [] : (table.get(call.target)?.shard(ctx) ?? []);
    const kinds = rules.flatMap(({ inputs: [slot], outputs: [result] }) => {
      if (slot?.kind !== 'partial') return [];
      expect(result).toEqual(slot);
      return [slot.op];
    });
    expect(kinds.sort()).toEqual(commuting(REDUCERS[reducer]).sort());
  },
);
