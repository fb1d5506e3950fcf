import { describe, expect, test } from 'vitest';

import { jointGraph } from '../../src/entries/graph.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { isRef } from '../../src/graph/value.ts';
import { lower } from '../../src/lower/lower.ts';
import { build, flat, type NDArray } from '../../src/ndarray/array.ts';
import { evaluateCall } from '../../src/ops/kernels/evaluate.ts';
import { priceRestriction } from '../../src/recipes/compare/price.ts';
import { applyRecipe, meshRecipes } from '../../src/recipes/recipes.ts';
import { runDevices } from '../../src/simulate/ranks/devices.ts';
import { layOut, putTogether } from '../../src/simulate/ranks/laid-out.ts';
import { verify } from '../../src/simulate/verify.ts';
import { planFor, solveFor, TABLE } from './support.ts';

/** Training of convolutions, each with a batch norm, and the sum of what comes out. */
function convolutions(layers: number, batch: number, channels: number, size: number): Graph {
  const lines: string[] = [];
  const image = `f32[${batch}, ${channels}, ${size}, ${size}]`;
  lines.push(`in %x: ${image} input "x"`);
  for (let k = 0; k < layers; k++) {
    lines.push(`in %c${k}: f32[${channels}, ${channels}, 3, 3] parameter "c${k}"`);
    for (const name of ['weight', 'bias'])
      lines.push(`in %${name}${k}: f32[${channels}] parameter "${name}${k}"`);
    for (const name of ['mean', 'var'])
      lines.push(`in %${name}${k}: f32[${channels}] buffer "${name}${k}"`);
  }
  let now = 'x';
  for (let k = 0; k < layers; k++) {
    lines.push(
      `%y${k} = aten.convolution.default(%${now}, %c${k}, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1): ${image}`,
      `%n${k} = aten.batch_norm.default(%y${k}, %weight${k}, %bias${k}, %mean${k}, %var${k}, true, 0.1, 1e-05, true): ${image}`,
      `%r${k} = aten.relu.default(%n${k}): ${image}`,
    );
    now = `r${k}`;
  }
  lines.push(`%loss = aten.sum.default(%${now}): f32[]`, 'out %loss output 0');
  const text = lines.map((line) => `  ${line}`).join('\n');
  return jointGraph(parseGraph(`swgraph 1\ngraph @g {\n${text}\n}\n`), { table: TABLE });
}

/** The first result of each norm: the normalised tensor, the gradient of the input. */
function imagesOf(graph: Graph, norm: string): string[] {
  const norms = new Set(graph.nodes.flatMap((n) => (n.target.includes(norm) ? [n.name] : [])));
  return graph.nodes.flatMap(({ name, target, args: [of, k] }) =>
    target === 'operator.getitem' && k === 0 && isRef(of) && norms.has(of.name) ? [name] : [],
  );
}

describe('batch norm in training whose batch is cut', () => {
  test('data parallel of three convolutions with batch norms beats replication, and nothing beats it', async () => {
    const result = await solveFor(convolutions(3, 64, 64, 56), 'dp=4');
    if (result.status !== 'planned') throw new Error(result.status);
    const seconds = new Map<string, number>();
    for (const recipe of meshRecipes(result.prepared.model)) {
      const applied = applyRecipe(result.prepared.model, recipe);
      if ('refused' in applied) continue;
      const priced = await priceRestriction(result.prepared, applied.restriction);
      if (!('refused' in priced)) seconds.set(recipe.name, priced.seconds);
    }
    const dp = seconds.get('data parallel (dp)') ?? NaN;
    // Four devices each do a quarter of the work, and more of it in the norms.
    expect(dp).toBeLessThan(0.55 * (seconds.get('replicated') ?? NaN));
    expect(result.plan.objective.seconds).toBeGreaterThan(0.95 * dp);
    const norms = result.plan.nodes.filter(({ target }) => target.includes('batch_norm'));
    expect(norms.map(({ outputs }) => outputs[0])).toEqual(norms.map(() => 'S(0)'));
  });

  test.each([
    ['dp=4', 'unequal parts', 7],
    ['dp=3', 'unequal parts', 8],
    ['a=2,b=2', 'one mesh dim after the other', 8],
  ])(
    'on %s, %s: every tensor of forward, backward and running statistics',
    async (mesh, _, batch) => {
      const graph = convolutions(2, batch, 3, 5);
      const cut = mesh.includes('a=') ? 'S(0)S(2)' : 'S(0)';
      const pins = imagesOf(graph, 'batch_norm').map((node) => ({ node, spec: cut }));
      expect(pins.length).toBe(4);
      const plan = await planFor(graph, mesh, { pins });
      const found = verify(graph, plan, { table: TABLE });
      expect(found.mismatches).toEqual([]);
      expect(found.maxRelativeError).toBeLessThan(1e-12);
      const dims = mesh.split(',').length;
      expect(found.collectives.all_gather).toBeGreaterThanOrEqual(2 * dims);
    },
  );

  test.each([8, 7])(
    '%i values a million deviations from zero have the variance that one device finds',
    async (batch) => {
      const shape = [batch, 2, 3];
      const type = `f64[${shape.join(', ')}]`;
      const text = [
        `in %x: ${type} input "x"`,
        `%n = aten._native_batch_norm_legit.no_stats(%x, none, none, true, 0.1, 1e-05): (${type}, f64[2], f64[2])`,
        `%y = operator.getitem(%n, 0): ${type}`,
        '%m = operator.getitem(%n, 1): f64[2]',
        '%s = operator.getitem(%n, 2): f64[2]',
        'out %y output 0',
        'out %m output 1',
        'out %s output 2',
      ];
      const graph = parseGraph(`swgraph 1\ngraph @g {\n  ${text.join('\n  ')}\n}\n`);
      const plan = await planFor(graph, 'd=4', { pins: [{ node: 'y', spec: 'S(0)' }] });
      const program = lower(graph, plan, { table: TABLE });
      const x = build(shape, (i) => 1e6 + Math.sin(37 * i), 'f64');
      const wanted = evaluateCall(TABLE, 'aten._native_batch_norm_legit.no_stats', [
        x,
        null,
        null,
        true,
        0.1,
        1e-5,
      ]) as readonly NDArray[];
      const given = plan.nodes[0].outputs[0];
      const run = runDevices(TABLE, program, [
        layOut(program.space, program.space.parse(given), x),
      ]);
      wanted.forEach((want, k) => {
        const placed = program.space.parse(plan.outputs[k].placement);
        const got = putTogether(program.space, placed, want.shape, run.outputs[k] ?? []);
        expect(got.disagreement).toBe(0);
        // A difference of squares of this size would lose all digits but four.
        const values = flat(want);
        got.data.forEach((v, i) => expect(Math.abs(v - values[i])).toBeLessThan(1e-8));
      });
    },
  );
});

describe('group norm whose positions are cut', () => {
  /** A group norm of an image, weighted so that its gradients are no constants. */
  const graphOf = (batch: number, channels: number, places: number, affine: boolean): Graph => {
    const image = `f64[${batch}, ${channels}, ${places}]`;
    const vectors = affine ? '%weight, %bias' : 'none, none';
    const text = [
      `in %x: ${image} parameter "x"`,
      `in %k: ${image} input "k"`,
      `in %weight: f64[${channels}] parameter "weight"`,
      `in %bias: f64[${channels}] parameter "bias"`,
      `%n = aten.group_norm.default(%x, 2, ${vectors}, 1e-05, true): ${image}`,
      `%m = aten.mul.Tensor(%n, %k): ${image}`,
      '%loss = aten.sum.default(%m): f64[]',
      'out %loss output 0',
    ];
    const graph = parseGraph(`swgraph 1\ngraph @g {\n  ${text.join('\n  ')}\n}\n`);
    return jointGraph(graph, { table: TABLE });
  };

  test.each([
    ['d=4', 'S(2)', [2, 4, 8], true],
    ['d=4', 'S(2)', [2, 4, 7], true],
    ['d=2', 'S(2)', [2, 4, 6], false],
    ['a=2,b=2', 'S(0)S(2)', [3, 4, 6], true],
    ['a=2,b=2', 'S(1)S(2)', [2, 4, 6], true],
    ['a=2,b=2', 'S(2)S(2)', [2, 4, 8], true],
  ] as const)(
    'on %s as %s of %j, weights: %s, every tensor of forward and backward',
    async (mesh, cut, [batch, channels, places], affine) => {
      const graph = graphOf(batch, channels, places, affine);
      const pins = imagesOf(graph, 'group_norm').map((node) => ({ node, spec: cut }));
      expect(pins.length).toBe(2);
      const plan = await planFor(graph, mesh, { pins });
      const found = verify(graph, plan, { table: TABLE });
      expect(found.mismatches).toEqual([]);
      expect(found.maxRelativeError).toBeLessThan(1e-12);
      expect(found.collectives.all_gather).toBeGreaterThanOrEqual(1);
    },
  );
});
