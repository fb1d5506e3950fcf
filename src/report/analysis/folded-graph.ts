/**
 * Takes a planned program and gives its graph with equal layers folded into one and without nodes
 * that neither compute nor move.
 */

import { defined } from '../../defined.ts';
import { roleName } from '../../graph/nodes.ts';
import { itemAt } from '../../item-at.ts';
import { backwardStart } from '../../passes/plannable/weight-views.ts';
import type { Reopened } from '../../plan/questions/explain.ts';
import type { Plan } from '../../plan/record/types.ts';
import { lineSignature } from './program.ts';
import { findRepeats } from './repeats.ts';

/**
 * The program with equal layers drawn once, and nodes without a kernel and without a move left out.
 */
export interface FoldedGraph {
  readonly nodes: readonly FoldedNode[];
  readonly edges: readonly FoldedEdge[];
  /** Nodes of the program that no drawn node represents: views, constants and the like. */
  readonly leftOut: number;
}

export interface FoldedNode {
  /** Index in the graph of the node that is drawn. */
  readonly node: number;
  readonly name: string;
  readonly target: string;
  /** The number of equal nodes that it represents. */
  readonly count: number;
  readonly phase: 'input' | 'forward' | 'backward';
  /** Placement of its first result. */
  readonly placement: string;
  readonly seconds: number;
  readonly communicationSeconds: number;
}

interface FoldedEdge {
  /** Positions in `nodes`. */
  readonly from: number;
  readonly to: number;
  /** Placements on the way where they change: `S(0)R -> RR`. */
  readonly change?: string;
  readonly seconds: number;
  /** Leads back to an earlier node, that is on to the next of several equal layers. */
  readonly next: boolean;
}

/** Stretches shorter than this are easier to read in full. */
const LEAST_STRETCH = 12;
/**
 * Nodes that are laid out at most, largest first, and the share of the step that they need not
 * reach beyond.
 */
const MOST_NODES = 140;
const SHARE = 0.99;

/** Inputs of the program that are drawn. */
const MOST_INPUTS = 8;

/** Folds the program of a plan. */
export function foldedGraphOf({
  prepared,
  plan,
}: Pick<Reopened, 'prepared' | 'plan'>): FoldedGraph {
  const { graph } = prepared.model;
  const split = backwardStart(graph);
  const stands = representatives(prepared, plan);
  const counts = new Map<number, number>();
  stands.forEach((r) => counts.set(r, (counts.get(r) ?? 0) + 1));
  const { inputs, largest } = drawnNodes(prepared, plan, counts);
  // A value that is moved has a box of its own, however cheap it is: else the move would be drawn
  // on the edges of its operands.
  const moved = largest.flatMap((n) =>
    movedNodes(prepared, plan, n).map((producer) => itemAt(stands, producer)),
  );
  const kept = [...new Set([...inputs, ...largest, ...moved])].sort((x, y) => x - y);
  const position = new Map(kept.map((n, k) => [n, k]));
  const nodes = kept.map((n): FoldedNode => {
    const { name, kind, meta } = itemAt(graph.nodes, n);
    const p = itemAt(plan.nodes, n);
    return {
      node: n,
      name: roleName({ name, meta }),
      target: p.target,
      count: counts.get(n) ?? 1,
      phase: kind === 'placeholder' ? 'input' : n < split ? 'forward' : 'backward',
      placement: p.outputs[0] ?? '',
      seconds: p.seconds * (p.times ?? 1),
      communicationSeconds: (nodeSeconds(plan, n) - p.seconds) * (p.times ?? 1),
    };
  });
  return {
    nodes,
    edges: edgesOf(prepared, plan, stands, position),
    leftOut: graph.nodes.length - kept.reduce((sum, n) => sum + (counts.get(n) ?? 1), 0),
  };
}

/** The seconds of a node with its collectives and redistributions. */
function nodeSeconds(plan: Plan, n: number): number {
  const p = itemAt(plan.nodes, n);
  return (
    p.seconds + (p.internalSeconds ?? 0) + p.redistributions.reduce((sum, r) => sum + r.seconds, 0)
  );
}

/**
 * The first inputs, and the calls that make most of the step, largest first.
 *
 * @param counts how many nodes each representative represents
 */
function drawnNodes(
  { model: { graph, flow } }: Reopened['prepared'],
  plan: Plan,
  counts: ReadonlyMap<number, number>,
): { readonly inputs: readonly number[]; readonly largest: readonly number[] } {
  const candidates = [...counts.keys()].filter((n) => {
    const { kind, meta } = itemAt(graph.nodes, n);
    if (kind === 'placeholder') return meta.role === 'input';
    return kind === 'call' && itemAt(flow.alias, n) < 0 && nodeSeconds(plan, n) > 0;
  });
  const whole = (n: number): number => nodeSeconds(plan, n) * (counts.get(n) ?? 1);
  const total = candidates.reduce((sum, n) => sum + whole(n), 0);
  let reached = 0;
  const largest = candidates
    .filter((n) => itemAt(graph.nodes, n).kind === 'call')
    .sort((x, y) => whole(y) - whole(x) || x - y)
    .filter((n) => {
      const needed = reached < SHARE * total;
      reached += whole(n);
      return needed;
    })
    .slice(0, MOST_NODES);
  const inputs = candidates.filter((n) => itemAt(graph.nodes, n).kind === 'placeholder');
  return { inputs: inputs.slice(0, MOST_INPUTS), largest };
}

/**
 * The calls and inputs whose results a node reads in another placement, views taken back to what
 * they view.
 */
function movedNodes(
  { model: { graph, flow } }: Reopened['prepared'],
  plan: Plan,
  n: number,
): number[] {
  const aliasOf = (node: number): number => itemAt(flow.alias, node);
  return itemAt(plan.nodes, n).redistributions.flatMap(({ input }) => {
    let producer = itemAt(flow.values, itemAt(itemAt(flow.inputs, n), input)).node;
    for (let viewed = aliasOf(producer); viewed >= 0; viewed = aliasOf(producer))
      producer = itemAt(flow.values, viewed).node;
    const { kind, meta } = itemAt(graph.nodes, producer);
    return kind === 'call' || meta.role === 'input' ? [producer] : [];
  });
}

/**
 * For every node the one that is drawn in its place: itself, or its like in the first of several
 * equal stretches.
 */
function representatives({ model }: Reopened['prepared'], plan: Plan): Int32Array {
  const { graph } = model;
  const numbers = new Map<string, number>();
  const ids = Int32Array.from(graph.nodes, (node, n) => {
    const text = lineSignature(node, itemAt(plan.nodes, n));
    let id = numbers.get(text);
    if (id === undefined) numbers.set(text, (id = numbers.size));
    return id;
  });
  const stands = new Int32Array(graph.nodes.length);
  for (const { start, period, count } of findRepeats(ids, LEAST_STRETCH))
    for (let k = 0; k < period * count; k++)
      stands[start + k] = count > 1 ? start + (k % period) : start + k;
  return stands;
}

/** Edges between drawn nodes of one pass, through what is not drawn. */
function edgesOf(
  { model }: Reopened['prepared'],
  plan: Plan,
  stands: Int32Array,
  position: ReadonlyMap<number, number>,
): FoldedEdge[] {
  const { graph, flow } = model;
  const split = backwardStart(graph);
  /** Drawn nodes that a node's results come from. */
  const sources = new Map<number, readonly number[]>();
  const sourcesOf = (value: number): readonly number[] => {
    const producer = itemAt(flow.values, value).node;
    const drawn = itemAt(stands, producer);
    return position.has(drawn) ? [drawn] : (sources.get(producer) ?? []);
  };
  const edges = new Map<string, FoldedEdge>();
  graph.nodes.forEach((node, n) => {
    const own = position.get(itemAt(stands, n));
    const from = Array.from(itemAt(flow.inputs, n), sourcesOf);
    const viewed = itemAt(flow.alias, n);
    if (viewed >= 0) {
      sources.set(n, sourcesOf(viewed));
      return;
    }
    if (own === undefined) {
      sources.set(n, [...new Set(from.flat())].slice(0, MOST_SOURCES));
      return;
    }
    if (node.kind !== 'call') return;
    from.forEach((producers, input) => {
      const moves = itemAt(plan.nodes, n).redistributions.filter((r) => r.input === input);
      const [firstMove] = moves;
      const change =
        firstMove === undefined ? undefined : `${firstMove.from} -> ${moves.at(-1)?.to}`;
      const seconds = moves.reduce((sum, r) => sum + r.seconds, 0);
      for (const producer of producers) {
        const source = position.get(producer);
        if (source === undefined || source === own) continue;
        // Values that are saved for the backward pass would cross the whole drawing.
        if (n >= split && producer < split && itemAt(graph.nodes, producer).kind === 'call')
          continue;
        const key = `${source} ${own}`;
        const known = edges.get(key);
        if (known !== undefined && (known.change !== undefined || change === undefined)) continue;
        edges.set(key, {
          from: source,
          to: own,
          ...defined({ change }),
          seconds,
          next: source > own,
        });
      }
    });
  });
  return [...edges.values()].sort((a, b) => a.from - b.from || a.to - b.to);
}

/** A chain of views has one source; what gathers more than these is not followed further. */
const MOST_SOURCES = 4;
