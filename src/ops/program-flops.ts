/** Counts the matrix FLOPs of a program with its bodies and loop trips. */

import { scanPositions, statedProbability, statedTrips } from '../graph/control.ts';
import { type Frame, interpret } from '../graph/interpret.ts';
import type { Arg, Graph, Node, Phase, ValueType } from '../graph/types.ts';
import { eachOperand, getOwn, isGraphRef, isList } from '../graph/value.ts';
import { bind } from './record/infer.ts';
import type { OperatorTable } from './record/table.ts';

/**
 * Matrix FLOPs of a program with its bodies: calls at every use, loops by their trips, of a
 * condition the most expensive branch or, where its probability is stated, what is to be expected.
 */
interface ProgramFlops {
  readonly forward: number;
  readonly backward: number;
  readonly total: number;
  /** Loops whose trips are not known; they count once. */
  readonly uncountedLoops: number;
  /** Calls with a symbolic size that has no example; they count nothing. */
  readonly unsizedCalls: number;
}

/**
 * @throws E_TYPE when a call does not fit its operator
 */
export function programFlops(graph: Graph, table: OperatorTable): ProgramFlops {
  const work = new Counter(table);
  const sums: Record<Phase, number> = { forward: 0, backward: 0, optimizer: 0 };
  walk(graph, (node, frame) => (sums[node.meta.phase ?? 'forward'] += work.ofCall(node, frame)));
  const { forward, backward, optimizer } = sums;
  return {
    forward,
    backward,
    total: forward + backward + optimizer,
    uncountedLoops: work.uncounted,
    unsizedCalls: work.unsized,
  };
}

/**
 * Hands every call to `visit`, with the types that the graph states of the values before it. Bodies
 * are not entered: what a body costs is asked once, however many calls run it.
 */
function walk(graph: Graph, visit: (node: Node, frame: Frame<ValueType>) => void): void {
  interpret<ValueType>(graph, {
    placeholder: (node) => node.type,
    getAttr: (node) => node.type,
    call: (node, _operands, frame) => {
      visit(node, frame);
      return node.type;
    },
  });
}

class Counter {
  uncounted = 0;
  unsized = 0;
  private readonly known = new Map<Graph, number>();

  constructor(private readonly table: OperatorTable) {}

  ofCall(node: Node, frame: Frame<ValueType>): number {
    const bodies = bodiesOf(node.args, frame.graph);
    if (bodies.length === 0) {
      if (isSized(node, frame)) return direct(node, this.table, frame);
      if (this.table.get(node.target) !== undefined) this.unsized++;
      return 0;
    }
    const each = bodies.map((body) => this.ofGraph(body));
    const sum = each.reduce((a, b) => a + b, 0);
    switch (node.target) {
      case 'cond':
      case 'case': {
        const known = statedProbability(node);
        return known === undefined ? Math.max(...each) : known * each[0] + (1 - known) * each[1];
      }
      case 'while_loop':
      case 'scan':
      case 'map':
      case 'map_impl':
        return sum * this.trips(node, frame);
      default:
        return sum;
    }
  }

  private trips(node: Node, frame: Frame<ValueType>): number {
    const stated = node.target === 'while_loop' ? statedTrips(node) : getOwn(node.kwargs, 'length');
    if (typeof stated === 'number') return stated;
    const xs = node.target === 'while_loop' ? undefined : node.args[scanPositions(node.target).xs];
    const first = xs !== undefined && isList(xs) ? xs[0] : undefined;
    const type =
      first !== undefined &&
      first !== null &&
      typeof first === 'object' &&
      'kind' in first &&
      first.kind === 'value'
        ? frame.value(first.name)
        : undefined;
    const length = type?.kind === 'tensor' ? type.shape[0] : undefined;
    if (typeof length === 'number') return length;
    this.uncounted++;
    return 1;
  }

  private ofGraph(graph: Graph): number {
    const known = this.known.get(graph);
    if (known !== undefined) return known;
    let total = 0;
    walk(graph, (node, frame) => (total += this.ofCall(node, frame)));
    this.known.set(graph, total);
    return total;
  }
}

/** Tells whether all operands have sizes that are numbers or have an example. */
function isSized(node: Node, frame: Frame<ValueType>): boolean {
  let sized = true;
  eachOperand(node, (name) => {
    const type = frame.value(name);
    if (type.kind === 'tensor')
      sized &&= type.shape.every((dim) => typeof dim === 'number' || dim.example !== undefined);
  });
  return sized;
}

/** Work of an operator by its own record. */
function direct(node: Node, table: OperatorTable, frame: Frame<ValueType>): number {
  const record = table.get(node.target);
  const context = record === undefined ? undefined : bind(table, node, (name) => frame.value(name));
  return record === undefined || context === undefined ? 0 : record.flops(context).matrix;
}

/**
 * Subgraphs among the arguments of a control-flow call; keyword bodies (reducers) hold no matrix
 * work.
 */
function bodiesOf(args: readonly Arg[], graph: Graph): Graph[] {
  const out: Graph[] = [];
  for (const arg of args) {
    if (isList(arg))
      out.push(...arg.flatMap((member) => (isGraphRef(member) ? bodiesOf([member], graph) : [])));
    else if (isGraphRef(arg)) {
      const body = getOwn(graph.subgraphs, arg.name);
      if (body !== undefined) out.push(body);
    }
  }
  return out;
}
