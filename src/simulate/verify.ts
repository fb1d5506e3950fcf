/**
 * Runs the per-device program of a plan on virtual devices in float64 and compares every tensor
 * with the unsharded run.
 */

import { checkKinds } from '../arguments.ts';
import { defined } from '../defined.ts';
import { checkOptions, ShardwrightError } from '../errors.ts';
import type { Graph, Node } from '../graph/types.ts';
import { eachOperand } from '../graph/value.ts';
import { lower, type LowerablePlan, plannedProgram } from '../lower/lower.ts';
import type { BroughtValue, DeviceProgram, ProgramValue } from '../lower/program/program.ts';
import { type PromisedCollective, promisedCollectives } from '../lower/promised.ts';
import type { CollectiveKind } from '../mesh/collective-kinds.ts';
import { Partial } from '../mesh/placements/partials/partial.ts';
import type { ShardingSpace } from '../mesh/sharding/space.ts';
import { flat, fromFlat, NDArray } from '../ndarray/array.ts';
import { numbersOf } from '../ndarray/complex.ts';
import { liesIn } from '../ndarray/views.ts';
import { elements } from '../ops/record/record.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { tableOf } from '../plan/request/check-call.ts';
import { evaluateGraph, type Value } from './evaluate.ts';
import { drawInputs } from './inputs.ts';
import { isControl } from './interpreter/control.ts';
import { isValues } from './interpreter/values.ts';
import { type DeviceRun, type ExecutedCollective, runDevices } from './ranks/devices.ts';
import { difference, layOut, putTogether } from './ranks/laid-out.ts';
import { pendingDims, scatter } from './ranks/shards.ts';

/**
 * A tensor that the devices get wrong, or a collective that differs from what the plan promises.
 */
export interface Mismatch {
  /** Node of the unsharded program, output, or `collectives`. */
  readonly where: string;
  readonly target?: string;
  readonly sharding?: string;
  /** Absent for collectives. */
  readonly relativeError?: number;
  readonly message: string;
}

/**
 * The result of a run on virtual devices: the largest relative error, mismatches, and the
 * collectives that ran.
 */
export interface Verification {
  /** Devices of the mesh. */
  readonly devices: number;
  /**
   * Tensors of the unsharded run that the devices' tensors were compared with: every one that a
   * node makes.
   */
  readonly nodesCompared: number;
  readonly outputsCompared: number;
  /**
   * Largest error of any tensor: its largest difference over the largest value of it and of the
   * floating-point tensors that its call reads (at least 1e-5). Operands count because a sum of
   * large terms that cancel is only as exact as they are: the gradient of a bias before a batch
   * norm is zero but for rounding.
   */
  readonly maxRelativeError: number;
  /**
   * In program order, so that the first one is nearest to the fault. Empty when the plan is right.
   */
  readonly mismatches: readonly Mismatch[];
  /** Collectives that ran, by kind. */
  readonly collectives: Readonly<Record<string, number>>;
  /** Collectives that the plan promises, by kind. */
  readonly promised: Readonly<Record<string, number>>;
  /**
   * Operators that nobody knows, which ran whole on every device as a function that mixes all that
   * they are given.
   */
  readonly standIns: readonly string[];
  /**
   * Values with elements that were not compared. They are not a number on the devices, because
   * addends of both signs became infinite, as those of a pending sum that is divided by 0; or
   * infinite with the other sign, because they were divided by a sum of zeros of both signs.
   */
  readonly notCompared: readonly string[];
}

/** Operators, seed and tolerance of a verification. */
export interface VerifyOptions {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
  /** Seed of the inputs and of random operators. Default 0. */
  readonly seed?: number;
  /** Relative error above which a tensor is wrong. Default 1e-9. */
  readonly tolerance?: number;
  /**
   * The treatment of operators without a record; `verify` reads it from the plan.
   */
  readonly unknown?: 'refuse' | 'replicate';
  /**
   * A padded vocabulary: tables have `rows`, and token ids are drawn below `stated`. Absent:
   * below the rows of the tables.
   */
  readonly vocabulary?: { readonly rows: number; readonly stated: number };
}

const OPTIONS: Readonly<Record<keyof VerifyOptions, true>> = {
  table: true,
  seed: true,
  tolerance: true,
  unknown: true,
  vocabulary: true,
};

/**
 * Runs a plan with numbers: the program of every device on virtual devices, in float64, against the
 * unsharded graph on the same inputs. Every tensor, output and gradient is compared, and the
 * collectives with those of the plan.
 *
 * @throws what `lower` throws; E_NO_KERNEL, E_VALUE when a call cannot be evaluated
 *
 * @example
 * ```ts
 * import { input, parameter, shard, trace, verify } from 'shardwright';
 *
 * const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
 *   x: input([64, 128]),
 *   w1: parameter([128, 512]),
 *   w2: parameter([512, 128]),
 * });
 * const result = await shard(graph, {
 *   mesh: 'tp=4',
 *   cluster: 'dgx-h100',
 *   pins: [
 *     { node: 'w1', spec: 'S(1)' },
 *     { node: 'w2', spec: 'S(0)' },
 *   ],
 * });
 * if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
 * const { mismatches, collectives } = verify(result.graph, result.plan);
 * console.log(mismatches.length, collectives); // 0 { reduce_scatter: 1 }
 * ```
 */
export function verify(
  graph: Graph,
  plan: LowerablePlan,
  options: VerifyOptions = {},
): Verification {
  checkKinds('verify', { graph: [graph, 'graph'], plan: [plan, 'plan'] });
  checkOptions('verify', options, OPTIONS);
  const table = tableOf('verify', options.table);
  const planned = plannedProgram(graph, plan, table);
  const program = lower(planned.program, plan, { table });
  const { unknown } = plan.request;
  return verifyProgram(planned.program, program, promisedCollectives(planned, plan, table), table, {
    ...options,
    unknown,
  });
}

/**
 * The same for a program that is there already.
 *
 * @param promised the collectives that it ought to run; absent: any
 */
export function verifyProgram(
  graph: Graph,
  program: DeviceProgram,
  promised: readonly PromisedCollective[] | undefined,
  table: OperatorTable,
  options: Omit<VerifyOptions, 'table'> = {},
): Verification {
  return new Comparison(graph, program, promised, table, options).run();
}

/** Values below this count as zero but for rounding. */
const SMALL = 1e-5;
/**
 * Numbers of all values on all devices together; what is alive at once is about a quarter of them
 * (2 layers of Llama on 8 devices: 0.5 GB).
 */
const MAX_ELEMENTS = 2 ** 28;

/** A value of the sharded program, and what it must be. */
interface Compared {
  readonly where: string;
  /** Node of the unsharded program with its run. */
  readonly key: string;
  readonly node: string;
  readonly want: NDArray | undefined;
}

class Comparison {
  private readonly mismatches: Mismatch[] = [];
  private maxRelativeError = 0;
  private nodesCompared = 0;
  private readonly targets: ReadonlyMap<string, string>;
  private readonly seed: number;
  private readonly standIns: boolean;
  /** Values of the unsharded run, by run of a body and node. */
  private readonly reference = new Map<string, Value>();
  private kept = 0;
  private readonly largest = new Map<string, number>();
  /** The value to which errors are relative. */
  private readonly scales = new Map<string, number>();
  /** The operands of a call, by run of a body and node. */
  private readonly operands = new Map<string, readonly string[]>();
  /** Values that `notCompared` names, and those that read one of them. */
  private readonly lost = new Set<string>();
  /**
   * Values with a zero of the other sign than on one device, as sums of zeros of both signs have
   * it: what is divided by it is infinite with the other sign.
   */
  private readonly turned = new Set<string>();
  /** By call: the largest scale in its bodies. */
  private readonly within = new Map<string, number>();

  constructor(
    private readonly graph: Graph,
    private readonly program: DeviceProgram,
    private readonly promised: readonly PromisedCollective[] | undefined,
    private readonly table: OperatorTable,
    private readonly options: Omit<VerifyOptions, 'table'>,
  ) {
    this.targets = targetsOf(graph);
    this.seed = options.seed ?? 0;
    this.standIns = options.unknown === 'replicate';
  }

  run(): Verification {
    const { graph, program, table } = this;
    this.checkSize();
    const inputs = drawInputs(table, graph, this.seed, this.options.vocabulary);
    // Devices run every call of the program, those without readers too: recomputation leaves some
    // first ones without.
    const onValue = (run: string, node: Node, value: Value): void => this.measure(run, node, value);
    evaluateGraph(table, graph, inputs, {
      seed: this.seed,
      standIns: this.standIns,
      unused: true,
      onValue,
    });
    const run = this.runProgram(inputs);
    const outputsCompared = this.compareOutputs(run);
    const promised = this.promisedIn(run);
    if (this.promised !== undefined) this.compareCollectives(run.collectives, promised);
    return {
      devices: program.mesh.size,
      nodesCompared: this.nodesCompared,
      outputsCompared,
      maxRelativeError: this.maxRelativeError,
      mismatches: this.mismatches,
      collectives: countKinds(run.collectives),
      promised: countKinds(promised),
      standIns: this.standIns ? this.strangers() : [],
      notCompared: [...this.lost],
    };
  }

  private checkSize(): void {
    const { values, mesh, space } = this.program;
    const local = (v: ProgramValue): number => elements(space.localShape(v.sharding, v.shape));
    const total = values.reduce((sum, v) => sum + local(v), 0);
    if (total * mesh.size > MAX_ELEMENTS)
      throw new ShardwrightError(
        'E_LIMIT',
        `${mesh.size} devices would hold up to ${total * mesh.size} numbers, ` +
          `at most ${MAX_ELEMENTS} are simulated`,
        { hint: 'verify a smaller model (shrink does that) or a smaller mesh' },
      );
  }

  /** Runs the program on all devices, and compares every value of it. */
  private runProgram(inputs: readonly NDArray[]): DeviceRun {
    const { graph, program, seed } = this;
    const brought = new Map((program.brought ?? []).map((one) => [one.local, one]));
    const byLocal = new Map<string, ProgramValue[]>();
    for (const value of program.values)
      byLocal.set(value.local, [...(byLocal.get(value.local) ?? []), value]);
    const placeholders = graph.nodes.filter((node) => node.kind === 'placeholder');
    const laid = placeholders.map((node, i) => {
      const value = program.values.find((v) => v.name === node.name && !v.inBody);
      const sharding = value?.sharding ?? program.space.replicated;
      return laidOut(program.space, sharding, inputs[i], seed + i);
    });
    return runDevices(this.table, program, laid, {
      seed,
      standIns: this.standIns,
      onValue: (name, byRank, path) => {
        this.checkOrder(brought.get(name), byRank, path);
        for (const { name: node, result, sharding } of byLocal.get(name) ?? []) {
          const key = `${path}${node}`;
          this.compare(
            { where: key, key, node, want: memberOf(this.reference.get(key), result) },
            sharding,
            byRank,
          );
          this.nodesCompared++;
        }
      },
    });
  }

  /** Kernels read memory as the captured program lays it, so a moved value must lie as there. */
  private checkOrder(
    brought: BroughtValue | undefined,
    byRank: readonly NDArray[],
    path: string,
  ): void {
    if (brought === undefined) return;
    const { local, name, order } = brought;
    const rank = byRank.findIndex((x) => !liesIn(x, order));
    if (rank < 0) return;
    const { strides } = byRank[rank];
    this.mismatches.push({
      where: `${path}${name}`,
      ...defined({ target: this.targets.get(name) }),
      message:
        `${local} lies in another memory order than in the unsharded run: strides ` +
        `[${strides.join(', ')}] on rank ${rank}, expected the dims [${order.join(', ')}] from ` +
        'the slowest to the fastest',
    });
  }

  /** The number of outputs that were compared. */
  private compareOutputs({ outputs }: DeviceRun): number {
    let compared = 0;
    this.graph.outputs.forEach(({ value }, i) => {
      const [byRank, sharding] = [outputs[i], this.program.outputs[i]];
      if (value === null || byRank === null || sharding === null) return;
      const want = memberOf(this.reference.get(value), 0);
      this.compare({ where: `output ${i}`, key: value, node: value, want }, sharding, byRank);
      compared++;
    });
    return compared;
  }

  /** Operators of the program without a record, sorted. */
  private strangers(): string[] {
    const isStranger = (t: string): boolean =>
      t !== 'operator.getitem' && !isControl(t) && this.table.get(t) === undefined;
    return [...new Set(this.targets.values())].filter(isStranger).sort();
  }

  /**
   * Keeps a value of the unsharded run, and notes its scale: the largest finite value of it and of
   * the floating-point tensors that its call reads; of a call with bodies, of everything in them.
   */
  private measure(run: string, node: Node, value: Value): void {
    const key = `${run}${node.name}`;
    this.reference.set(key, value);
    const tensors = isValues(value) ? value : [value];
    let own = 0;
    for (const x of tensors) {
      if (!(x instanceof NDArray)) continue;
      this.kept += x.size;
      if (x.kind === 'float' || x.kind === 'complex') own = Math.max(own, largestFinite(x));
    }
    if (this.kept > MAX_ELEMENTS)
      throw new ShardwrightError(
        'E_LIMIT',
        `the unsharded run makes more than ${MAX_ELEMENTS} numbers`,
        {
          hint: 'verify a smaller model (shrink does that), or loops of fewer trips',
        },
      );
    own = Math.max(own, this.within.get(key) ?? 0);
    this.largest.set(key, own);
    let scale = Math.max(SMALL, own);
    const operands: string[] = [];
    eachOperand(node, (name) => operands.push(`${run}${name}`));
    for (const operand of operands) scale = Math.max(scale, this.largest.get(operand) ?? 0);
    this.operands.set(key, operands);
    this.scales.set(key, scale);
    // The call around: its path is that of the run up to the trip.
    const around = run.slice(0, run.lastIndexOf('['));
    if (run !== '') this.within.set(around, Math.max(scale, this.within.get(around) ?? 0));
  }

  /** The collectives that the plan promises for the runs that its bodies had. */
  private promisedIn({ runs }: DeviceRun): PromisedCollective[] {
    const times = new Map<number | string, number>([[0, 1]]);
    for (const { bodies } of this.program.calls.values())
      for (const [name, { scope, path }] of bodies) times.set(path ?? scope, runs.get(name) ?? 0);
    return (this.promised ?? []).flatMap((one) => {
      const where = one.body === undefined ? one.scopes : [one.body];
      const count = where.reduce<number>((sum, scope) => sum + (times.get(scope) ?? 0), 0);
      return new Array<PromisedCollective>(count).fill(one);
    });
  }

  private compare(
    { where, key, node, want }: Compared,
    sharding: number,
    byRank: readonly NDArray[],
  ): void {
    const { space } = this.program;
    const target = this.targets.get(node);
    const about = {
      where,
      ...defined({ target }),
      sharding: space.text(sharding),
    };
    if (want === undefined) {
      this.mismatches.push({ ...about, message: 'the unsharded run has no such tensor' });
      return;
    }
    const { data, disagreement } = putTogether(space, sharding, want.shape, byRank);
    const read = [key, ...(this.operands.get(key) ?? [])];
    const reads = read.some((name) => this.lost.has(name));
    const readsTurned = read.some((name) => this.turned.has(name));
    const isSum = space.get(sharding).placements.some((p) => p instanceof Partial && p.linear);
    let off = disagreement;
    numbersOf(want).forEach((v, i) => {
      if (Number.isNaN(data[i]) && (reads || (isSum && Math.abs(v) === Infinity))) {
        if (!Number.isNaN(v)) this.lost.add(key);
      } else if (readsTurned && v === -data[i] && Math.abs(v) === Infinity) this.lost.add(key);
      else off = Math.max(off, difference(v, data[i]));
      if (v === 0 && Object.is(v, -data[i])) this.turned.add(key);
    });
    const relativeError = off / (this.scales.get(key) ?? 1);
    this.maxRelativeError = Math.max(this.maxRelativeError, relativeError);
    if (relativeError <= (this.options.tolerance ?? 1e-9)) return;
    const why =
      disagreement === off
        ? 'ranks that should hold the same differ'
        : 'differs from the unsharded run';
    this.mismatches.push({ ...about, relativeError, message: `${why} by ${off}` });
  }

  /** One by one by kind, group and bytes; the order in which independent ones run is free. */
  private compareCollectives(
    executed: readonly ExecutedCollective[],
    promised: readonly PromisedCollective[],
  ): void {
    const { names } = this.program.mesh;
    const key = (c: {
      kind: CollectiveKind;
      meshDims: readonly number[];
      bytes: number | null;
    }): string =>
      `${c.kind} over ${[...c.meshDims]
        .sort((a, b) => a - b)
        .map((m) => names[m])
        .join(',')}`;
    const open = new Map<string, { bytes: number | null }[]>();
    for (const c of promised) open.set(key(c), [...(open.get(key(c)) ?? []), c]);
    for (const c of executed) {
      const list = open.get(key(c)) ?? [];
      const exact = list.findIndex((p) => p.bytes === c.bytes);
      const at = exact >= 0 ? exact : list.findIndex((p) => p.bytes === null);
      if (at >= 0) list.splice(at, 1);
      else
        this.mismatches.push({
          where: 'collectives',
          message: `${c.node} is an ${key(c)} of ${c.bytes} bytes that the plan does not list`,
        });
    }
    for (const [what, list] of open)
      for (const { bytes } of list)
        this.mismatches.push({
          where: 'collectives',
          message: `the plan lists an ${what} of ${bytes ?? 'some'} bytes that did not run`,
        });
  }
}

/** The part of an array on each rank; of a pending sum, addends of it. */
function laidOut(space: ShardingSpace, sharding: number, x: NDArray, seed: number): NDArray[] {
  if (pendingDims(space.get(sharding), space).length === 0) return layOut(space, sharding, x);
  const { tiles } = scatter(space, sharding, x.shape, Float64Array.from(flat(x)), seed + 1);
  return tiles.map(({ shape, data }) => fromFlat(shape, data, x.dtype));
}

/** Operators by node, those of bodies included; the first where bodies use a name again. */
function targetsOf(graph: Graph, into = new Map<string, string>()): Map<string, string> {
  for (const { name, kind, target } of graph.nodes)
    if (kind === 'call' && !into.has(name)) into.set(name, target);
  for (const body of Object.values(graph.subgraphs)) targetsOf(body, into);
  return into;
}

function memberOf(value: Value | undefined, k: number): NDArray | undefined {
  if (value instanceof NDArray) return k === 0 ? value : undefined;
  const member: Value | undefined = Array.isArray(value)
    ? (value as readonly Value[])[k]
    : undefined;
  return member instanceof NDArray ? member : undefined;
}

function largestFinite(x: NDArray): number {
  let largest = 0;
  for (const v of numbersOf(x)) if (Number.isFinite(v)) largest = Math.max(largest, Math.abs(v));
  return largest;
}

/** Kinds in alphabetical order. */
function countKinds(list: readonly { readonly kind: CollectiveKind }[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const kind of list.map((c) => c.kind).sort()) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}
