/**
 * Makes a program ready to be run with numbers: every operator can be evaluated, constants without
 * values become inputs, and row numbers fit the sizes if these are reduced.
 */

import { ShardwrightError } from '../errors.ts';
import type { Graph, Node } from '../graph/types.ts';
import { getOwn } from '../graph/value.ts';
import { hasKernel } from '../ops/kernels/evaluate.ts';
import { programFlops } from '../ops/program-flops.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { spmdName } from '../ops/spmd/operators.ts';
import { programNodes } from '../passes/sizes/dims.ts';
import {
  elementsOf,
  shrinkGraph,
  type ShrinkOptions,
  type Shrunk,
} from '../passes/sizes/shrink.ts';
import { countText, flopsText } from '../units.ts';
import { evaluateGraph } from './evaluate.ts';
import { drawInputs } from './inputs.ts';
import { isControl } from './interpreter/control.ts';

/** Operators that are named in one message. */
const SHOWN = 5;

/**
 * Refuses a program with operators that cannot be evaluated, before any work.
 *
 * @param unknown the plan's treatment of operators without a record; for those that run whole a
 *   stand-in is run
 * @throws E_NO_KERNEL that names each of them, with its count and its first place
 */
export function refuseUnevaluated(
  graph: Graph,
  table: OperatorTable,
  unknown: 'refuse' | 'replicate' = 'refuse',
): void {
  const missing = new Map<string, { why: string; nodes: string[] }>();
  for (const { node } of programNodes(graph)) {
    if (node.kind !== 'call' || node.target === 'operator.getitem' || isControl(node.target))
      continue;
    const record = table.get(node.target);
    if (record === undefined && unknown === 'replicate') continue;
    // Verbs of per-device code run as the collectives that they are.
    if (record !== undefined && (hasKernel(record) || spmdName(node.target) !== undefined))
      continue;
    const known = missing.get(node.target) ?? {
      why: record === undefined ? 'no record' : 'no kernel',
      nodes: [],
    };
    known.nodes.push(node.name);
    missing.set(node.target, known);
  }
  if (missing.size === 0) return;
  const named = [...missing].map(
    ([target, { why, nodes }]) =>
      `${target} (${why}; ${nodes.length === 1 ? '' : `${nodes.length} calls, first `}${nodes[0]})`,
  );
  const more = named.length > SHOWN ? ` and ${named.length - SHOWN} more` : '';
  throw new ShardwrightError(
    'E_NO_KERNEL',
    `the program cannot be run with numbers: ${named.slice(0, SHOWN).join(', ')}${more}`,
    {
      node: [...missing.values()][0].nodes[0],
      hint: 'give the operator a record with a kernel (--ops FILE); `plan` works without one',
    },
  );
}

/** Constants whose values the program does not state, as inputs after the others. */
export function constantsAsInputs(graph: Graph): Graph {
  const isTensor = (node: Node): boolean =>
    node.kind === 'get_attr' &&
    node.type.kind === 'tensor' &&
    getOwn(graph.subgraphs, node.target) === undefined;
  if (!graph.nodes.some(isTensor)) return graph;
  const inputs = graph.nodes.filter((node) => node.kind === 'placeholder');
  const constants = graph.nodes.filter(isTensor).map((node, i): Node => {
    const meta = {
      ...node.meta,
      role: 'constant',
      roleName: node.target,
      roleIndex: inputs.length + i,
    } as const;
    return { ...node, kind: 'placeholder', meta };
  });
  const calls = graph.nodes.filter((node) => node.kind !== 'placeholder' && !isTensor(node));
  return { ...graph, nodes: [...inputs, ...constants, ...calls] };
}

interface ReduceOptions extends ShrinkOptions {
  /** The seed of the inputs. Default 0. */
  readonly seed?: number;
}

/** Calls that keep their sizes because of their values, at most. */
const MAX_KEPT = 32;
/** FLOPs of one run: some ten seconds in float64. Sizes that stay may ask for more. */
const MAX_FLOPS = 2 ** 34;
/** Numbers that one run makes. */
const MAX_NUMBERS = 2 ** 28;

/**
 * The program at reduced sizes, run once to see that it can be. Where numbers that the program
 * makes itself do not fit a reduced size (rows that it numbers, a class that is a literal), equal
 * sizes of the call that meets them stay equal; where that does not help, it keeps its sizes.
 *
 * @throws what `shrinkGraph` and `evaluateGraph` throw; E_LIMIT, before any run, for a program that
 *   stays too large
 */
export function reduced(graph: Graph, table: OperatorTable, options: ReduceOptions = {}): Shrunk {
  const seed = options.seed ?? 0;
  const standIns = options.unknown === 'replicate';
  const coarse = new Set<string>();
  const whole = new Map<string, string>();
  for (;;) {
    const shrunk = shrinkGraph(graph, table, { ...options, coarse, keep: whole });
    refuseLarge(shrunk, table);
    try {
      evaluateGraph(table, shrunk.graph, drawInputs(table, shrunk.graph, seed), {
        seed,
        standIns,
        unused: true,
      });
      return shrunk;
    } catch (error) {
      const node =
        error instanceof ShardwrightError && error.code === 'E_VALUE'
          ? error.details.node
          : undefined;
      if (node === undefined || whole.has(node) || whole.size === MAX_KEPT) throw error;
      if (coarse.has(node)) whole.set(node, (error as ShardwrightError).message);
      else coarse.add(node);
    }
  }
}

/** @throws E_LIMIT, with the sizes that stay, for a program that a run would take minutes for */
function refuseLarge(shrunk: Shrunk, table: OperatorTable): void {
  const flops = programFlops(shrunk.graph, table).total;
  const numbers = elementsOf(shrunk.graph);
  if (flops <= MAX_FLOPS && numbers <= MAX_NUMBERS) return;
  const [found, most] =
    flops > MAX_FLOPS
      ? [flopsText(flops), flopsText(MAX_FLOPS)]
      : [`${countText(numbers)} numbers`, countText(MAX_NUMBERS)];
  throw new ShardwrightError(
    'E_LIMIT',
    `at the smallest sizes that were found one run takes ${found}, at most ${most} are run`,
    { hint: smallerHint(shrunk) },
  );
}

/** Names the sizes that stay large in a reduced program, and the edit that helps. */
export function smallerHint({ sizes, kept }: Shrunk): string {
  const [first] = kept;
  const help = 'verify fewer layers, or plan a smaller mesh.';
  if (first !== undefined) return `sizes of ${first.node} stay (${first.reason}); ${help}`;
  const whole = sizes.flatMap(({ from, to }) => (from === to && from > 16 ? [from] : []));
  return whole.length === 0 ? help : `sizes ${[...new Set(whole)].join(', ')} stay; ${help}`;
}
