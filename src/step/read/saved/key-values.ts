/**
 * Finds keys and values that are gathered and repeated under context parallelism, and tells which
 * form is saved for the backward pass.
 */

import { isPartialCode, REPLICATE_CODE } from '../../../mesh/sharding/space.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { Routes } from '../../../plan/choice/routes.ts';
import type { Model, Use } from '../../../plan/model/model.ts';
import { keyValuePaths } from '../attention-paths.ts';

/** Keys or values that are gathered over `cp` and repeated for the query heads that share them. */
export interface GatheredRepeats {
  /** The calls that repeat them, the first of which has them gathered. */
  readonly nodes: readonly number[];
  /** The attention that reads them, and its gradient; undefined in a program without one. */
  readonly attention: number;
  readonly gradient: number | undefined;
}

/**
 * Values that no implementation keeps for the backward pass, although a program that repeats keys
 * and values says so: a rank keeps its own rows of them, and gathers and repeats again when the
 * gradient of attention is made (Megatron-Core's all-gather of keys and values saves its operand;
 * so does the ring, which passes them on once more).
 */
export function gatheredRepeats(model: Model, routes: Routes): GatheredRepeats[] {
  const { space } = model;
  const dim = space.mesh.names.indexOf('cp');
  if (dim < 0) return [];
  const firstUse = new Map(
    model.uses.flatMap((u) =>
      u.at.kind === 'input' && u.at.input === 0 ? [[u.at.node, u] as const] : [],
    ),
  );
  return keyValuePaths(model).flatMap(({ attention, input, repeats: nodes }): GatheredRepeats[] => {
    const use = nodes.length === 0 ? undefined : firstUse.get(nodes[0]);
    if (use === undefined) return [];
    const owned = space.kindAt(routes.owned(use.value), dim);
    if (owned === REPLICATE_CODE || isPartialCode(owned)) return [];
    if (space.kindAt(routes.demanded(use), dim) !== REPLICATE_CODE) return [];
    return [{ nodes, attention, gradient: gradientOf(model, attention, input) }];
  });
}

/**
 * Keys and values that are repeated for their queries in the program alone: kernels for grouped
 * queries (FlashAttention, cuDNN, the splash kernel of TPUs) read each where it is.
 *
 * @param others calls that repeat what is gathered
 */
export function groupedRepeats(model: Model, others: ReadonlySet<number>): GatheredRepeats[] {
  return keyValuePaths(model).flatMap(({ attention, input, repeats: nodes }) =>
    nodes.length === 0 || nodes.some((n) => others.has(n))
      ? []
      : [{ nodes, attention, gradient: gradientOf(model, attention, input) }],
  );
}

/** The call of the backward pass that reads an input of attention. */
function gradientOf({ flow }: Model, attention: number, input: number): number | undefined {
  const read = flow.inputs[attention][input];
  const gradient = flow.inputs.findIndex(
    (list, n) => flow.phases[n] === 'backward' && list.includes(read),
  );
  return gradient < 0 ? undefined : gradient;
}

/**
 * Tells whether a use of the gradient of attention finds its value as the forward pass took it:
 * Ulysses saves queries, keys and values with their heads cut, which are as many bytes, and
 * exchanges none of them twice. A plan has copies for one pass only.
 */
export function isSavedAsTaken(
  model: Model,
  routes: Routes,
  table: OperatorTable,
  use: Use,
): boolean {
  const { graph, space } = model;
  const isAttention = ({ at }: Use): boolean =>
    at.kind === 'input' && table.get(graph.nodes[at.node].target)?.cls === 'attention';
  if (use.phase !== 'backward' || !isAttention(use) || !space.mesh.names.includes('sp'))
    return false;
  const wanted = routes.demanded(use);
  return model.uses.some(
    (u) =>
      u.value === use.value &&
      u.phase === 'forward' &&
      isAttention(u) &&
      routes.demanded(u) === wanted,
  );
}
