import type { Graph } from '../../../src/graph/types.ts';
import { elementCount } from '../../../src/graph/value.ts';
import { build, flat, fromList, type NDArray } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import type { StagedGraph } from '../../../src/passes/stages/split.ts';
import { evaluateGraph, type Value } from '../../../src/simulate/evaluate.ts';

export const TABLE = builtinOperators();

/** Runs stage after stage forward, then back; the results of the whole program by position. */
export function runStages(
  whole: Graph,
  { stages, sums }: StagedGraph,
  inputs: readonly Value[],
): Map<number, Value> {
  const placeholders = whole.nodes.filter(({ kind }) => kind === 'placeholder');
  const given = new Map(placeholders.map(({ name }, i) => [name, inputs[i]]));
  const sent = new Map<string, Value>();
  const outputsOf: (readonly Value[])[] = [];
  const run = (s: number, wanted?: readonly number[]): readonly Value[] => {
    const { graph, receives, receivesBack } = stages[s];
    const values = graph.nodes.flatMap((node) => {
      if (node.kind !== 'placeholder') return [];
      const isMessage = receives.includes(node.name) || receivesBack.includes(node.name);
      const value = isMessage ? sent.get(node.name) : given.get(node.name);
      if (value !== undefined) return [value];
      // Of a stage behind, whose backward pass is still to come: nothing that is wanted reads it.
      if (wanted === undefined) throw new Error(`stage ${s} lacks ${node.name}`);
      return [anything(node)];
    });
    return evaluateGraph(TABLE, graph, values, wanted === undefined ? {} : { outputs: wanted })
      .outputs;
  };
  stages.forEach(({ sends }, s) => {
    const outputs = run(
      s,
      sends.map(({ output }) => output),
    );
    for (const { value, output } of sends) sent.set(value, outputs[output]);
  });
  for (let s = stages.length - 1; s >= 0; s--) {
    outputsOf[s] = run(s);
    for (const { value, output } of stages[s].sendsBack) sent.set(value, outputsOf[s][output]);
  }
  const found = new Map<number, Value>();
  stages.forEach(({ results }, s) => {
    for (const { whole: w, own, isPart } of results) if (!isPart) found.set(w, outputsOf[s][own]);
  });
  type Sum = StagedGraph['sums'][number]['sum'];
  const added = (sum: Sum): NDArray => {
    if ('stage' in sum) return outputsOf[sum.stage][sum.output] as NDArray;
    const [a, b] = [added(sum[0]), added(sum[1])];
    const right = flat(b);
    return fromList(
      [...a.shape],
      [...flat(a)].map((x, i) => x + right[i]),
      a.dtype,
    );
  };
  for (const { whole: w, sum } of sums) found.set(w, added(sum));
  return found;
}

function anything({ name, type }: Graph['nodes'][number]): NDArray {
  if (type.kind !== 'tensor' || elementCount(type) === undefined) throw new Error(name);
  return build(type.shape as readonly number[], () => 0, type.dtype);
}
