/**
 * The types of the planning model: what every variable, edge and row of the integer program means
 * on the graph.
 */
import type { CallFacts } from '../../cost/compute.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import type { RedistributionCharges } from '../../cost/redistribution/charges.ts';
import type { Redistributor } from '../../cost/redistribution/redistribute.ts';
import type { Graph } from '../../graph/types.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { Problem } from '../../solver/types.ts';
import type { Dataflow } from '../../strategy/dataflow.ts';
import type { StrategyTable } from '../../strategy/nodes.ts';
import type { StatedDims } from '../request/request.ts';
import type { BuildInput } from './input.ts';

/**
 * The planning model: a graph on a mesh as a choice problem, together with what each variable
 * means.
 *
 * Variables and the integer program:
 *
 *  - x_n, one per node n that decides something: its strategy (a placeholder's strategy is its
 *    placement);
 *  - z_{v,f}, one per value v that several uses of one phase f need: the pair (o, q) of the
 *    placement o that the producer leaves and of one shared copy q (or none). The copy is made
 *    once, however many uses take it. Where copies may live for a step, a value that both passes
 *    read has one such variable z_v, whose values also say which passes have the copy, and whether
 *    it stays from one to the other (`CopyLife`);
 *  - y_k, one per user output k that no tangent speaks for: the placement in which it is returned.
 *
 *  minimise   sum_n compute_n(x_n) + sum_z R(o, q) m_z + sum_uses min(R(o, w), R(q, w))
 *  subject to the owned part o of z equals the producer's output placement;
 *             sum_parameters stateBytes(placement) <= budget (`memory` row)
 *
 * m_z is how often the copy is made: once, or twice where each pass makes its own. w is the
 * placement that a use demands: an input of the consumer's strategy; the parameter's own
 * placement for its gradient; the buffer's for a mutation; the tangent's for the output that it
 * belongs to. R is the price of the cheapest redistribution, as executed (under a literal preset
 * what that preset charges, see `RedistributionCharges`). Every term has two variables at most, so
 * the problem is pairwise.
 */
export interface Model {
  readonly graph: Graph;
  /** The operators of the graph: those given, and what opening bodies made of control flow. */
  readonly table: BuildInput['table'];
  /** How often each node runs; absent for a straight-line program. */
  readonly opened?: BuildInput['opened'];
  readonly flow: Dataflow;
  readonly strategies: StrategyTable;
  readonly space: ShardingSpace;
  readonly cluster: Cluster;
  /** The charges of redistributions in the objective. */
  readonly charges: RedistributionCharges;
  /** The steps that they take. */
  readonly redistributor: Redistributor;
  readonly collectives: BuildInput['collectives'];
  readonly problem: Problem;
  /** Costs in the problem are seconds times this, rounded. */
  readonly unitsPerSecond: number;
  /** Every cost is a multiple of so many units. */
  readonly quantum: number;
  /** No choice's seconds differ from its units by more. */
  readonly roundingSeconds: number;
  /** Prices above it were forbidden; absent: none were. */
  readonly ceilingSeconds?: number;
  /** The meaning of each variable and each edge of the problem. */
  readonly variables: readonly Variable[];
  readonly edges: readonly ModelEdge[];
  /** Variable of each node, -1 for a node that is another name of a value. */
  readonly nodeVariable: Int32Array;
  readonly uses: readonly Use[];
  readonly copies: readonly CopyVariable[];
  /** Seconds of each strategy, per node content. */
  readonly nodeSeconds: ReadonlyMap<number, NodeSeconds>;
  /**
   * Facts that the program states about calls in addition to operator and sizes, by the name of
   * their node; absent: none.
   */
  readonly facts?: ReadonlyMap<string, CallFacts>;
  /** State bytes of each parameter's placements, by node index. */
  readonly stateBytes: ReadonlyMap<number, StateBytes>;
  /** Passes of a step, of which the last reduces gradients; absent: one. */
  readonly accumulate?: number;
  /** The batch and sequence dims of inputs that the user states, by name. */
  readonly statedDims?: StatedDims;
}

export type Variable =
  | { readonly kind: 'node'; readonly node: number }
  | { readonly kind: 'copy'; readonly copy: number }
  | { readonly kind: 'output'; readonly output: number; readonly specs: Int32Array };

/**
 * An edge from a producer to its copy, from a producer or a copy to a use, or between two names of
 * one parameter.
 */
export type ModelEdge =
  | { readonly kind: 'copy'; readonly copy: number }
  | { readonly kind: 'use'; readonly use: number }
  | { readonly kind: 'tie' };

/**
 * One use of a value: who demands it, in which placement for each value of the demanding variable.
 */
export interface Use {
  readonly value: number;
  readonly variable: number;
  /** Consumer node and input position, or the graph output. */
  readonly at:
    | { readonly kind: 'input'; readonly node: number; readonly input: number }
    | { readonly kind: 'output'; readonly output: number }
    /** A value that a body hands to its next trip: it must end in the placement of this carry. */
    | { readonly kind: 'carry'; readonly node: number };
  readonly phase: string;
  /** Scope of `opened.loops` in which the value is moved for this use; 0 is the program. */
  readonly scope: number;
  /** How often it is moved in one run of the program; of what moves once in four runs, 1/4. */
  readonly times: number;
  /** Distinct demanded shardings, and for each value of the variable the position of its demand. */
  readonly demands: SpecList;
  /** True if the value is used where it lies: a gradient is cast before it is summed. */
  readonly stays?: true;
  /** Copy that serves this use, -1 where the value has none in this phase. */
  readonly copy: number;
}

/**
 * A list of distinct sharding ids with the map from a variable's values to positions in it. Shared
 * by content.
 */
export interface SpecList {
  readonly specs: Int32Array;
  /** Interned id of `specs`. */
  readonly list: number;
  /** Position in `specs` for each value of the variable. */
  readonly map: Int32Array;
  /** Interned id of `map`; -1 when it is the identity. */
  readonly mapId: number;
}

export interface CopyVariable {
  readonly value: number;
  readonly variable: number;
  /** For each value of the variable: the producer's placement, and the copy's (-1: no copy). */
  readonly owned: Int32Array;
  readonly copy: Int32Array;
  /**
   * For each value of the variable of a tensor that both passes read: the life of the copy
   * (`CopyLife`). Absent where one pass alone reads it.
   */
  readonly life?: Uint8Array;
}

/**
 * The passes that have a shared copy: bits, so that `FORWARD | BACKWARD` is a copy which each pass
 * makes for itself. `KEPT` is made once and stays from the forward to the backward pass.
 */
export const CopyLife = { FORWARD: 1, BACKWARD: 2, EACH: 3, KEPT: 7 } as const;

/** The bit of a pass in `CopyLife`. */
export function passBit(phase: string): number {
  return phase === 'forward' ? CopyLife.FORWARD : CopyLife.BACKWARD;
}

/** The placement of the copy that a pass may take under a value of the variable; -1: none. */
export function copyIn(
  { copy, life }: Pick<CopyVariable, 'copy' | 'life'>,
  z: number,
  phase: string,
): number {
  return life === undefined || copy[z] < 0 || (life[z] & passBit(phase)) !== 0 ? copy[z] : -1;
}

/** Tells whether a copy stays from the forward to the backward pass. */
export function isKeptCopy(
  { copy, life }: Pick<CopyVariable, 'copy' | 'life'>,
  z: number,
): boolean {
  return copy[z] >= 0 && life?.[z] === CopyLife.KEPT;
}

/** Seconds of each strategy of a node. */
export interface NodeSeconds {
  /** Roofline time at the local sizes. */
  readonly compute: Float64Array;
  /** Collectives inside the rule itself, such as the sums of a vocabulary-parallel loss. */
  readonly internal: Float64Array;
}

export interface StateBytes {
  /** Bytes per local element of parameter, gradient and optimizer state. */
  readonly parameter: number;
  readonly gradient: number;
  readonly optimizer: number;
  /** Local elements for each placement of the parameter's domain. */
  readonly localElements: Float64Array;
}
