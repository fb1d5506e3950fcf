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
import { type LoopForm, loopForm, ownTraffic } from './loop-forms.ts';

/** A tensor in memory, or what would be one. */
export interface Value {
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

/** A call that is no view. */
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
  /** By result; -1 for what is no tensor. */
  readonly results: readonly number[];
}

export interface CallGraph {
  readonly calls: readonly Call[];
  readonly values: readonly Value[];
  /** Values that the program returns. */
  readonly returned: ReadonlySet<number>;
}

/**
 * Calls of a graph in its order.
 *
 * @param scopeOf the body that a node of an opened graph runs in; absent: there are none
 */
export function callGraph(
  graph: Graph,
  table: OperatorTable,
  scopeOf?: (name: string) => number,
): CallGraph {
  const metas = tensorMetas(graph);
  const calls: Call[] = [];
  const values: Value[] = [];
  /** Values of a node by result; one of them for views. */
  const valuesOf = new Map<string, readonly number[]>();
  const made = (meta: TensorMeta | null | undefined, call: number): number => {
    if (meta === null || meta === undefined) return -1;
    const count = elements(meta.shape);
    return values.push({ call, bytes: count * DTYPE_BYTES[meta.dtype], count }) - 1;
  };
  const use = (name: string): Use | undefined => {
    const value = valuesOf.get(name)?.[0];
    const meta = metas.get(name);
    if (value === undefined || value < 0 || meta === undefined) return undefined;
    const count = elements(meta.shape);
    return {
      value,
      part: Math.min(1, count / Math.max(1, values[value].count)),
      bytes: count * DTYPE_BYTES[meta.dtype],
    };
  };
  graph.nodes.forEach((node, at) => {
    if (node.kind !== 'call') {
      valuesOf.set(node.name, [made(tensorMeta(node.type), -1)]);
      return;
    }
    const operands: string[] = [];
    eachOperand(node, (name) => operands.push(name));
    const source = operands.length === 0 ? undefined : valuesOf.get(operands[0]);
    if (node.target === 'operator.getitem') {
      const index = node.args[1];
      const chosen =
        typeof index === 'number' && source !== undefined && source.length > 1
          ? source[index]
          : source?.[0];
      valuesOf.set(node.name, [chosen ?? -1]);
      return;
    }
    const record = table.get(node.target);
    if (record?.cls === 'view' && source !== undefined) {
      valuesOf.set(node.name, [source[0]]);
      return;
    }
    const ctx = record === undefined ? undefined : callContext(node, record, metas);
    const names =
      record === undefined || ctx === undefined
        ? operands
        : tensorInputs(record, node.args, node.kwargs);
    const types = node.type.kind === 'tuple' ? node.type.items : [node.type];
    const results = types.map((type) => made(tensorMeta(type), calls.length));
    valuesOf.set(node.name, results);
    calls.push({
      node,
      at,
      form: record === undefined || ctx === undefined ? undefined : loopForm(record, ctx),
      own: record === undefined || ctx === undefined ? undefined : ownTraffic(record, ctx),
      phase: `${node.meta.phase ?? ''}${scopeOf?.(node.name) ?? ''}`,
      uses: names.map((name) => use(name) ?? NOTHING),
      results,
    });
  });
  const returned = new Set<number>();
  for (const output of graph.outputs) {
    const value = output.value === null ? undefined : valuesOf.get(output.value)?.[0];
    if (value !== undefined) returned.add(value);
  }
  return { calls, values, returned };
}

/** An operand that is no tensor. */
const NOTHING: Use = { value: -1, part: 0, bytes: 0 };
