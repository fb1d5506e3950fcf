import { describe, expect, it } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { lower } from '../../src/lower/lower.ts';
import type { DeviceProgram } from '../../src/lower/program/program.ts';
import { flat, type NDArray } from '../../src/ndarray/array.ts';
import { decode } from '../../src/plan/choice/decode.ts';
import { randomChoice } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { type DeviceRun, runDevices } from '../../src/simulate/ranks/devices.ts';
import { layOut } from '../../src/simulate/ranks/laid-out.ts';
import { bucketProgram } from '../../src/simulate/timeline/bucket-program.ts';
import { load, planFor, request, TABLE } from '../plan/support.ts';

function run(graph: Graph, program: DeviceProgram): DeviceRun {
  const inputs = drawInputs(TABLE, graph, 0);
  const placeholders = graph.nodes.filter((node) => node.kind === 'placeholder');
  const laid = placeholders.map((node, i) => {
    const value = program.values.find((v) => v.name === node.name);
    return layOut(program.space, value?.sharding ?? program.space.replicated, inputs[i]);
  });
  return runDevices(TABLE, program, laid, { seed: 0 });
}

/** Equal to the last bit. */
function same(a: NDArray, b: NDArray): boolean {
  const [x, y] = [flat(a), flat(b)];
  return (
    a.shape.join() === b.shape.join() &&
    x.length === y.length &&
    x.every((v, i) => Object.is(v, y[i]))
  );
}

/** Runs both programs, and gives the collectives of each. */
function compare(
  graph: Graph,
  plain: DeviceProgram,
  packed: DeviceProgram,
): [DeviceRun['collectives'], DeviceRun['collectives']] {
  const [a, b] = [run(graph, plain), run(graph, packed)];
  a.outputs.forEach((arrays, k) =>
    arrays?.forEach((array, rank) => {
      const other = b.outputs[k]?.[rank];
      expect(other !== undefined && same(array, other), `output ${k} on rank ${rank}`).toBe(true);
    }),
  );
  const bytes = (r: DeviceRun): number => r.collectives.reduce((n, c) => n + c.bytes, 0);
  expect(bytes(b)).toBe(bytes(a));
  return [a.collectives, b.collectives];
}

/**
 * Three products (or relus) of different sizes, whose results all have to be brought to another
 * placement.
 */
const three = (call: (i: number) => string, weights: boolean): Graph =>
  parseGraph(
    `swgraph 1\ngraph @g {\n${[1, 2, 3]
      .map(
        (i) =>
          `  in %x${i}: f32[8, ${12 * i}] input "x${i}"\n${weights ? `  in %w${i}: f32[${12 * i}, 16] input "w${i}"\n` : ''}`,
      )
      .join(
        '',
      )}${[1, 2, 3].map(call).join('')}${[1, 2, 3].map((i) => `  out %y${i} output ${i - 1}\n`).join('')}}\n`,
  );
const relus = three((i) => `  %y${i} = aten.relu.default(%x${i}): f32[8, ${12 * i}]\n`, false);
const products = three((i) => `  %y${i} = aten.mm.default(%x${i}, %w${i}): f32[8, 16]\n`, true);

describe('buckets in the program', () => {
  it('three collectives become one, of the same bytes and the same numbers, whatever the kind', async () => {
    for (const [graph, mesh, from, to, kind] of [
      [products, 'd=4', 'P(sum)', 'R', 'all_reduce'],
      [products, 'd=4', 'P(sum)', 'S(0)', 'reduce_scatter'],
      [products, 'd=4', 'P(sum)', 'S(1)', 'reduce_scatter'],
      [relus, 'd=4', 'S(0)', 'R', 'all_gather'],
      [relus, 'd=4', 'S(1)', 'R', 'all_gather'],
      [relus, 'd=4', 'S(0)', 'S(1)', 'all_to_all'],
      [relus, 'd=2,e=2', 'S(0)R', 'S(1)R', 'all_to_all'],
    ] as const) {
      const pins = [1, 2, 3].map((i) => ({ node: `y${i}`, spec: from }));
      const plan = await planFor(graph, mesh, { pins, outputs: to, optimizer: 'none' });
      const program = lower(graph, plan, { table: TABLE });
      const [before, after] = compare(graph, program, bucketProgram(program, 2 ** 20));
      expect(
        before.map((c) => c.kind),
        `${from} to ${to}`,
      ).toEqual([kind, kind, kind]);
      expect(
        after.map((c) => c.kind),
        `${from} to ${to}`,
      ).toEqual([kind]);
      // The first two fit, the third does not.
      const two = bucketProgram(program, before[0].bytes + before[1].bytes);
      expect(compare(graph, program, two)[1], `${from} to ${to}`).toHaveLength(2);
    }
  });

  it('random plans of a joint graph: the same numbers', () => {
    const graph = load('torch/mlp/joint.expanded');
    for (let seed = 0; seed < 2; seed++) {
      const prepared = prepare(graph, request('d=4'), TABLE);
      const { nodes, outputs } = decode(prepared.model, randomChoice(prepared.model, seed));
      const planned = prepared.model.graph;
      const program = lower(
        planned,
        { request: prepared.question.request, nodes, outputs },
        { table: TABLE },
      );
      const [before, after] = compare(planned, program, bucketProgram(program, 2 ** 20));
      expect(after.length).toBeLessThanOrEqual(before.length);
    }
  });

  it('buckets of no bytes change nothing', () => {
    const prepared = prepare(relus, request('d=2', { optimizer: 'none' }), TABLE);
    const { nodes, outputs } = decode(prepared.model, randomChoice(prepared.model, 1));
    const program = lower(
      prepared.model.graph,
      { request: prepared.question.request, nodes, outputs },
      { table: TABLE },
    );
    expect(bucketProgram(program, 0)).toBe(program);
  });
});
