/**
 * Lists the calls of a graph with the values that they read and write; a view is the value that it
 * looks at.
 */

import type { CallTraffic } from '../../cost/compute.ts';
import { DTYPE_BYTES, type Graph, type Node } from '../../graph/types.ts';
import { eachOperand } from '../../graph/value.ts';
import { tensorInputs } from '../../ops/record/context.ts';
import { elements, type TensorMeta } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { callContext, tensorMeta, tensorMetas } from '../call-context.ts';
import type { LoopForm } from './loop-form.ts';
import { loopForm, ownTraffic } from './loop-forms.ts';
import { isXlaProgram } from './xla-loops.ts';

/** The bodies of a program that stand in line, as an opened graph has them. */
export interface InLine {
  readonly loops: {
    /** The body that a node runs in. */
    readonly scopeOf: (name: string) => number;
    /** True for a node that only places a value. */
    readonly isMark: (name: string) => boolean;
  };
  /** Values that a body returns to its next trip. */
  readonly carries: readonly { readonly value: string }[];
}

/** A tensor in memory, or what would be one. */
interface Value {
  /** Position of the call that makes it; -1 of inputs. */
  readonly call: number;
  readonly bytes: number;
  readonly count: number;
}

/** A read of a value by a call, through views. */
export interface Use {
  readonly value: number;
  /** Share of the value that the views show, at most 1. */
  readonly part: number;
  /** Bytes of what the call is given. */
  readonly bytes: number;
}

/** A call that is not a view. */
export interface Call {
  readonly node: Node;
  /** Position of the node in the graph. */
  readonly at: number;
  /** Undefined where a library runs the call. */
  readonly form: LoopForm | undefined;
  /** The traffic of a library call where it differs from that of the call alone. */
  readonly own: CallTraffic | undefined;
  /** The part of the program that is compiled together: a phase, and a body of its loops. */
  readonly phase: string;
  /** By tensor input, in the order of the schema. */
  readonly uses: readonly Use[];
  /** By result; -1 for what is not a tensor. */
  readonly results: readonly number[];
}

export interface CallGraph {
  readonly calls: readonly Call[];
  readonly values: readonly Value[];
  /** Values that the program returns, or a body to its next trip. */
  readonly returned: ReadonlySet<number>;
  /** True for a program of JAX, of which XLA makes one module. */
  readonly isXla: boolean;
  /**
   * Values that XLA computes of nothing in memory: they are part of every kernel that reads them.
   */
  readonly constants: ReadonlySet<number>;
}

/**
 * Calls of a graph in its order.
 *
 * @param inLine bodies of an opened graph; absent: there are none
 */
export function callGraph(graph: Graph, table: OperatorTable, inLine?: InLine): CallGraph {
  const isXla = isXlaProgram(graph);
  const lister = new CallLister(tensorMetas(graph), table, isXla, inLine);
  graph.nodes.forEach((node, at) => lister.add(node, at));
  const returned = new Set<number>();
  const names = [
    ...graph.outputs.map(({ value }) => value),
    ...(inLine?.carries ?? []).map(({ value }) => value),
  ];
  for (const name of names) {
    const value = name === null ? undefined : lister.valueOf(name);
    if (value !== undefined) returned.add(value);
  }
  const { calls, values } = lister;
  return { calls, values, returned, isXla, constants: isXla ? constantsOf(calls) : new Set() };
}

function constantsOf(calls: readonly Call[]): ReadonlySet<number> {
  const constants = new Set<number>();
  for (const { form, uses, results } of calls)
    if (form?.over === 'each' && uses.every(({ value }) => value < 0 || constants.has(value)))
      for (const result of results) constants.add(result);
  return constants;
}

/** Lists node after node. */
class CallLister {
  readonly calls: Call[] = [];
  readonly values: Value[] = [];
  /** Values of a node by result; one of them for views. */
  private readonly valuesOf = new Map<string, readonly number[]>();
  /** Values of the constants of XLA, by what they state and the body that they stand in. */
  private readonly constants = new Map<string, readonly number[]>();

  constructor(
    private readonly metas: ReturnType<typeof tensorMetas>,
    private readonly table: OperatorTable,
    private readonly isXla: boolean,
    private readonly inLine: InLine | undefined,
  ) {}

  /** The first value of a node. */
  valueOf(name: string): number | undefined {
    return this.valuesOf.get(name)?.[0];
  }

  add(node: Node, at: number): void {
    if (node.kind !== 'call') {
      this.valuesOf.set(node.name, [this.made(tensorMeta(node.type), -1)]);
      return;
    }
    const operands: string[] = [];
    eachOperand(node, (name) => operands.push(name));
    const source = operands.length === 0 ? undefined : this.valuesOf.get(operands[0]);
    if (node.target === 'operator.getitem') {
      const index = node.args[1];
      const chosen =
        typeof index === 'number' && source !== undefined && source.length > 1
          ? source[index]
          : source?.[0];
      this.valuesOf.set(node.name, [chosen ?? -1]);
    } else if (this.table.get(node.target)?.cls === 'view' && source !== undefined) {
      // A barrier hands on each of its operands.
      const each = node.type.kind === 'tuple' && node.type.items.length === operands.length;
      const seen = each ? operands.map((name) => this.valueOf(name) ?? -1) : [source[0]];
      this.valuesOf.set(node.name, seen);
    }
    // A carry, or the meeting of branches: no kernel makes it where it stands.
    else if (this.inLine?.loops.isMark(node.name) === true)
      this.valuesOf.set(node.name, [this.made(tensorMeta(node.type), -1)]);
    else this.addCall(node, at, operands);
  }

  private addCall(node: Node, at: number, operands: readonly string[]): void {
    const record = this.table.get(node.target);
    const ctx = record === undefined ? undefined : callContext(node, record, this.metas);
    const known = record === undefined || ctx === undefined ? undefined : { record, ctx };
    const names =
      known === undefined ? operands : tensorInputs(known.record, node.args, node.kwargs);
    const types = node.type.kind === 'tuple' ? node.type.items : [node.type];
    const phase = this.phaseOf(node);
    const number = this.isXla ? statedNumber(node) : undefined;
    const stated = number === undefined ? undefined : `${phase}:${number}`;
    const same = stated === undefined ? undefined : this.constants.get(stated);
    if (same !== undefined) {
      // XLA has equal constants once (`hlo_cse.cc`).
      this.valuesOf.set(node.name, same);
      this.calls.push({ node, at, form: undefined, own: NO_TRAFFIC, phase, uses: [], results: [] });
      return;
    }
    const results = types.map((type) => this.made(tensorMeta(type), this.calls.length));
    this.valuesOf.set(node.name, results);
    if (stated !== undefined) this.constants.set(stated, results);
    this.calls.push({
      node,
      at,
      form: known && loopForm(known.record, known.ctx),
      own: known && ownTraffic(known.record, known.ctx),
      phase,
      uses: names.map((name) => this.use(name)),
      results,
    });
  }

  /** Inductor compiles forward and backward pass apart, XLA the whole step at once. */
  private phaseOf({ name, meta }: Node): string {
    const body = String(this.inLine?.loops.scopeOf(name) ?? '');
    return this.isXla ? body : `${meta.phase ?? ''}${body}`;
  }

  private made(meta: TensorMeta | null | undefined, call: number): number {
    if (meta === null || meta === undefined) return -1;
    const count = elements(meta.shape);
    return this.values.push({ call, bytes: count * DTYPE_BYTES[meta.dtype], count }) - 1;
  }

  private use(name: string): Use {
    const value = this.valueOf(name);
    const meta = this.metas.get(name);
    if (value === undefined || value < 0 || meta === undefined) return NOTHING;
    const count = elements(meta.shape);
    return {
      value,
      part: Math.min(1, count / Math.max(1, this.values[value].count)),
      bytes: count * DTYPE_BYTES[meta.dtype],
    };
  }
}

/** The traffic of what stands once for several calls. */
const NO_TRAFFIC: CallTraffic = { inputs: [], outputs: [0], kernels: 0 };

/** The number and the type of a constant that is one number throughout. */
function statedNumber({ target, args, type }: Node): string | undefined {
  if (target !== 'stablehlo.constant' || Array.isArray(args[0])) return undefined;
  return JSON.stringify([args, type], (_, value: unknown) =>
    typeof value === 'number' || typeof value === 'bigint' ? `${value}` : value,
  );
}

/** An operand that is not a tensor. */
const NOTHING: Use = { value: -1, part: 0, bytes: 0 };
