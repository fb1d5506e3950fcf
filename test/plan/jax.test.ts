import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { lintGraph } from '../../src/graph/lint.ts';
import type { Graph } from '../../src/graph/types.ts';
import { importGraph, type Infer } from '../../src/import/import.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { inlineCalls } from '../../src/passes/control/inline-calls.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';
import { givenPins } from '../../src/plan/restrict/given-pins.ts';

const table = builtinOperators();
const infer: Infer = (call, typeOf) => inferCall(table, call, typeOf);
const read = (file: string): Graph =>
  importGraph(readFileSync(join(import.meta.dirname, '..', 'fixtures', 'jax', `${file}.gz`)), {
    infer,
  });

async function plan(
  graph: Graph,
  mesh: string,
  pins: readonly { node: string; spec: string }[] = [],
): Promise<Plan> {
  const request = {
    ...DEFAULT_REQUEST,
    mesh,
    cluster: 'dgx-h100',
    optimizer: 'none' as const,
    pins,
  };
  const result = await leastCostPlan(graph, request, { table });
  if (result.status !== 'planned') throw new Error(`not planned: ${JSON.stringify(result)}`);
  return result.plan;
}
const collectives = (p: Plan): string[] =>
  p.nodes.flatMap((n) =>
    n.redistributions.flatMap((r) =>
      r.collectives.map((c) => `${n.name} ${c.kind} ${c.meshDims.join()}`),
    ),
  );
const placed = (p: Plan): Record<string, string> =>
  Object.fromEntries(p.nodes.map((n) => [n.name, n.outputs.join()]));

describe('programs of JAX are planned', () => {
  test('calls are written out, with equal work', () => {
    for (const file of [
      'einshard-mlp-tutorial-y/stablehlo.mlir',
      'flax-encoder/stablehlo.mlir',
      'lm2-unrolled/jaxpr.txt',
    ]) {
      const graph = read(file);
      const flat = inlineCalls(graph);
      lintGraph(flat, infer);
      expect(flat.nodes.some((n) => n.target === 'call')).toBe(false);
      expect(programFlops(flat, table).total).toBe(programFlops(graph, table).total);
      expect(inlineCalls(flat)).toBe(flat);
    }
  });

  test('the tutorial MLP with its own shardings as pins: one all-reduce, as XLA makes of it', async () => {
    const graph = read('einshard-mlp-tutorial-y/shardy.mlir');
    const { pins, skipped } = givenPins(graph, 'd=8');
    expect(pins).toEqual([
      { node: 'arg0', spec: 'S(1)' },
      { node: 'arg1', spec: 'S(0)' },
      { node: 'arg2', spec: 'R' },
    ]);
    expect(skipped).toEqual([]);
    const found = await plan(graph, 'd=8', [...pins, { node: '_2', spec: 'P(sum)' }]);
    // Column, then row: no communication up to the pending sum; reading it as a result takes the
    // one all-reduce.
    expect(collectives(found)).toEqual([]);
    expect(placed(found)).toMatchObject({ _0: 'S(1)', _1__1: 'S(1)', _2: 'P(sum)' });
    expect(
      found.outputs[0].redistributions.flatMap((r) => r.collectives.map((c) => c.kind)),
    ).toEqual(found.outputs[0].placement === 'R' ? ['all_reduce'] : ['reduce_scatter']);
    expect(found.proof).toMatchObject({ status: 'optimal', gap: 0 });
  });

  test('given shardings over another mesh are not pinned', () => {
    expect(givenPins(read('mlp-constraint/shardy.mlir'), 'a=4,b=2')).toEqual({
      pins: [],
      outputs: [],
      skipped: ['The shardings of the source are over mesh p=2,q=4, the plan is on a=4,b=2.'],
    });
    expect(givenPins(read('mlp-constraint/shardy.mlir'), 'a=2,b=4').pins).toContainEqual({
      node: '_4',
      spec: 'S(0)S(0)',
    });
  });

  test('a StableHLO text and the jaxpr of it cost the same where element-wise work is free of literals', async () => {
    const [a, b] = await Promise.all(
      ['stablehlo.mlir', 'jaxpr.txt'].map((f) => plan(read(`einshard-mlp-tutorial-y/${f}`), 'd=8')),
    );
    expect(a.proof.status).toBe('optimal');
    expect(b.proof.status).toBe('optimal');
    expect(a.objective.communicationSeconds).toBe(b.objective.communicationSeconds);
  });

  test('a whole training step, 1,353 nodes with its optimizer', async () => {
    const found = await plan(read('lm2-unrolled/stablehlo.mlir'), 'model=4');
    expect(found.proof).toMatchObject({ status: 'optimal', gap: 0 });
    expect(Math.abs(found.proof.recheckedSeconds - found.objective.seconds)).toBeLessThan(1e-9);
  });
});
