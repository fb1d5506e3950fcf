/**
 * Takes a plan and a node and gives the strategies that the solver could have chosen there, and the
 * nearest other plans.
 */

import { defined } from '../../../defined.ts';
import { roleName } from '../../../graph/nodes.ts';
import { itemAt } from '../../../item-at.ts';
import {
  type CandidateClass,
  explainNode,
  type Reopened,
} from '../../../plan/questions/explain.ts';
import { foldNumbers } from '../layer-names.ts';

/** The strategies of one node, as `explain` lists them: the chosen one, then the nearest others. */
export interface NodeCandidates {
  readonly node: string;
  readonly target: string;
  readonly chosen: string;
  /** How many there are in all. */
  readonly strategies: number;
  readonly nearest: readonly {
    readonly spec: string;
    readonly class: CandidateClass;
    readonly localSeconds: number | null;
    readonly computeSeconds: number;
    readonly inSeconds: number | null;
    readonly outSeconds: number | null;
    readonly reason?: string;
  }[];
  readonly limits: readonly string[];
}

/** A plan that differs from this one in one step, or a recipe. */
export interface NextBest {
  readonly kind: 'tie' | 'one node' | 'one parameter' | 'recipe';
  readonly name: string;
  /** The strategy that it takes instead. */
  readonly spec?: string;
  readonly deltaSeconds: number;
}

const NEAREST = 6;

/** The strategies of some nodes, by name; a name that decides nothing of its own is left out. */
export function candidatesOf(opened: Reopened, nodes: readonly number[]): NodeCandidates[] {
  const { graph } = opened.prepared.model;
  return nodes.map((n) => {
    const found = explainNode(opened, itemAt(graph.nodes, n).name);
    return {
      node: roleName(itemAt(graph.nodes, n)),
      target: found.target,
      chosen: found.chosen,
      strategies: found.strategies.length,
      nearest: found.strategies.slice(0, NEAREST).map((c) => ({
        spec: c.spec,
        class: c.class,
        localSeconds: c.localSeconds,
        computeSeconds: c.computeSeconds,
        inSeconds: c.inSeconds,
        outSeconds: c.outSeconds,
        ...defined({ reason: c.reason }),
      })),
      limits: found.limits,
    };
  });
}

/** One parameter of each folded row, by its node. */
export function parameterNodes({ prepared, plan }: Reopened): number[] {
  const { graph, nodeVariable } = prepared.model;
  const first = new Map<string, number>();
  const placed = new Map(plan.parameters.map((p) => [p.name, p.placement]));
  graph.nodes.forEach((node, n) => {
    if (
      node.kind !== 'placeholder' ||
      node.meta.role !== 'parameter' ||
      itemAt(nodeVariable, n) < 0
    )
      return;
    const name = roleName(node);
    const key = `${foldNumbers(name)}|${placed.get(name) ?? ''}`;
    if (!first.has(key)) first.set(key, n);
  });
  return [...first.values()];
}

/**
 * The nearest other plans that are known without solving again: the cheapest changes of one node
 * and of one parameter that fit, with everything else as it is, and the best recipe. The second
 * best plan of all is at most as far away as the first of these.
 *
 * @param known seconds of recipes that fit
 */
export function nextBestOf(
  explained: readonly NodeCandidates[],
  parameters: readonly NodeCandidates[],
  known: readonly { readonly name: string; readonly seconds: number }[],
  seconds: number,
): NextBest[] {
  const all = [...explained, ...parameters];
  const tie = nearestOf(all, 'tie', (c) => c.class === 'TIE');
  const node = nearestOf(explained, 'one node', (c) => c.class === 'COSTLIER');
  const parameter = nearestOf(parameters, 'one parameter', (c) => c.class === 'COSTLIER');
  const [best] = [...known].sort((a, b) => a.seconds - b.seconds || (a.name < b.name ? -1 : 1));
  const out = [tie, node, parameter].filter((n) => n !== undefined);
  if (best !== undefined)
    out.push({ kind: 'recipe', name: best.name, deltaSeconds: best.seconds - seconds });
  return out.sort((a, b) => a.deltaSeconds - b.deltaSeconds);
}

type Nearest = NodeCandidates['nearest'][number];

function nearestOf(
  explained: readonly NodeCandidates[],
  kind: NextBest['kind'],
  accepts: (c: Nearest) => boolean,
): NextBest | undefined {
  let found: NextBest | undefined;
  for (const { node, nearest } of explained)
    for (const c of nearest)
      if (
        accepts(c) &&
        c.localSeconds !== null &&
        (found === undefined || c.localSeconds < found.deltaSeconds)
      )
        found = { kind, name: node, spec: c.spec, deltaSeconds: c.localSeconds };
  return found;
}
