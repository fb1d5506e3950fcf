import { expect, test } from 'vitest';

import { lower, plannedProgram } from '../../src/lower/lower.ts';
import { promisedCollectives } from '../../src/lower/promised.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';
import { verify, verifyProgram } from '../../src/simulate/verify.ts';
import { input, trace } from '../../src/trace/trace.ts';
import { table } from '../local-spmd/support/simulated.ts';

const graph = trace(
  ({ x, w }) => {
    const y = x.tanh();
    return [y, y.matmul(w).relu().matmul(w)];
  },
  { x: input([8, 8]), w: input([8, 8]) },
);
const request = {
  ...DEFAULT_REQUEST,
  mesh: 'd=2',
  cluster: 'dgx-h100',
  optimizer: 'none',
} as const;
const prepared = prepare(graph, request, table);
const plans = Array.from({ length: 60 }, (_, seed) => randomPlan(prepared, seed + 1));

test('a collective of other bytes than the plan lists is a mismatch', () => {
  let compared = 0;
  for (const plan of plans.slice(0, 20)) {
    const planned = plannedProgram(graph, plan, table);
    const program = lower(planned.program, plan, { table });
    const promised = promisedCollectives(planned, plan, table);
    const at = promised.findIndex(({ bytes }) => bytes !== null);
    if (at < 0) continue;
    const judge = (bytes: number): string[] =>
      verifyProgram(
        planned.program,
        program,
        promised.map((one, i) => (i === at ? { ...one, bytes } : one)),
        table,
      ).mismatches.map(({ where }) => where);
    const { bytes } = promised[at];
    expect(judge(Number(bytes))).toEqual([]);
    expect(judge(Number(bytes) + 4)).toEqual(['collectives', 'collectives']);
    compared++;
  }
  expect(compared).toBeGreaterThan(5);
});

test('an output that reuses the copy of a call runs no collective of its own', () => {
  const reused = plans.filter(({ outputs }) =>
    outputs.some(({ redistributions }) => redistributions.some(({ copy }) => copy === 'reused')),
  );
  expect(reused.length).toBeGreaterThan(0);
  for (const plan of reused) {
    const { mismatches, collectives, promised } = verify(graph, plan, { table });
    expect(mismatches).toEqual([]);
    expect(collectives).toEqual(promised);
  }
});
