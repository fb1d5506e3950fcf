/**
 * A column- and a row-parallel linear in per-device code, as Megatron has them, with and without
 * sequence parallelism. Types are checked while tracing: a forgotten cast (f) or reduction (g) is
 * an error at its line, not a wrong gradient. Both run on 4 virtual devices against one. Run: npx
 * tsx examples/megatron-mlp.ts
 */
import { fileURLToPath } from 'node:url';

import { type Graph, input, parameter, ShardwrightError, type Tensor, trace } from 'shardwright';
import { evaluateGraph, fromList, jointGraph, NDArray } from 'shardwright/graph';
import {
  allGather,
  allReduce,
  checkTypes,
  convert,
  localMap,
  outPartial,
  reduceScatter,
} from 'shardwright/local-spmd';
import { builtinOperators } from 'shardwright/ops';

/** Options of tracing, for the command line too. */
export const options = { mesh: 'tp=4' };

export const inputs = {
  x: input([8, 16], 'f64'),
  w1: parameter([16, 32], 'f64'),
  w2: parameter([32, 16], 'f64'),
};
type Mlp = Record<keyof typeof inputs, Tensor>;

const plain = ({ x, w1, w2 }: Mlp): Tensor => x.matmul(w1).relu().matmul(w2);

/** f: the same value for different work on each device; in the gradient an all_reduce. */
const f = (x: Tensor): Tensor => convert(x, 'tp', { src: 'I', dst: 'R' });
/** g: the sum of what each device has; in the gradient nothing. */
const g = (y: Tensor): Tensor => allReduce(outPartial(y, 'tp'), 'tp', { dst: 'I' });

const columns = 'P(None, "tp")';
const rows = 'P("tp", None)';
const whole = 'P(None, None)';

/** `enter` stands before the column-parallel linear, `leave` after the row-parallel one. */
function parallel(enter: (x: Tensor) => Tensor, leave: (y: Tensor) => Tensor, between: string) {
  const body = (x: Tensor, w1: Tensor, w2: Tensor): Tensor =>
    leave(enter(x).matmul(w1).relu().matmul(w2));
  const specs = { inSpecs: [between, columns, rows], outSpecs: between, autoCast: false };
  return ({ x, w1, w2 }: Mlp): Tensor => localMap(body, specs)(x, w1, w2);
}

export const model = parallel(f, g, whole);

/**
 * Between the blocks each device has its rows of the sequence: f gathers them, g scatters the sum.
 */
const sequenceParallel = parallel(
  (x) => allGather(x, 'tp', { src: 'S(0)', dst: 'R' }),
  (y) => reduceScatter(outPartial(y, 'tp'), 'tp', { dst: 'S(0)' }),
  rows,
);

/** Collectives of the regions in the order of the program: forward, then gradient. */
function collectives(graph: Graph): string {
  const regions = Object.values(graph.subgraphs).map(({ nodes }) =>
    nodes
      .flatMap(({ target }) => /^spmd_types\.((?:all|reduce)_\w+)/.exec(target)?.[1] ?? [])
      .join(', '),
  );
  return `forward ${regions[0]}; gradient ${regions[1]}`;
}

/** Largest difference of outputs and gradients from those of one device. */
function difference(graph: Graph, reference: Graph): number {
  const values = reference.nodes.flatMap(({ kind, type }, seed) => {
    if (kind !== 'placeholder' || type.kind !== 'tensor') return [];
    const [n, m] = type.shape as readonly [number, number];
    return [
      fromList(
        [n, m],
        Array.from({ length: n * m }, (_, i) => Math.sin((i + 1) * (seed + 1.3))),
        'f64',
      ),
    ];
  });
  const [a, b] = [graph, reference].map((of) =>
    evaluateGraph(builtinOperators(), of, values).outputs.flatMap((out) =>
      out instanceof NDArray ? out.toArray() : [],
    ),
  );
  return Math.max(...a.map((value, i) => Math.abs(value - b[i])));
}

function refusal(program: (inputs: Mlp) => Tensor): string {
  try {
    trace(program, inputs, options);
  } catch (error) {
    if (error instanceof ShardwrightError)
      return `  ${error.message}\n  hint: ${error.details.hint}`;
    throw error;
  }
  return 'accepted';
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const graph = trace(model, inputs, options);
  console.log('What each device has:\n');
  for (const [name, text] of checkTypes(graph).texts)
    if (name.includes('/')) console.log(`  ${name}: ${text}`);

  const reference = jointGraph(trace(plain, inputs), { wrt: Object.keys(inputs) });
  for (const [name, program] of Object.entries({ model, sequenceParallel })) {
    const joint = jointGraph(trace(program, inputs, options), { wrt: Object.keys(inputs) });
    console.log(`\n${name}: ${collectives(joint)}`);
    console.log(`  as on one device to 1e-12: ${difference(joint, reference) < 1e-12}`);
  }

  console.log(`\nf forgotten:\n${refusal(parallel((x) => x, g, whole))}`);
  console.log(`\ng forgotten:\n${refusal(parallel(f, (y) => y, whole))}`);
}
