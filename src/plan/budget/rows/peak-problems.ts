/**
 * Makes the problems that a search under a peak memory budget solves, with or without
 * recomputation: rematerialization problems of the decisions that may fit, the rows of their
 * program points, and the problem that the bound is proven on.
 */
import { metaBytes } from '../../../ops/record/record.ts';
import { narrowPoints } from '../../../passes/checkpoint/policies.ts';
import { mayRecompute } from '../../../passes/checkpoint/repeatable.ts';
import { PreparedProblem } from '../../../solver/search/prepared.ts';
import type { LinearRow, Problem } from '../../../solver/types.ts';
import type { Prepared } from '../../prepare/prepared.ts';
import {
  decisionsOf,
  type RematDecisions,
  type RematProblem,
  rematProblem,
} from '../recompute/remat-problem.ts';
import { type Liveness, livenessOf } from './liveness.ts';
import { type LiveBytes, liveBytesAt, type RematDecision } from './peak-rows.ts';
import { type SharedStorages, sharedStorages, withStorages } from './shared-storages.ts';
import { Transients } from './transients.ts';

/** Results below this share of the budget are kept. */
const SMALL_SHARE = 2 ** -14;
const SAVED: readonly RematDecision[] = ['save'];

export class PeakProblems {
  readonly live: Liveness;
  private readonly decisions: RematDecisions;
  private readonly chosen: Uint8Array;
  private readonly transients: Transients;
  /**
   * The most bytes that one decision may hold at a program point in addition to the states of any
   * plan.
   */
  private readonly mostTransientBytes: number;
  private everything: RematProblem | undefined;
  private preparedProblem: PreparedProblem | undefined;
  private readonly amounts = new Map<number, readonly LiveBytes[]>();
  /**
   * Storages of several tensors, by point; and the points whose rows count them, see
   * `countStorages`.
   */
  private readonly storages = new Map<number, SharedStorages>();
  private readonly counted = new Map<number, SharedStorages>();

  constructor(
    private readonly prepared: Pick<Prepared, 'model' | 'left' | 'question'>,
    private readonly recompute: boolean,
  ) {
    const { model, question } = prepared;
    const { budgetBytes } = question;
    const { graph, flow, table } = model;
    this.live = livenessOf(model, table);
    this.transients = new Transients(model, this.live);
    this.mostTransientBytes = budgetBytes - this.transients.leastStates();
    this.chosen = new Uint8Array(graph.nodes.length);
    const canRecompute = (n: number): boolean =>
      graph.nodes[n].meta.save !== 'save' &&
      // A stack of all trips is not made again of one row.
      this.live.from[n] === n &&
      mayRecompute(graph.nodes[n].target, table.get(graph.nodes[n].target));
    const bytesOf = (value: number): number => metaBytes(flow.values[value].meta);
    this.decisions = recompute
      ? decisionsOf(model, this.live, bytesOf, budgetBytes * SMALL_SHARE, canRecompute)
      : new Map();
    for (const n of this.decisions.keys()) this.chosen[n] = 1;
  }

  /**
   * Every decision, those too large for this budget too: what is asked is how large a budget must
   * be.
   */
  all(): RematProblem {
    const {
      model,
      left: { compact },
    } = this.prepared;
    return this.storing(
      rematProblem(model, compact, this.decisions, 'as placed', this.live),
      compact.valuesOf,
    );
  }

  /** All that may fit, whatever copies hold. */
  get whole(): RematProblem {
    return (this.everything ??= this.limited(Infinity));
  }

  /** Preparation that the solves of `whole` share. */
  get shared(): PreparedProblem {
    return (this.preparedProblem ??= new PreparedProblem(this.whole.problem));
  }

  /** The decisions that may fit, with copies in flight of at most so many bytes. */
  limited(
    copyBytes: number,
    anchors?: Uint8Array,
    charge: 'as placed' | 'sure' = 'as placed',
  ): RematProblem {
    const {
      model,
      left: { compact },
    } = this.prepared;
    const decisions =
      anchors === undefined
        ? this.decisions
        : new Map([...this.decisions].map(([n, list]) => [n, anchors[n] === 1 ? SAVED : list]));
    const possible = this.transients.restrict(compact, {
      transientBytes: this.mostTransientBytes,
      copyBytes,
    });
    return this.storing(
      rematProblem(model, possible, decisions, charge, this.live),
      possible.valuesOf,
    );
  }

  /**
   * Tells whether several tensors keep one storage alive at a point whose row counts one of them.
   * Where nodes may be recomputed all of them count already.
   */
  sharesStorages(point: number): boolean {
    if (this.recompute || this.counted.has(point)) return false;
    let storages = this.storages.get(point);
    if (storages === undefined) {
      storages = sharedStorages(this.prepared.model, this.live, point);
      this.storages.set(point, storages);
    }
    return storages.size > 0;
  }

  /**
   * From now on the row of a point counts the largest of all tensors that keep a storage alive.
   * Problems grow by a variable a storage.
   */
  countStorages(point: number): void {
    if (!this.sharesStorages(point)) return;
    this.counted.set(point, this.storages.get(point)!);
    this.amounts.delete(point);
    this.everything = this.preparedProblem = undefined;
  }

  /**
   * The record that a proof has of the rows of some points: their nodes, and which rows count
   * storages.
   */
  named(points: readonly number[]): { readonly moments: string[]; readonly storages?: string[] } {
    const namesOf = (nodes: Iterable<number>): string[] =>
      Array.from(nodes, (n) => this.prepared.model.graph.nodes[n].name);
    const moments = namesOf(points);
    return this.counted.size === 0
      ? { moments }
      : { moments, storages: namesOf(this.counted.keys()) };
  }

  private storing(remat: RematProblem, valuesOf: (variable: number) => Int32Array): RematProblem {
    if (this.counted.size === 0) return remat;
    const { problem, rowAt, complete } = withStorages(remat.problem, valuesOf, this.counted);
    const own = remat.problem.domains.length;
    return {
      ...remat,
      problem,
      strategies: (choice) => remat.strategies(choice.subarray(0, own)),
      join: (compact, recomputed) => complete(remat.join(compact, recomputed)),
      storagesAt: rowAt,
      complete,
    };
  }

  /**
   * Rows at the full budget, and all that may fit, at the least that recomputed nodes cost: no plan
   * within the budget is below.
   */
  ofBound(points: readonly number[]): Problem {
    const sure = this.limited(Infinity, undefined, 'sure');
    return {
      ...sure.problem,
      rows: points.map((point) => this.row(sure, point, this.prepared.question.budgetBytes)),
    };
  }

  /** The bytes that are certainly alive at a program point. */
  row(remat: RematProblem, point: number, bound: number, anchors?: Uint8Array): LinearRow {
    const row = remat.row(
      this.amountsOf(point, anchors),
      `memory at ${this.prepared.model.graph.nodes[point].name}`,
      bound,
    );
    const storages = remat.storagesAt?.(point);
    if (storages === undefined) return row;
    const variables = Int32Array.from([...row.variables, ...storages.variables]);
    return { ...row, variables, amounts: [...row.amounts, ...storages.amounts] };
  }

  /** The node that holds most by itself; -1 without nodes. */
  heaviestNode(): number {
    return this.transients.heaviestNode(this.prepared.left.compact);
  }

  /**
   * Every so many narrow points of the forward pass, from the last; undefined where there are not
   * as many.
   */
  anchorsEvery(every: number): Uint8Array | undefined {
    const { graph, flow } = this.prepared.model;
    const points = narrowPoints(graph, this.prepared.model.table).reverse();
    if (points.length <= every) return undefined;
    const anchors = new Uint8Array(graph.nodes.length);
    points.forEach((name, i) => {
      const n = flow.byName.get(name) ?? -1;
      if (i % every === 0 && this.decisions.get(n)?.includes('save') === true) anchors[n] = 1;
    });
    return anchors;
  }

  /**
   * Moves each anchor before the forward values that its node reads to those values: a recomputed
   * node of such a value would coexist with all of its inputs, and a value that is kept before it
   * can be recomputed later. Undefined where nothing moves.
   */
  movedToReadsOf(point: number, anchors: Uint8Array): Uint8Array | undefined {
    const { flow } = this.prepared.model;
    const moved = anchors.slice();
    for (const value of flow.inputs[point]) {
      const { node } = flow.values[this.live.root[value]];
      if (anchors[node] === 1 || this.decisions.get(node)?.includes('save') !== true) continue;
      const before = anchors.lastIndexOf(1, node);
      if (before >= 0) moved[before] = 0;
      moved[node] = 1;
    }
    return moved.some((is, n) => is !== anchors[n]) ? moved : undefined;
  }

  private amountsOf(point: number, anchors?: Uint8Array): readonly LiveBytes[] {
    const { model } = this.prepared;
    if (anchors !== undefined)
      return liveBytesAt(model, this.live, point, { chosen: this.chosen, anchors });
    let known = this.amounts.get(point);
    if (known === undefined) {
      const chosen = this.recompute ? this.chosen : undefined;
      const elsewhere = this.counted.get(point);
      known = liveBytesAt(model, this.live, point, { chosen, elsewhere });
      this.amounts.set(point, known);
    }
    return known;
  }
}
