/**
 * Evaluates a choice of the rematerialization problem: its plan, with recomputed nodes in its
 * graph, its seconds and its true peak memory.
 */
import { peakOf } from '../../cost/memory/peak.ts';
import { internalError } from '../../errors.ts';
import { recomputeInBackward } from '../../passes/checkpoint/recompute.ts';
import { costFunction } from '../../solver/problem/cost.ts';
import { planMemoryTimeline } from '../choice/timeline.ts';
import type { Model } from '../model/model.ts';
import { onOtherProgram } from '../prepare/prepare.ts';
import type { Prepared } from '../prepare/prepared.ts';
import { placeRecomputedNodes } from './recompute/remat-placement.ts';
import type { RematProblem } from './recompute/remat-problem.ts';
import type { Liveness } from './rows/liveness.ts';

/**
 * A plan that is checked against the budget: its graph, its choice, its seconds and its true peak.
 */
export interface FittingPlan {
  readonly prepared: Prepared;
  readonly choice: Int32Array;
  readonly seconds: number;
  readonly peakBytes: number;
  /** Forward nodes that are recomputed. */
  readonly recomputed: readonly string[];
}

/** A plan, the node at its peak, and the largest copy in flight that is alive there. */
export interface EvaluatedChoice {
  readonly plan: FittingPlan;
  /** Node of the graph without recomputed nodes. */
  readonly point: number;
  readonly copyBytes: number;
}

/** @param prepared the graph without recomputation */
export class PeakEvaluator {
  constructor(
    private readonly prepared: Prepared,
    private readonly live: Liveness,
  ) {}

  /** The plan that a choice of the rematerialization problem is. */
  evaluate(remat: RematProblem, choice: Int32Array): EvaluatedChoice {
    const { prepared } = this;
    const { graph, flow } = prepared.model;
    const recomputed = new Set(remat.recomputed(choice));
    const full = prepared.left.compact.expand(remat.strategies(choice));
    if (recomputed.size === 0) return this.plain(full);
    const names = new Set<string>();
    graph.nodes.slice(0, this.live.split).forEach((node, n) => {
      const own = flow.alias[n] >= 0 ? flow.values[flow.alias[n]].node : n;
      if (recomputed.has(own)) names.add(node.name);
    });
    const rewritten = recomputeInBackward(graph, names);
    const after = onOtherProgram(prepared, rewritten.graph);
    const placed = placeRecomputedNodes(prepared.model, full, after.model, rewritten.originalOf);
    if (placed === undefined)
      throw internalError('recomputed nodes cannot be placed like the first runs');
    return this.evaluated(after, placed, [...new Set(rewritten.originalOf.values())]);
  }

  /** The plan of a choice of the graph without recomputed nodes. */
  plain(choice: Int32Array): EvaluatedChoice {
    return this.evaluated(this.prepared, choice, []);
  }

  private evaluated(
    prepared: Prepared,
    choice: Int32Array,
    recomputed: readonly string[],
  ): EvaluatedChoice {
    const memory = planMemoryTimeline(prepared.model, choice);
    const { peakBytes, step, live } = peakOf(memory.intervals);
    const copyBytes = live.reduce(
      (most, b) => (b.kind === 'communication' ? Math.max(most, b.bytes) : most),
      0,
    );
    const seconds = costFunction(prepared.model.problem)(choice) / prepared.model.unitsPerSecond;
    const point = this.nodeOf(prepared.model, memory.nodeOfPoint[step]);
    return { plan: { prepared, choice, seconds, peakBytes, recomputed }, point, copyBytes };
  }

  /**
   * The node of the graph without recomputed nodes that represents a node: the next one in program
   * order.
   */
  private nodeOf(model: Model, node: number): number {
    const { byName, alias } = this.prepared.model.flow;
    for (let n = node; n < model.graph.nodes.length; n++) {
      const known = byName.get(model.graph.nodes[n].name);
      if (known !== undefined && alias[known] < 0) return known;
    }
    return this.prepared.model.graph.nodes.length - 1;
  }
}
