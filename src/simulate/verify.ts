import { ShardwrightError } from '../errors.ts';
import type { CollectiveKind } from '../cost/collectives.ts';
import type { Graph } from '../graph/types.ts';
import { eachOperand } from '../graph/value.ts';
import { flat, NDArray } from '../ndarray/array.ts';
import type { OperatorTable } from '../ops/table.ts';
import { lower, plannedGraph, type LowerablePlan } from '../plan/lower.ts';
import type { DeviceProgram, ProgramValue } from '../plan/lower/program.ts';
import { promisedCollectives, type PromisedCollective } from '../plan/lower/promised.ts';
import { runDevices, type ExecutedCollective } from './devices.ts';
import { evaluateGraph, type Value } from './evaluate.ts';
import { drawInputs } from './inputs.ts';
import { difference, layOut, putTogether } from './laid-out.ts';
import { isValues } from './values.ts';

/** A tensor that the devices get wrong, or a collective that differs from what the plan promises. */
export interface Mismatch {
  /** Node of the unsharded program, output, or `collectives`. */
  readonly where: string;
  readonly target?: string;
  readonly sharding?: string;
  /** Absent for collectives. */
  readonly relativeError?: number;
  readonly message: string;
}

export interface Verification {
  /** Devices of the mesh. */
  readonly devices: number;
  /** Tensors of the unsharded run that the devices' tensors were compared with: every one that a node makes. */
  readonly nodesCompared: number;
  readonly outputsCompared: number;
  /**
   * Largest error of any tensor: its largest difference over the largest value of it and of the floating-point tensors that
   * its call reads (at least 1e-6). Operands count because a sum of large terms that cancel is only as exact as they are:
   * the gradient of a bias before a batch norm is zero but for rounding.
   */
  readonly maxRelativeError: number;
  /** In program order, so that the first one is nearest to the fault. Empty when the plan is right. */
  readonly mismatches: readonly Mismatch[];
  /** Collectives that ran, by kind. */
  readonly collectives: Readonly<Record<string, number>>;
  /** Collectives that the plan promises, by kind. */
  readonly promised: Readonly<Record<string, number>>;
}

export interface VerifyOptions {
  /** Of the inputs and of random operators. Default 0. */
  readonly seed?: number;
  /** Relative error above which a tensor is wrong. Default 1e-9. */
  readonly tolerance?: number;
}

/**
 * Runs a plan with numbers: the program of every device on virtual devices, in float64, against the unsharded graph on
 * the same inputs. Every tensor, output and gradient is compared, and the collectives with those of the plan.
 *
 * @throws what `lower` throws; E_NO_KERNEL, E_VALUE when a call cannot be evaluated
 */
export function verify(
  graph: Graph,
  plan: LowerablePlan,
  table: OperatorTable,
  options: VerifyOptions = {},
): Verification {
  const planned = plannedGraph(graph, plan, table);
  const program = lower(planned, plan, table);
  return verifyProgram(planned, program, promisedCollectives(planned, plan, table), table, options);
}

/** The same for a program that is there already, with the collectives that it ought to run. */
export function verifyProgram(
  graph: Graph,
  program: DeviceProgram,
  promised: readonly PromisedCollective[],
  table: OperatorTable,
  options: VerifyOptions = {},
): Verification {
  return new Comparison(graph, program, promised, table, options).run();
}

/** Values below this count as zero but for rounding. */
const SMALL = 1e-6;
const MAX_ELEMENTS = 2 ** 27;

class Comparison {
  private readonly mismatches: Mismatch[] = [];
  private maxRelativeError = 0;
  private nodesCompared = 0;
  private readonly targets: ReadonlyMap<string, string>;
  /** By node: the value to which its errors are relative. */
  private readonly scales = new Map<string, number>();

  constructor(
    private readonly graph: Graph,
    private readonly program: DeviceProgram,
    private readonly promised: readonly PromisedCollective[],
    private readonly table: OperatorTable,
    private readonly options: VerifyOptions,
  ) {
    this.targets = new Map(graph.nodes.flatMap((n) => (n.kind === 'call' ? [[n.name, n.target]] : [])));
  }

  run(): Verification {
    const { graph, program, table } = this;
    const seed = this.options.seed ?? 0;
    const total = program.values.reduce((sum, v) => sum + v.shape.reduce((n, d) => n * d, 1), 0);
    if (total * program.mesh.size > MAX_ELEMENTS)
      throw new ShardwrightError(
        'E_LIMIT',
        `${program.mesh.size} devices would hold up to ${total * program.mesh.size} numbers, at most ${MAX_ELEMENTS} are simulated`,
        { hint: 'verify a smaller model (shrink does that) or a smaller mesh' },
      );
    const inputs = drawInputs(table, graph, seed);
    const names = graph.nodes.filter((node) => node.type.kind === 'tensor' || node.type.kind === 'tuple');
    const everything: Graph = {
      ...graph,
      outputs: names.map(({ name }, index) => ({ value: name, role: 'output', index })),
    };
    const reference = new Map<string, Value>();
    evaluateGraph(table, everything, inputs, { seed }).outputs.forEach((value, i) => reference.set(names[i].name, value)); // prettier-ignore

    this.measure(reference);
    const byLocal = new Map<string, ProgramValue[]>();
    for (const value of program.values) byLocal.set(value.local, [...(byLocal.get(value.local) ?? []), value]);
    const placeholders = graph.nodes.filter((node) => node.kind === 'placeholder');
    const laid = placeholders.map((node, i) => {
      const value = program.values.find((v) => v.name === node.name);
      return layOut(program.space, value?.sharding ?? program.space.replicated, inputs[i]);
    });
    const run = runDevices(table, program, laid, {
      seed,
      onValue: (name, byRank) => {
        for (const value of byLocal.get(name) ?? []) {
          this.compare(
            value.name,
            value.name,
            memberOf(reference.get(value.name), value.result),
            value.sharding,
            byRank,
          );
          this.nodesCompared++;
        }
      },
    });
    let outputsCompared = 0;
    graph.outputs.forEach((output, i) => {
      const [byRank, sharding] = [run.outputs[i], program.outputs[i]];
      if (output.value === null || byRank === null || sharding === null) return;
      this.compare(`output ${i}`, output.value, memberOf(reference.get(output.value), 0), sharding, byRank);
      outputsCompared++;
    });
    this.compareCollectives(run.collectives);
    return {
      devices: program.mesh.size,
      nodesCompared: this.nodesCompared,
      outputsCompared,
      maxRelativeError: this.maxRelativeError,
      mismatches: this.mismatches,
      collectives: countKinds(run.collectives),
      promised: countKinds(this.promised),
    };
  }

  /** Largest finite value of every node's results and of the floating-point tensors that it reads. */
  private measure(reference: ReadonlyMap<string, Value>): void {
    const own = new Map<string, number>();
    for (const node of this.graph.nodes) {
      const value = reference.get(node.name);
      const tensors = value instanceof NDArray ? [value] : isValues(value ?? null) ? (value as readonly Value[]) : [];
      let largest = 0;
      for (const x of tensors)
        if (x instanceof NDArray && x.kind === 'float') largest = Math.max(largest, largestFinite(x));
      own.set(node.name, largest);
      let scale = Math.max(SMALL, largest);
      eachOperand(node, (name) => (scale = Math.max(scale, own.get(name) ?? 0)));
      this.scales.set(node.name, scale);
    }
  }

  private compare(
    where: string,
    node: string,
    want: NDArray | undefined,
    sharding: number,
    byRank: readonly NDArray[],
  ): void {
    const { space } = this.program;
    const target = this.targets.get(node);
    const about = { where, ...(target === undefined ? {} : { target }), sharding: space.text(sharding) };
    if (want === undefined) {
      this.mismatches.push({ ...about, message: 'the unsharded run has no such tensor' });
      return;
    }
    const { data, disagreement } = putTogether(space, sharding, want.shape, byRank);
    let off = disagreement;
    flat(want).forEach((v, i) => (off = Math.max(off, difference(v, data[i]))));
    const relativeError = off / (this.scales.get(node) ?? 1);
    this.maxRelativeError = Math.max(this.maxRelativeError, relativeError);
    if (relativeError <= (this.options.tolerance ?? 1e-9)) return;
    const why = disagreement === off ? 'ranks that should hold the same differ' : 'differs from the unsharded run';
    this.mismatches.push({ ...about, relativeError, message: `${why} by ${off}` });
  }

  /** One by one by kind, group and bytes; the order in which independent ones run is free. */
  private compareCollectives(executed: readonly ExecutedCollective[]): void {
    const { names } = this.program.mesh;
    const key = (c: { kind: CollectiveKind; meshDims: readonly number[]; bytes: number | null }): string =>
      `${c.kind} over ${[...c.meshDims].sort((a, b) => a - b).map((m) => names[m]).join(',')}`; // prettier-ignore
    const open = new Map<string, { bytes: number | null }[]>();
    for (const c of this.promised) open.set(key(c), [...(open.get(key(c)) ?? []), c]);
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
        this.mismatches.push({ where: 'collectives', message: `the plan lists an ${what} of ${bytes ?? 'some'} bytes that did not run` }); // prettier-ignore
  }
}

function memberOf(value: Value | undefined, k: number): NDArray | undefined {
  if (value instanceof NDArray) return k === 0 ? value : undefined;
  const member: Value | undefined = Array.isArray(value) ? (value as readonly Value[])[k] : undefined;
  return member instanceof NDArray ? member : undefined;
}

function largestFinite(x: NDArray): number {
  let largest = 0;
  for (const v of flat(x)) if (Number.isFinite(v)) largest = Math.max(largest, Math.abs(v));
  return largest;
}

/** Kinds in alphabetical order. */
function countKinds(list: readonly { readonly kind: CollectiveKind }[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const kind of list.map((c) => c.kind).sort()) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}
