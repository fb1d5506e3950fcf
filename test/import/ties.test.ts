import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import { parametersOf } from '../../src/graph/parameters.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { importGraph, type ImportOptions } from '../../src/import/import.ts';
import { flat, type NDArray } from '../../src/ndarray/array.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { sgd } from '../../src/passes/training/optimizer.ts';
import { trainStep } from '../../src/passes/training/train-step.ts';
import { decode, type Decoded } from '../../src/plan/choice/decode.ts';
import { randomChoice, randomPlan } from '../../src/plan/choice/random-plan.ts';
import { recost } from '../../src/plan/choice/recost.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { planFor, request, TABLE } from '../plan/support.ts';
import { runTwoSteps } from '../simulate/steps/run-steps.ts';
import { FULL } from '../support/full.ts';

/** A weight with two names is one parameter with one placement and one gradient. */

function read(name: string, options: ImportOptions = {}): Graph {
  const path = new URL(`../fixtures/steps/${name}.gz`, import.meta.url);
  return importGraph(readFileSync(path), {
    ...options,
    infer: (node, typeOf) => inferCall(TABLE, node, typeOf),
  });
}

const NAMES = ['wte.weight', 'head.weight'] as const;
const TIE: ImportOptions = { ties: [[...NAMES]] };
const BYTES = 48 * 16 * 4;

describe('tied weights', () => {
  test('a name that torch.export lists and never uses is another name of the one parameter of its type', async () => {
    const graph = read('tied.ep.txt');
    expect(graph.ties).toEqual([NAMES]);
    expect(graph.notes).toEqual([
      'wte.weight is never used, and head.weight alone has its type: they count as one tied weight; --role wte.weight=constant corrects this.',
    ]);
    expect(parametersOf(graph).map(({ name, bytes }) => [name, bytes])).toEqual([
      ['wte.weight', BYTES],
    ]);
    const plan = await planFor(graph, 'd=4', {
      inputs: 'R',
      pins: [{ node: 'head.weight', spec: 'S(1)' }],
    });
    expect(plan.parameters).toEqual([
      { name: 'wte.weight', shape: [48, 16], placement: 'S(1)' },
      { name: 'head.weight', shape: [48, 16], placement: 'S(1)', tiedTo: 'wte.weight' },
    ]);
    expect(plan.memory.parameterBytes).toBe(BYTES / 4);
    // The user knows better.
    const apart = read('tied.ep.txt', { roles: { 'wte.weight': 'constant' } });
    expect(apart.ties).toBeUndefined();
  });

  test('two weights that look like one get a note, and a tie answers it', () => {
    const asks = (graph: Graph): string[] =>
      (graph.notes ?? []).filter((note) => note.includes('--tie'));
    expect(asks(read('tied.joint.txt'))).toEqual([
      'wte.weight (a table of rows) and head.weight (the weight of a product) are both f32[48, 16]: if they are one tied weight, --tie wte.weight=head.weight gives them one placement and one gradient.',
    ]);
    expect(asks(read('tied.joint.txt', TIE))).toEqual([]);
  });

  test('their gradients are one: the sum of those of both names', () => {
    const [apart, tied] = [read('tied.joint.txt'), read('tied.joint.txt', TIE)];
    const inputs = drawInputs(TABLE, apart, 3);
    inputs[1] = inputs[0];
    const slots = (graph: Graph): (number[] | null)[] => {
      const { outputs } = evaluateGraph(TABLE, graph, inputs);
      return graph.outputs.flatMap(({ role, value }, k) =>
        role === 'grad' ? [value === null ? null : [...flat(outputs[k] as NDArray)]] : [],
      );
    };
    const [table, head] = slots(apart);
    const [sum, none] = slots(tied);
    expect(none).toBeNull();
    expect(sum!.length).toBe(48 * 16);
    sum!.forEach((v, i) => expect(v).toBeCloseTo(table![i] + head![i], 12));
    expect(head!.some((v) => Math.abs(v) > 0.1)).toBe(true);
  });

  test('parameter, gradient and optimizer of a tied weight are counted once', async () => {
    const plan = await planFor(read('tied.joint.txt', TIE), 'd=1', { inputs: 'R', outputs: 'R' });
    expect(plan.memory).toMatchObject({
      parameterBytes: BYTES,
      gradientBytes: BYTES,
      optimizerBytes: 2 * BYTES,
    });
  });

  test.each(FULL ? ['d=4', 'a=2,b=2', 'd=3'] : ['a=2,b=2', 'd=3'])(
    'on (%s): placed the same way, and two steps keep them one tensor',
    (mesh) => {
      const joint = read('tied.joint.txt', TIE);
      const step = trainStep(
        jointGraph(withLoss(read('tied.ep.txt')), { table: TABLE, seed: 1 }),
        sgd({ lr: 0.1, momentum: 0.9 }),
        { table: TABLE },
      );
      for (const graph of [joint, step]) {
        const prepared = prepare(graph, request(mesh), TABLE);
        for (let seed = 0; seed < (FULL ? 5 : 2); seed++) {
          const plan = randomPlan(prepared, seed);
          const [a, b] = plan.parameters;
          expect([a.placement, b.tiedTo]).toEqual([b.placement, a.name]);
          const { faults, carried } = runTwoSteps(graph, plan, seed);
          expect(faults, `${graph.name} ${seed}`).toEqual([]);
          expect(carried).toBe(graph === joint ? 2 : 3);
        }
      }
    },
  );

  test('the re-cost finds names of one tensor that are placed apart', () => {
    // Nobody reads the first name, so nothing else is wrong with a plan that moves it.
    const { model } = prepare(read('tied.ep.txt'), request('d=4'), TABLE);
    const plan = decode(model, randomChoice(model, 1));
    const again = (decoded: Decoded): number => recost(decoded, model);
    expect(again(plan)).toBeGreaterThan(0);
    const other = plan.nodes[0].outputs[0] === 'R' ? 'S(0)' : 'R';
    const nodes = plan.nodes.map((node, n) => (n === 0 ? { ...node, outputs: [other] } : node));
    expect(() => again({ ...plan, nodes })).toThrow(
      /wte.weight and head.weight, which are one tensor/,
    );
  });

  test('a weight beside them is placed for itself', async () => {
    const text = `swgraph 1
graph @main {
  in %x: f32[16, 16] input "x"
  in %a: f32[16, 16] parameter "a"
  in %b: f32[16, 16] parameter "b"
  in %c: f32[16, 16] parameter "c"
  %mm = aten.mm.default(%x, %a): f32[16, 16]
  %mm_1 = aten.mm.default(%mm, %b): f32[16, 16]
  %mm_2 = aten.mm.default(%mm_1, %c): f32[16, 16]
  out %mm_2 output 0
}
`;
    const pins = [
      { node: 'a', spec: 'S(1)' },
      { node: 'c', spec: 'S(0)' },
    ];
    const plan = await planFor(importGraph(text, { ties: [['a', 'b']] }), 'd=4', { pins });
    expect(plan.parameters.map(({ placement }) => placement)).toEqual(['S(1)', 'S(1)', 'S(0)']);
  });

  test('a step that updates both names is not of one weight', () => {
    const text = `swgraph 1
graph @main {
  in %a: f32[4] parameter "a"
  in %b: f32[4] parameter "b"
  %c = aten.mul.Tensor(%a, 0.5): f32[4]
  %d = aten.mul.Tensor(%b, 0.5): f32[4]
  out %c mutation "a"
  out %d mutation "b"
}
`;
    expect(() => importGraph(text, { ties: [['a', 'b']] })).toThrow(
      "'a' and 'b' are tied, but the program updates each of them",
    );
  });
});

/** The mean square of what a forward graph returns. */
function withLoss(graph: Graph): Graph {
  const [output] = graph.outputs;
  const text = `swgraph 1
graph @main {
  in %y: f32[4, 8, 48] input "y"
  %squared = aten.mul.Tensor(%y, %y): f32[4, 8, 48]
  %loss = aten.mean.default(%squared): f32[]
  out %loss output 0
}
`;
  const rename = { y: output.value! };
  const added = parseGraph(text).nodes.filter(({ kind }) => kind === 'call');
  const nodes = added.map((node) => ({
    ...node,
    args: node.args.map((arg) =>
      typeof arg === 'object' &&
      arg !== null &&
      'kind' in arg &&
      arg.kind === 'value' &&
      arg.name === 'y'
        ? { ...arg, name: rename.y }
        : arg,
    ),
  }));
  return {
    ...graph,
    nodes: [...graph.nodes, ...nodes],
    outputs: [{ role: 'output', index: 0, value: 'loss' }],
  };
}
