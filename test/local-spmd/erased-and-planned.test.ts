import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { lower } from '../../src/lower/lower.ts';
import { erase } from '../../src/lower/typed/erased.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { checkPlannedModes } from '../../src/plan/questions/spmd-check.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';
import { check } from '../../src/simulate/strip.ts';
import { verify } from '../../src/simulate/verify.ts';
import {
  allGather,
  allReduce,
  assertType,
  contract,
  convert,
  outPartial,
  reduceScatter,
} from '../../src/trace/spmd/verbs.ts';
import { input, parameter, type Tensor, trace } from '../../src/trace/trace.ts';
import { FULL } from '../support/full.ts';
import { runErased } from './support/erased.ts';
import { table } from './support/simulated.ts';

/**
 * A strict program says every collective, so three ways to its per-device program are one: types
 * stripped, planned with its types as pins and lowered, and what the plan's own list says.
 */

const R = { src: 'I', dst: 'R' } as const;
const used = (x: Tensor, axis: string): Tensor => convert(x, axis, R);
const held = (w: Tensor, spec: string, axes: readonly string[]): Tensor =>
  axes.reduce(used, assertType(w, spec));

const gated = (): Graph =>
  trace(
    ({ x, w1, w3, w2 }) => {
      const xs = used(assertType(x, 'P(None,"dp")'), 'tp');
      const up = contract('sbh,hi->sbi', xs, held(w1, 'P(None,"tp")', ['dp']));
      const gate = contract('sbh,hi->sbi', xs, held(w3, 'P(None,"tp")', ['dp']));
      return outPartial(
        contract('sbi,ih->sbh', up.silu().mul(gate), held(w2, 'P("tp")', ['dp'])),
        'tp',
      );
    },
    {
      x: input([4, 8, 16]),
      w1: parameter([16, 32]),
      w3: parameter([16, 32]),
      w2: parameter([32, 16]),
    },
    { mesh: 'dp=2,tp=2' },
  );

const block = (sequence: boolean): Graph =>
  trace(
    ({ x, w1, w2 }) => {
      const own = assertType(x, sequence ? 'P("tp","dp")' : 'P(None,"dp")');
      const a = sequence ? allGather(own, 'tp', { src: 'S(0)', dst: 'R' }) : used(own, 'tp');
      const h = contract('sbh,hi->sbi', a, held(w1, 'P(None,"tp")', ['dp'])).relu();
      const y = outPartial(contract('sbi,ih->sbh', h, held(w2, 'P("tp")', ['dp'])), 'tp');
      return own.add(
        sequence ? reduceScatter(y, 'tp', { dst: 'S(0)' }) : allReduce(y, 'tp', { dst: 'I' }),
      );
    },
    { x: input([8, 4, 16]), w1: parameter([16, 32]), w2: parameter([32, 16]) },
    { mesh: 'dp=2,tp=4' },
  );

/** Parameters lie in pieces over dp, and are whole only where they are used. */
const fullySharded = (): Graph =>
  trace(
    ({ x, w1, w2 }) => {
      const whole = (w: Tensor): Tensor =>
        allGather(assertType(w, 'P("dp")'), 'dp', { src: 'S(0)', dst: 'R' });
      return contract(
        'bi,io->bo',
        contract('bi,io->bo', assertType(x, 'P("dp")'), whole(w1)).relu(),
        whole(w2),
      );
    },
    { x: input([8, 8]), w1: parameter([8, 16]), w2: parameter([16, 8]) },
    { mesh: 'dp=4' },
  );

const loss = (): Graph =>
  trace(
    ({ x, w1, w2 }) => {
      const rows = used(assertType(x, 'P("dp","cp")'), 'tp');
      const h = contract('bsi,io->bso', rows, held(w1, 'P(None,"tp")', ['dp', 'cp'])).silu();
      const y = allReduce(
        outPartial(contract('bso,oi->bsi', h, held(w2, 'P("tp")', ['dp', 'cp'])), 'tp'),
        'tp',
        { dst: 'I' },
      );
      return outPartial(y.mul(y).sum(), ['dp', 'cp']);
    },
    { x: input([4, 4, 8]), w1: parameter([8, 16]), w2: parameter([16, 8]) },
    { mesh: 'dp=2,cp=2,tp=2' },
  );

async function planned(graph: Graph): Promise<Plan> {
  const request = {
    ...DEFAULT_REQUEST,
    mesh: graph.mesh ?? '',
    cluster: 'dgx-h100',
    optimizer: 'none',
    outputs: 'free',
  } as const;
  const result = await leastCostPlan(graph, request, { table });
  if (result.status !== 'planned') throw new Error(`not planned: ${result.status}`);
  return result.plan;
}

const roles = (graph: Graph): string[] =>
  graph.nodes.flatMap(({ kind, meta }) => (kind === 'placeholder' ? [meta.roleName ?? ''] : []));

describe('types stripped, and planned with its types as pins', () => {
  test.each([
    ['gated MLP', gated],
    ...(FULL ? [['a block', () => block(false)] as const] : []),
    ['a block with its sequence cut', () => block(true)],
    ['fully sharded parameters', fullySharded],
    ['loss of three axes', loss],
  ] as const)(
    '%s: the same collectives in the same order, forward and with the gradient',
    async (_name, made) => {
      // Daily the forward part alone of one of them.
      const forward = FULL || made === gated ? [made()] : [];
      for (const graph of [...forward, jointGraph(made(), { wrt: roles(made()) })]) {
        expect(check(graph, { mode: 'strict' }).violations).toEqual([]);
        const plan = await planned(graph);
        const { names } = erase(graph).mesh;
        const sequence = (run: ReturnType<typeof runErased>): string[] =>
          run.collectives.map(
            ({ kind, meshDims, bytes }) =>
              `${kind} ${meshDims.map((m) => names[m]).join()} ${bytes}`,
          );
        const erased = runErased(erase(graph), graph);
        const lowered = runErased(lower(graph, plan, { table }));
        expect(sequence(lowered)).toEqual(sequence(erased));
        for (const error of erased.compare) expect(error).toBeLessThan(1e-9);
        expect(verify(graph, plan, { table }).mismatches).toEqual([]);
        const { collectives, violations } = checkPlannedModes(graph, plan, table, 'strict');
        expect(
          collectives.map(({ kind, meshDims, bytes }) => `${kind} ${meshDims.join()} ${bytes}`),
        ).toEqual(sequence(erased));
        // Nothing is in the plan that the program does not say.
        expect(violations.map(({ message }) => message)).toEqual([]);
        expect(collectives.every(({ why }) => why.endsWith('as written'))).toBe(true);
      }
    },
  );
});
