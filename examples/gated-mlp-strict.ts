/**
 * A gated MLP on a mesh (dp, tp) as a global program in strict mode: every cast stands in the
 * program, so its types can be stripped and the collectives that are left are those that it names.
 * The gradient of x is added up while it is still pending, and reduced once. Run: npx tsx
 * examples/gated-mlp-strict.ts
 */
import { fileURLToPath } from 'node:url';

import { type Graph, input, parameter, type Tensor, trace } from 'shardwright';
import { jointGraph } from 'shardwright/graph';
import {
  assertType,
  checkTypes,
  contract,
  convert,
  erase,
  outPartial,
} from 'shardwright/local-spmd';

/** Options of tracing, for the command line too. */
export const options = { mesh: 'dp=2,tp=2' };

export const inputs = {
  x: input([4, 8, 16], 'f64'),
  w1: parameter([16, 32], 'f64'),
  w3: parameter([16, 32], 'f64'),
  w2: parameter([32, 16], 'f64'),
};
type Gated = Record<keyof typeof inputs, Tensor>;

/** A cast that costs nothing, and whose gradient is an all_reduce. */
const used = (x: Tensor, axis: string): Tensor => convert(x, axis, { src: 'I', dst: 'R' });

export function model({ x, w1, w3, w2 }: Gated): Tensor {
  const xs = used(assertType(x, 'P(None, "dp", None)'), 'tp');
  const weight = (w: Tensor, spec: string): Tensor => used(assertType(w, spec), 'dp');
  const up = contract('sbh,hi->sbi', xs, weight(w1, 'P(None, "tp")'));
  const gate = contract('sbh,hi->sbi', xs, weight(w3, 'P(None, "tp")'));
  const h = up.silu().mul(gate);
  return outPartial(contract('sbi,ih->sbh', h, weight(w2, 'P("tp", None)')), 'tp');
}

/** Values of a graph with their types. */
function typed(graph: Graph, types: Readonly<Record<string, string>> = {}): number {
  const { texts, violations } = checkTypes(graph, { mode: 'strict', types });
  for (const [name, text] of texts) console.log(`  ${name}: ${text}`);
  return violations.length;
}

/** Collectives of the program that is left when the types are stripped. */
function collectives(graph: Graph, types: Readonly<Record<string, string>> = {}): string {
  const found = erase(graph, { types }).graph.nodes.flatMap(({ target, args }) => {
    const [, kind] = /^_c10d_functional\.(\w+)/.exec(target) ?? [];
    const axis = args.at(-1);
    return kind === undefined || typeof axis !== 'string' ? [] : [`${kind} on ${axis}`];
  });
  return found.length === 0 ? 'none' : found.join(', ');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const graph = trace(model, inputs, options);
  console.log('Types, forward:\n');
  const broken = typed(graph);
  console.log(`\n${broken} laws broken: every cast and every sum over a cut dim is written.`);

  console.log('\nTypes, with the gradient (that of a pending sum is equal on all of tp):\n');
  const joint = jointGraph(graph, { wrt: Object.keys(inputs) });
  const tangent = { tangents_1: 'P(None, "dp", None, reduced={"tp"})' };
  typed(joint, tangent);

  console.log('\nCollectives when the types are stripped:\n');
  console.log(`  forward: ${collectives(graph)}`);
  console.log(`  with the gradient: ${collectives(joint, tangent)}`);
}
