import { expect, test } from 'vitest';

import { parseGraph } from '../../../src/graph/text/parse.ts';
import { transferPlan } from '../../../src/plan/choice/transfer.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import { cutsOfPlan } from '../../../src/plan/questions/plan-cuts.ts';
import { reduced } from '../../../src/simulate/reduced.ts';
import { verify } from '../../../src/simulate/verify.ts';
import { planFor, request, TABLE } from '../support.ts';

/** A product of merged batch and sequence. */
const MERGED = parseGraph(
  'swgraph 1\ngraph @g {\n  in %x: f32[16, 4096, 512] input "x"\n' +
    '  in %w: f32[512, 640] parameter "w"\n' +
    '  %v = aten.view.default(%x, [65536, 512]): f32[65536, 512]\n' +
    '  %m = aten.mm.default(%v, %w): f32[65536, 640]\n' +
    '  %y = aten.view.default(%m, [16, 4096, 640]): f32[16, 4096, 640]\n' +
    '  out %y output 0\n}\n',
);
const MESH = 'dp=8,tp=8';

test('a plan on 64 devices runs at sizes that only its own cuts keep divisible', async () => {
  const pins = [
    { node: 'x', spec: 'S(0)S(1)' },
    { node: 'y', spec: 'S(0)S(1)' },
  ];
  const plan = await planFor(MERGED, MESH, { pins });
  // Sequences are cut inside each batch: two chunks a device.
  expect(plan.nodes.find(({ name }) => name === 'm')?.outputs).toEqual(['S(0)_S(0, 2)']);
  const cuts = cutsOfPlan(plan, MERGED, TABLE);
  expect(cuts).toContainEqual({ node: 'v', of: 'inputs', tensor: 0, dim: 0, pieces: 8 });
  expect(cuts).toContainEqual({ node: 'v', of: 'inputs', tensor: 0, dim: 1, pieces: 8 });
  const small = reduced(MERGED, TABLE, { cuts: cuts ?? [], large: 1 });
  // The two rows of the batch on a device are the chunks of the plan, so the batch stays.
  expect(small.sizes).toContainEqual({ from: 16, to: 16 });
  expect(small.sizes).toContainEqual({ from: 4096, to: 8 });
  expect(small.sizes).toContainEqual({ from: 512, to: 2 });
  const moved = transferPlan(plan, prepare(small.graph, request(MESH, { pins }), TABLE));
  expect(moved.nodes.map(({ outputs }) => outputs)).toEqual(
    plan.nodes.map(({ outputs }) => outputs),
  );
  const run = verify(small.graph, moved, { table: TABLE });
  expect(run).toMatchObject({ devices: 64, mismatches: [] });
  expect(run.nodesCompared).toBe(5);
});

test('a dim that is cut in strides without a view stays divisible by its chunks', async () => {
  const graph = parseGraph(
    'swgraph 1\ngraph @g {\n  in %x: f32[640, 256] input "x"\n' +
      '  in %w: f32[256, 640] parameter "w"\n' +
      '  %m = aten.mm.default(%w, %x): f32[256, 256]\n  out %m output 0\n}\n',
  );
  const [x, w] = ['_S(0, 8)', '_S(1, 8)'];
  const pins = Object.entries({ x, w }).map(([node, spec]) => ({ node, spec }));
  const asked = { pins, cuts: ['_S(0, 8)'] };
  const plan = await planFor(graph, 'd=2', asked);
  const cuts = cutsOfPlan(plan, graph, TABLE) ?? [];
  const small = reduced(graph, TABLE, { cuts });
  expect(small.sizes).toContainEqual({ from: 640, to: 16 });
  const moved = transferPlan(plan, prepare(small.graph, request('d=2', asked), TABLE));
  expect(verify(small.graph, moved, { table: TABLE }).mismatches).toEqual([]);
});

test('a program that stays too large to run is refused before it runs', () => {
  const graph = parseGraph(
    'swgraph 1\ngraph @g {\n  in %x: f32[4096, 4096] input "x"\n' +
      '  %l = aten.linspace.default(0, 1, 4096): f32[4096]\n' +
      '  %d = aten.mul.Tensor(%x, %l): f32[4096, 4096]\n' +
      '  %t = aten.transpose.int(%d, 0, 1): f32[4096, 4096]\n' +
      '  %a = aten.add.Tensor(%t, %l): f32[4096, 4096]\n' +
      '  %y = aten.mm.default(%a, %d): f32[4096, 4096]\n  out %y output 0\n}\n',
  );
  expect(() => reduced(graph, TABLE, { meshSizes: [8] })).toThrow(
    expect.objectContaining({
      code: 'E_LIMIT',
      message:
        'at the smallest sizes that were found one run takes 137.439 GFLOP, at most 17.180 GFLOP are run',
      details: { hint: 'sizes 4096 stay; verify fewer layers, or plan a smaller mesh.' },
    }),
  );
});
