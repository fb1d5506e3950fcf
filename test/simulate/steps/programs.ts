import type { DType, Graph, Node, Output, TensorType } from '../../../src/graph/types.ts';
import { tensorType } from '../../../src/graph/value.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { forwardPart } from '../../../src/passes/dead-code.ts';
import { adamw, type Optimizer, sgd } from '../../../src/passes/training/optimizer.ts';
import { trainStep } from '../../../src/passes/training/train-step.ts';
import { load, TABLE } from '../../plan/support.ts';

/**
 * The training programs of the fixtures, by name: joint graphs as they are, and whole train steps
 * made of their forward parts.
 */

const JOINTS = [
  'torch/mlp-loss',
  'torch/convnet',
  'torch/llama-tiny',
  'torch/gpt2-2l',
  'torch/bert-base',
  'torch/resnet18',
  'torch/vit-tiny',
  'torch/mixtral-tiny',
  'torch/hop-cond-joint',
  'torch/hop-map-joint',
  'torch/hop-scan-joint',
  'torch/mlp',
] as const;
export const OPTIMIZERS: Readonly<Record<string, Optimizer>> = {
  sgd: sgd({ lr: 0.05 }),
  momentum: sgd({ lr: 0.05, momentum: 0.9, nesterov: true }),
  adamw: adamw({ lr: 0.01, weightDecay: 0.1 }),
};

export const PROGRAMS: ReadonlyMap<string, () => Graph> = new Map([
  ...JOINTS.map((name) => [name, () => load(`${name}/joint.expanded`)] as const),
  ...JOINTS.flatMap((name) =>
    Object.keys(OPTIMIZERS).map(
      (optimizer) => [`${name} with ${optimizer}`, () => wholeStep(name, optimizer)] as const,
    ),
  ),
]);

/**
 * The sum of the first output that has a gradient is what is trained; parameters of the text are
 * those with a gradient.
 */
function wholeStep(name: string, optimizer: string): Graph {
  const forward = forwardPart(load(`${name}/joint.expanded`));
  const first = forward.outputs.find((o) => o.role === 'output' && floats(forward, o.value));
  if (first?.value === undefined || first.value === null)
    throw new Error(`${name} returns no numbers`);
  const ref = { kind: 'value', name: first.value } as const;
  const square: Node = {
    name: 'squared_output',
    kind: 'call',
    target: 'aten.mul.Tensor',
    args: [ref, ref],
    kwargs: {},
    type: plain(typeOf(forward, first.value)),
    meta: {},
  };
  const loss: Node = {
    name: 'loss_of_output',
    kind: 'call',
    target: 'aten.mean.default',
    args: [{ kind: 'value', name: square.name }],
    kwargs: {},
    type: tensorType(dtypeOf(forward, first.value), []),
    meta: {},
  };
  const outputs: Output[] = [
    ...forward.outputs.filter((o) => o.role !== 'output'),
    { role: 'output', index: 0, value: loss.name },
  ];
  const training: Graph = { ...forward, nodes: [...forward.nodes, square, loss], outputs };
  return trainStep(jointGraph(training, { table: TABLE, seed: 1 }), OPTIMIZERS[optimizer], {
    table: TABLE,
  });
}

function typeOf(graph: Graph, name: string | null): TensorType {
  const type = graph.nodes.find((node) => node.name === name)?.type;
  if (type?.kind !== 'tensor') throw new Error(`${name} is not a tensor`);
  return type;
}

const plain = ({ dtype, shape }: TensorType): TensorType => tensorType(dtype, shape);
const dtypeOf = (graph: Graph, name: string): DType => typeOf(graph, name).dtype;
const floats = (graph: Graph, name: string | null): boolean =>
  ['f32', 'bf16', 'f64'].includes(typeOf(graph, name).dtype);
