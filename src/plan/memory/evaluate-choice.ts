import { peakOf } from '../../cost/memory/timeline.ts';
import { internalError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { recomputeInBackward } from '../../passes/checkpoint/recompute.ts';
import { costFunction } from '../../solver/problem/cost.ts';
import type { JointProblem } from './remat-problem.ts';
import type { Liveness } from './liveness.ts';
import { memoryOverTime } from '../record/memory-timeline.ts';
import type { Prepared } from '../prepare.ts';
import { placedLikeFirstRuns } from './remat-placement.ts';

/** Choices followed moment by moment: the plan that a choice is, with second runs in its graph, and where its memory peaks. */

/** A plan that is checked against the budget: its graph, its choice, its seconds and its true peak. */
export interface FittingPlan {
  readonly prepared: Prepared;
  readonly choice: Int32Array;
  readonly seconds: number;
  readonly peakBytes: number;
  /** Forward nodes that run again. */
  readonly again: readonly string[];
}

/** A plan, the node at its peak, and the largest copy on the way that is alive there. */
export interface Followed {
  readonly plan: FittingPlan;
  /** Node of the graph without second runs. */
  readonly moment: number;
  readonly copyBytes: number;
}

/**
 * @param prepared the graph without recomputation
 * @param reprepare prepares the same request for a graph with second runs
 */
export class Follower {
  constructor(
    private readonly prepared: Prepared,
    private readonly reprepare: (graph: Graph) => Prepared,
    private readonly live: Liveness,
  ) {}

  /** The plan that a choice of the joint problem is. */
  joint(joint: JointProblem, choice: Int32Array): Followed {
    const { prepared } = this;
    const { graph, flow } = prepared.model;
    const again = new Set(joint.again(choice));
    const full = prepared.compact.expand(joint.strategies(choice));
    if (again.size === 0) return this.plain(full);
    const names = new Set<string>();
    graph.nodes.slice(0, this.live.split).forEach((node, n) => {
      const own = flow.alias[n] >= 0 ? flow.values[flow.alias[n]].node : n;
      if (again.has(own)) names.add(node.name);
    });
    const rewritten = recomputeInBackward(graph, names);
    const after = this.reprepare(rewritten.graph);
    const placed = placedLikeFirstRuns(prepared.model, full, after.model, rewritten.originalOf);
    if (placed === undefined) throw internalError('second runs cannot be placed as the first');
    return this.followed(after, placed, [...new Set(rewritten.originalOf.values())]);
  }

  /** The plan of a choice of the graph without second runs. */
  plain(choice: Int32Array): Followed {
    return this.followed(this.prepared, choice, []);
  }

  private followed(prepared: Prepared, choice: Int32Array, again: readonly string[]): Followed {
    const memory = memoryOverTime(prepared.model, choice, prepared.table);
    const { peakBytes, step, live } = peakOf(memory.intervals);
    const copyBytes = live.reduce((most, b) => (b.kind === 'communication' ? Math.max(most, b.bytes) : most), 0);
    const seconds = costFunction(prepared.model.problem)(choice) / prepared.model.unitsPerSecond;
    const moment = this.nodeOf(prepared, memory.nodeOfMoment[step]);
    return { plan: { prepared, choice, seconds, peakBytes, again }, moment, copyBytes };
  }

  /** The node of the graph without second runs that stands for a node: the next one in program order. */
  private nodeOf(prepared: Prepared, node: number): number {
    const { byName, alias } = this.prepared.model.flow;
    for (let n = node; n < prepared.model.graph.nodes.length; n++) {
      const known = byName.get(prepared.model.graph.nodes[n].name);
      if (known !== undefined && alias[known] < 0) return known;
    }
    return this.prepared.model.graph.nodes.length - 1;
  }
}
