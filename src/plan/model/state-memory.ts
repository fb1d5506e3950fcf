/**
 * Computes state bytes by placement for parameters, buffers and optimizer states, and the memory
 * row of the problem.
 */
import { defaultOptimizer, gradientDtype, stateBytes } from '../../cost/memory/state-bytes.ts';
import { ShardwrightError } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import { DTYPE_BYTES, type Graph } from '../../graph/types.ts';
import { elements } from '../../ops/record/record.ts';
import type { LinearRow } from '../../solver/types.ts';
import type { BuildInput } from './input.ts';
import type { StateBytes } from './model.ts';

/**
 * State bytes of every parameter, buffer and optimizer state under each of its placements. Tied
 * parameters count once. A parameter whose program updates it brings its own states along: its
 * optimizer is not counted a second time.
 */
export function parameterStates(
  input: BuildInput,
  nodeVariable: Int32Array,
): Map<number, StateBytes> {
  const { graph, flow, strategies, space } = input;
  const states = new Map<number, StateBytes>();
  const { trained: withGradient, tied } = trainedParameters(graph);
  const updated = new Set(
    graph.outputs.flatMap(({ role, of }) => (role === 'mutation' ? [of] : [])),
  );
  graph.nodes.forEach((node, n) => {
    const { role } = node.meta;
    const name = roleName(node);
    if (node.kind !== 'placeholder' || nodeVariable[n] < 0) return;
    if (role !== 'parameter' && role !== 'buffer' && role !== 'constant' && role !== 'state')
      return;
    if (role === 'parameter' && tied.has(name)) return;
    const { set } = strategies.nodes[n]!;
    const { meta } = flow.values[flow.results[n][0]];
    const own = DTYPE_BYTES[meta.dtype];
    const trained = role === 'parameter' && withGradient.has(name);
    const kept = trained
      ? stateBytes(
          input.optimizer ?? defaultOptimizer(meta.dtype),
          meta.dtype,
          gradientDtype(input.gradients, meta.dtype),
        )
      : { parameter: own, gradient: 0, optimizer: 0 };
    const bytes =
      role === 'state'
        ? { parameter: 0, gradient: 0, optimizer: own }
        : updated.has(name)
          ? { ...kept, optimizer: 0 }
          : kept;
    const localElements = new Float64Array(set.count);
    for (let s = 0; s < set.count; s++)
      localElements[s] = elements(space.localShape(set.specs[s], meta.shape));
    states.set(n, { ...bytes, localElements });
  });
  return states;
}

/**
 * Role names of the parameters that carry a gradient, and of those that are another name of one: a
 * group of tied parameters counts under its first name, trained if the gradient of any of its names
 * is returned.
 */
export function trainedParameters(graph: Graph): {
  readonly trained: ReadonlySet<string>;
  readonly tied: ReadonlySet<string>;
} {
  const trained = new Set<string>();
  for (const output of graph.outputs)
    if (output.role === 'grad' && output.value !== null && output.of !== undefined)
      trained.add(output.of);
  const tied = new Set<string>();
  for (const [owner, ...others] of graph.ties ?? []) {
    if (others.some((name) => trained.has(name))) trained.add(owner);
    for (const name of others) tied.add(name);
  }
  return { trained, tied };
}

/**
 * The static memory row: bytes of parameters, gradients, optimizer state and buffers on the fullest
 * device. @throws E_LIMIT where their sum is not exact
 */
export function memoryRows(
  input: BuildInput,
  states: ReadonlyMap<number, StateBytes>,
  nodeVariable: Int32Array,
): LinearRow[] {
  const nodes = [...states.keys()];
  let mostBytes = 0;
  for (const s of states.values())
    mostBytes += perElement(s) * s.localElements.reduce((a, b) => Math.max(a, b), 0);
  if (mostBytes > Number.MAX_SAFE_INTEGER)
    throw new ShardwrightError(
      'E_LIMIT',
      `parameters, gradients, optimizer states and buffers have ${mostBytes.toPrecision(2)} ` +
        'bytes, more than 2^53',
      {
        hint: 'sums of bytes are exact up to there; check the sizes of the parameters.',
      },
    );
  return [
    {
      name: 'memory',
      variables: Int32Array.from(nodes, (n) => nodeVariable[n]),
      amounts: nodes.map((n) => {
        const s = states.get(n)!;
        return s.localElements.map((local) => local * perElement(s));
      }),
      bound: Math.floor(input.budgetBytes),
    },
  ];
}

function perElement({ parameter, gradient, optimizer }: StateBytes): number {
  return parameter + gradient + optimizer;
}
