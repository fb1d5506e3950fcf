import { describe, expect, test } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { flat, type NDArray } from '../../../src/ndarray/array.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { shrinkGraph } from '../../../src/passes/sizes/shrink.ts';
import type { CutPoint } from '../../../src/passes/stages/cut-points.ts';
import { cuttable, type StagedGraph } from '../../../src/passes/stages/split.ts';
import { sgd } from '../../../src/passes/training/optimizer.ts';
import { trainStep } from '../../../src/passes/training/train-step.ts';
import { evaluateGraph, type Value } from '../../../src/simulate/evaluate.ts';
import { drawInputs } from '../../../src/simulate/inputs.ts';
import { constantsAsInputs } from '../../../src/simulate/reduced.ts';
import { param } from '../../../src/trace/tensor/state.ts';
import { input, type Tensor, trace } from '../../../src/trace/trace.ts';
import { load } from '../../plan/support.ts';
import { drawOf } from '../../simulate/random/builder.ts';
import { randomProgram } from '../../simulate/random/program.ts';
import { FULL } from '../../support/full.ts';
import { refusal } from '../../support/thrown.ts';
import { runStages, TABLE } from './run-stages.ts';

function bits(value: Value): unknown {
  if (Array.isArray(value)) return value.map(bits);
  if (value === null || typeof value !== 'object') return value;
  const array = value as NDArray;
  return [array.dtype, [...array.shape], [...flat(array)]];
}

/** All results of the stages, run one after another, equal those of the whole to the bit. */
function expectEqual(graph: Graph, cuts: readonly (readonly CutPoint[])[]): void {
  const inputs = drawInputs(TABLE, graph, 3);
  const whole = evaluateGraph(TABLE, graph, inputs).outputs;
  const { cut } = cuttable(graph, TABLE);
  for (const points of cuts) {
    const found = runStages(graph, cut(points), inputs);
    graph.outputs.forEach(({ value }, i) => {
      if (value !== null) expect([i, bits(found.get(i) ?? null)]).toEqual([i, bits(whole[i])]);
    });
  }
}

const SOME = [
  'torch/mlp-loss/joint.readable',
  'torch/gpt2-2l/joint.readable',
  'joint/falcon/joint',
];
const MORE = [
  'torch/mlp/joint.readable',
  'torch/llama-tiny/joint.readable',
  'torch/bert-base/joint.readable',
  'torch/convnet/joint.readable',
  'joint/mixtral-tiny/joint',
  'joint/resnet18/joint',
  'joint/vit-tiny/joint',
  'joint/dit/joint',
  'joint/gpt-oss/joint',
  'joint/llama-lm-loss/joint',
  'joint/mamba2/joint',
  'joint/phi3-lm/joint',
];

describe('stages that run one after another give what the whole program gives, to the bit', () => {
  test.each(FULL ? [...SOME, ...MORE] : SOME)('%s', (model) => {
    const graph = constantsAsInputs(shrinkGraph(load(model), TABLE, {}).graph);
    const { points } = cuttable(graph, TABLE);
    const draw = drawOf(points.length);
    const some = points.filter(() => draw.below(Math.max(2, points.length)) < 6);
    expectEqual(graph, [[points[Math.floor(points.length / 2)]], some]);
  });

  test('random programs with loops and branches, cut at all points and at some', () => {
    let cuts = 0;
    for (let seed = 0; seed < (FULL ? 600 : 60); seed++) {
      const graph = randomProgram(seed, 'joint');
      const { points } = cuttable(graph, TABLE);
      if (points.length === 0) continue;
      cuts += points.length;
      const draw = drawOf(seed);
      expectEqual(graph, [points, points.filter(() => draw.chance(0.4))]);
    }
    expect(cuts).toBeGreaterThan(50);
  });

  test('a table that three stages read, and a loss whose gradient is a constant', () => {
    const graph = trace(
      ({ x }: { x: Tensor }) => {
        const w = param('w', [8, 8]);
        const between = (y: Tensor, name: string): Tensor => y.matmul(param(name, [8, 8])).relu();
        return between(between(x.matmul(w), 'a').matmul(w), 'b')
          .matmul(w)
          .sum();
      },
      { x: input([4, 8]) },
    );
    const joint = jointGraph(graph, { table: TABLE, seed: 1 });
    const { points, cut } = cuttable(joint, TABLE);
    expect(points.map(({ before }) => before)).toEqual(['mm_1', 'mm_2', 'mm_3', 'mm_4']);
    expectEqual(joint, [points, [points[1]], []]);
    const { shared, sums } = cut(points);
    expect(shared).toEqual([{ names: ['w'], stages: [0, 2, 4] }]);
    expect(sums).toHaveLength(1);
  });
});

/** By boundary, the names that go forward and those that come back. */
function messages({ stages }: StagedGraph): (readonly [string, string])[] {
  const names = (list: readonly { readonly value: string }[]): string =>
    list.map(({ value }) => value).join(' ');
  return stages
    .slice(1)
    .map((stage, s) => [names(stages[s].sends), names(stage.sendsBack)] as const);
}

describe('what stages send', () => {
  test('GPT-2 sends one tensor each way, and adds the two gradients of its table at the end', () => {
    const { points, cut } = cuttable(load('torch/gpt2-2l/joint.readable'), TABLE);
    const staged = cut([points[0], points[3], points[6]]);
    expect(messages(staged)).toEqual([
      ['embedding', 'add_19'],
      ['add_7', 'add_15'],
      ['view_26', 'mm_2'],
    ]);
    expect(staged.shared).toEqual([{ names: ['primals_1'], stages: [0, 3] }]);
    expect(staged.sums).toEqual([
      {
        whole: 1,
        sum: [
          { stage: 3, output: 1 },
          { stage: 0, output: 0 },
        ],
      },
    ]);
    // The gradient of what is received is that of an input, in the placement of which it travels.
    const [, second] = staged.stages;
    const [back] = second.sendsBack;
    expect(second.graph.outputs[back.output]).toEqual({
      value: 'add_19',
      role: 'grad',
      of: 'embedding',
    });
  });

  test('ResNet is cut between its blocks, and inside of one with the skip connection beside', () => {
    const { points, cut } = cuttable(load('joint/resnet18/joint'), TABLE);
    const between = points.find(({ before }) => before === 'convolution_3');
    const inside = points.find(({ before }) => before === 'convolution_11');
    expect([between?.tensors, inside?.tensors]).toEqual([1, 2]);
    const staged = cut([between, inside].filter((p) => p !== undefined));
    expect(messages(staged).map((pair) => pair.map((names) => names.split(' ').length))).toEqual([
      [1, 1],
      [2, 2],
    ]);
    expect(staged.shared).toEqual([]);
  });

  test('a skip connection over several stages is carried on by those between, each way', () => {
    const graph = trace(
      ({ x }: { x: Tensor }) => {
        const first = x.matmul(param('w0', [8, 8]));
        let y = first;
        for (const name of ['w1', 'w2', 'w3', 'w4', 'w5']) y = y.matmul(param(name, [8, 8])).tanh();
        return y.add(first).sum();
      },
      { x: input([4, 8]) },
    );
    const joint = jointGraph(graph, { table: TABLE, seed: 1 });
    const { points, cut } = cuttable(joint, TABLE);
    expectEqual(joint, [points]);
    const { carried, stages } = cut(points);
    expect(stages).toHaveLength(5);
    expect(carried.find(({ value }) => value === 'mm')).toEqual({ value: 'mm', stages: [2, 3] });
  });

  test('a loop is one call, so no cut lies in it', () => {
    const { points } = cuttable(load('torch/hop-scan-joint/joint.readable'), TABLE);
    expect(points).toEqual([]);
  });

  test('the forward pass alone is cut too; a step with its optimizer is refused by name', () => {
    const graph = trace(
      ({ x }: { x: Tensor }) =>
        x
          .matmul(param('a', [8, 8]))
          .relu()
          .matmul(param('b', [8, 8]))
          .sum(),
      { x: input([4, 8]) },
    );
    const forward = cuttable(graph, TABLE);
    expectEqual(graph, [forward.points]);
    expect(messages(forward.cut(forward.points))).toEqual([['relu', '']]);
    const step = trainStep(jointGraph(graph, { table: TABLE, seed: 1 }), sgd({ lr: 0.1 }), {
      table: TABLE,
    });
    expect(refusal(() => cuttable(step, TABLE))).toMatchObject({ code: 'E_UNSUPPORTED' });
  });
});
