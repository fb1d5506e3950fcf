/**
 * Reads the sizes of a transformer (layers, heads, experts, vocabulary, batch, sequence) off its
 * graph, for the linter.
 */

import { checkKinds } from '../../arguments.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { exampleShape } from '../../graph/value.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import { graphInputRoles, type InputRoles } from './roles.ts';

/** Sizes of a transformer that the linter asks for; what is undefined could not be told. */
export interface ModelFacts {
  readonly batch?: number;
  readonly sequence?: number;
  readonly hidden?: number;
  readonly heads?: number;
  readonly kvHeads?: number;
  readonly mlpWidth?: number;
  readonly vocabulary?: number;
  readonly layers?: number;
  /** Layers of a decoder that reads what the layers before it give. */
  readonly decoderLayers?: number;
  readonly experts?: number;
  /** Width inside an expert. */
  readonly expertWidth?: number;
  readonly tied?: boolean;
}

/**
 * Reads the sizes off a graph: parameters by the names that model libraries give them, heads from
 * the attention nodes, batch and sequence from the program (`inputRoles`).
 *
 * @param known roles by node of the graph
 */
export function modelFacts(graph: Graph, known?: InputRoles): ModelFacts {
  checkKinds('modelFacts', { graph: [graph, 'graph'], known: [known, 'map', 'undefined'] });
  const roles = known ?? graphInputRoles(graph, builtinOperators());
  const parameters = graph.nodes.filter(
    (n) => n.kind === 'placeholder' && n.meta.role === 'parameter',
  );
  const shapeOf = (pattern: RegExp): readonly number[] | undefined => {
    const found = parameters.find((n) => pattern.test(roleName(n)));
    return found === undefined ? undefined : shape(found);
  };
  const table = shapeOf(/(^|[._])(embed_tokens|wte|word_embeddings|tok_embeddings)\./);
  const [vocabulary, hidden] = table ?? [];
  const sizeOf = (role: 'batch' | 'sequence'): number | undefined => {
    const [first] = [...roles].flatMap(([n, { [role]: dim }]) =>
      dim === undefined ? [] : [shape(graph.nodes[n])[dim]],
    );
    return first;
  };
  const query = graph.nodes.flatMap((n) =>
    n.kind === 'call' && n.target.includes('scaled_dot_product') ? [n.args[0]] : [],
  )[0];
  const named =
    query !== null && typeof query === 'object' && 'kind' in query && query.kind === 'value'
      ? query.name
      : undefined;
  const q = named === undefined ? [] : shape(graph.nodes.find((n) => n.name === named));
  const heads = q.length === 4 ? q[1] : undefined;
  const keys = shapeOf(/(^|[._])(k_proj|wk|key)\.weight/);
  const kvHeads = keys?.length === 2 && q.length === 4 ? otherDim(keys, hidden) / q[3] : heads;
  const up = shapeOf(/(^|[._])(up_proj|c_fc|fc1|w1|linear1)\.weight/);
  const layers = new Set<string>();
  for (const n of parameters) {
    const match = /(^|[._])(layers?|h|blocks?)[._](\d+)[._]/.exec(roleName(n));
    if (match !== null) layers.add(match[3]);
  }
  const experts = shapeOf(/(^|[._])experts[._]/);
  const facts = {
    batch: sizeOf('batch'),
    sequence: sizeOf('sequence'),
    hidden,
    heads,
    kvHeads: kvHeads !== undefined && Number.isInteger(kvHeads) ? kvHeads : undefined,
    mlpWidth: up?.length === 2 && hidden !== undefined ? otherDim(up, hidden) : undefined,
    vocabulary,
    layers: layers.size > 0 ? layers.size : undefined,
    experts: experts?.length === 3 ? experts[0] : undefined,
    tied: graph.ties?.some((group) => group.some((name) => /embed|wte/.test(name))),
  };
  return Object.fromEntries(Object.entries(facts).filter(([, v]) => v !== undefined));
}

/** The dim of a matrix that is not the hidden one. */
function otherDim([a, b]: readonly number[], hidden: number | undefined): number {
  return a === hidden ? b : a;
}

function shape(node: Node | undefined): readonly number[] {
  if (node?.type.kind !== 'tensor') return [];
  return exampleShape(node.type);
}
