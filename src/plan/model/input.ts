/**
 * The input of the model builder: graph, mesh, strategies, prices and options of one planning
 * problem.
 */
import type { CollectiveModel } from '../../cost/collective-model.ts';
import type { CallFacts } from '../../cost/compute.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import type { Gradients, Optimizer } from '../../cost/memory/state-bytes.ts';
import type { RedistributionCharges } from '../../cost/redistribution/charges.ts';
import type { Graph } from '../../graph/types.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { OpenedGraph } from '../../passes/plannable/opened-graph.ts';
import type { Dataflow } from '../../strategy/dataflow.ts';
import type { StrategyTable } from '../../strategy/nodes.ts';
import type { StatedDims } from '../request/request.ts';

/** Everything that the choice problem of a graph is built from. */
export interface BuildInput {
  readonly graph: Graph;
  /** The operators of the graph. */
  readonly table: OperatorTable;
  /**
   * The number of runs of each node, the values that bodies hand to their next trip, and the places
   * of bodies; absent for a straight-line program.
   */
  readonly opened?: Pick<OpenedGraph, 'loops' | 'carries' | 'origins' | 'regions' | 'notes'>;
  readonly flow: Dataflow;
  readonly strategies: StrategyTable;
  readonly space: ShardingSpace;
  readonly cluster: Cluster;
  readonly collectives: CollectiveModel;
  readonly charges: RedistributionCharges;
  readonly optimizer: Optimizer | undefined;
  readonly gradients: Gradients | undefined;
  /** Nodes that take what they read where it is made (`gradientCasts`); absent: none. */
  readonly inPlace?: ReadonlySet<number>;
  /**
   * Facts that the program states about calls in addition to operator and sizes, by the name of
   * their node; absent: none.
   */
  readonly facts?: ReadonlyMap<string, CallFacts>;
  readonly sharing: boolean;
  /** Passes of a step, of which the last reduces gradients; absent: one. */
  readonly accumulate?: number;
  /** True if a shared copy may stay from the forward to the backward pass. */
  readonly keepCopies: boolean;
  /**
   * Most stretches of neighbouring mesh dims in which a placement may differ, see `runsOf`; absent:
   * any number.
   */
  readonly mostRuns?: number;
  /** Bytes per device that parameters, gradients, optimizer state and buffers may take. */
  readonly budgetBytes: number;
  /**
   * A price above it is forbidden, because a plan without it is known to cost less in all; absent:
   * none is.
   */
  readonly ceilingSeconds?: number;
  /**
   * Shardings that outputs of the program have by its types, by position: a pending sum may leave
   * so.
   */
  readonly typedOutputs?: ReadonlyMap<number, number>;
  /** Batch and sequence dims of inputs as the user states them. */
  readonly statedDims?: StatedDims;
}
