import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import * as branch from '../../examples/early-exit-cond.ts';
import * as rnn from '../../examples/rnn-scan.ts';
import * as transformer from '../../examples/transformer.ts';
import type { ExportSource } from '../../src/backend/target.ts';
import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { captureAny } from '../../src/trace/trace.ts';
import { load, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';
import { randomSource, small, solvedSource } from './programs.ts';

/** A program that is exported to JAX and run there. */
export interface JaxCase {
  readonly name: string;
  readonly mesh: string;
  readonly graph: () => Graph;
  readonly source: (graph: Graph) => ExportSource | Promise<ExportSource>;
}

interface Example {
  readonly inputs: unknown;
  readonly model: (...args: never[]) => unknown;
}

const infer = {
  infer: (node: Parameters<typeof inferCall>[1], typeOf: Parameters<typeof inferCall>[2]) =>
    inferCall(TABLE, node, typeOf),
};

/** A StableHLO program that JAX wrote. */
export function stablehlo(name: string, file = 'stablehlo'): Graph {
  return importGraph(readFileSync(stablehloPath(name, file)), infer);
}

export function stablehloPath(name: string, file = 'stablehlo'): string {
  return fileURLToPath(new URL(`../fixtures/jax/${name}/${file}.mlir.gz`, import.meta.url));
}

const traced = (example: Example): Graph =>
  captureAny(example.model as never, example.inputs, {}).graph;
const withGradients = (example: Example): Graph => jointGraph(traced(example));

/** Graphs by name: traced here, captured by PyTorch, written by JAX. */
const GRAPHS: Readonly<Record<string, () => Graph>> = {
  transformer: () => traced(transformer),
  'transformer with gradients': () => withGradients(transformer),
  'recurrent scan': () => traced(rnn),
  'recurrent scan with gradients': () => withGradients(rnn),
  'early exit (cond)': () => traced(branch),
  'mlp-loss': () => load('torch/mlp-loss/joint.readable'),
  'llama-tiny': () => load('torch/llama-tiny/joint.readable'),
  'mixtral-tiny': () => load('torch/mixtral-tiny/joint.readable'),
  'einshard-mlp-grad-batch2-y4': () => stablehlo('einshard-mlp-grad-batch2-y4'),
  'lm2-scan': () => stablehlo('lm2-scan'),
  'ctl-scan-rnn-grad': () => stablehlo('ctl-scan-rnn-grad'),
  'ctl-cond': () => stablehlo('ctl-cond'),
  'ctl-while': () => stablehlo('ctl-while'),
};

const made = new Map<string, Graph>();
function graphOf(name: string, mesh: string): Graph {
  const key = `${name} ${mesh}`;
  let graph = made.get(key);
  if (graph === undefined) made.set(key, (graph = small(GRAPHS[name](), mesh)));
  return graph;
}

/** @param seeds of plans drawn at random; none of a plan that is solved for */
function cases(name: string, mesh: string, ...seeds: number[]): JaxCase[] {
  return seeds.map((seed) => ({
    name: `${name} on ${mesh}, ${seed < 0 ? 'the optimum' : `drawn ${seed}`}`,
    mesh,
    graph: () => graphOf(name, mesh),
    source: (graph) => (seed < 0 ? solvedSource(graph, mesh) : randomSource(graph, mesh, seed)),
  }));
}

const OPTIMUM = -1;

export const JAX_CASES: readonly JaxCase[] = [
  ...cases('transformer', 'dp=2,tp=4', OPTIMUM, 0),
  ...cases('transformer with gradients', 'dp=2,tp=2', OPTIMUM, 0),
  ...cases('recurrent scan', 'd=4', 0, 1),
  ...cases('recurrent scan with gradients', 'a=2,b=2', OPTIMUM, 0),
  ...cases('early exit (cond)', 'a=2,b=4', 0, 1),
  ...cases('mlp-loss', 'd=8', OPTIMUM, 0),
  ...cases('mlp-loss', 'a=2,b=2,c=2', OPTIMUM, 0),
  ...(FULL ? cases('llama-tiny', 'a=2,b=2', 0) : []),
  ...(FULL ? cases('mixtral-tiny', 'a=2,b=2', 0) : []),
  ...cases('einshard-mlp-grad-batch2-y4', 'x=2,y=4', OPTIMUM, 0, 1),
  ...cases('lm2-scan', 'a=2,b=2', OPTIMUM),
  ...cases('ctl-scan-rnn-grad', 'a=2,b=2', OPTIMUM, 0),
  ...cases('ctl-cond', 'a=2,b=2', 0),
  ...cases('ctl-while', 'a=2,b=2', 0),
];
