/** Indexes a graph as flat arrays: positions, operands, users. */

import { defined } from '../defined.ts';
import { ShardwrightError, suggestion } from '../errors.ts';
import { linePosition } from './nodes.ts';
import type { Graph, Node } from './types.ts';
import { eachOperand } from './value.ts';

/**
 * Positions, operands and users of a graph as flat arrays: what loops over thousands of nodes read.
 */
export interface GraphIndex {
  /** Name to position in `graph.nodes`. */
  readonly position: ReadonlyMap<string, number>;
  /**
   * Operands of node `i` in argument order, with repetition: `operands[operandStart[i] ..
   * operandStart[i + 1])`.
   */
  readonly operandStart: Int32Array;
  readonly operands: Int32Array;
  /** Distinct users of node `i` in execution order; the return statement is not among them. */
  readonly userStart: Int32Array;
  readonly users: Int32Array;
  /** 1 where the graph returns the value. */
  readonly returned: Uint8Array;
}

const indexes = new WeakMap<Graph, GraphIndex>();
/** By the list of nodes: graphs that differ in notes or outputs alone share theirs. */
const indexesOfNodes = new WeakMap<readonly Node[], Omit<GraphIndex, 'returned'>>();

/**
 * The index of a graph; computed once per graph object, which never changes.
 *
 * @throws E_GRAPH_LINT when a name is undefined or defined twice
 */
export function indexGraph(graph: Graph): GraphIndex {
  const known = indexes.get(graph);
  if (known !== undefined) return known;
  let ofNodes = indexesOfNodes.get(graph.nodes);
  if (ofNodes === undefined) indexesOfNodes.set(graph.nodes, (ofNodes = buildIndex(graph.nodes)));
  const index = { ...ofNodes, returned: returnedBy(graph, ofNodes.position) };
  indexes.set(graph, index);
  return index;
}

function returnedBy(
  { nodes, outputs, name }: Graph,
  position: ReadonlyMap<string, number>,
): Uint8Array {
  const returned = new Uint8Array(nodes.length);
  for (const output of outputs) {
    if (output.value === null) continue;
    const at = position.get(output.value);
    if (at === undefined) throw undefinedOutput(output.value, name, position);
    returned[at] = 1;
  }
  return returned;
}

function buildIndex(nodes: readonly Node[]): Omit<GraphIndex, 'returned'> {
  const n = nodes.length;
  const position = new Map<string, number>();
  for (let i = 0; i < n; i++) {
    if (position.has(nodes[i].name))
      throw lintError('single definition', nodes[i], 'the name is defined twice');
    position.set(nodes[i].name, i);
  }
  const operandStart = new Int32Array(n + 1);
  let operands = new Int32Array(Math.max(16, 2 * n));
  let count = 0;
  let current = 0;
  const visit = (name: string): void => {
    const at = position.get(name);
    if (at === undefined) throw undefinedValue(name, nodes[current], position);
    if (count === operands.length) {
      const larger = new Int32Array(2 * count);
      larger.set(operands);
      operands = larger;
    }
    operands[count++] = at;
  };
  for (; current < n; current++) {
    operandStart[current] = count;
    eachOperand(nodes[current], visit);
  }
  operandStart[n] = count;
  operands = operands.slice(0, count);

  const userStart = new Int32Array(n + 1);
  const lastUser = new Int32Array(n).fill(-1);
  for (let i = 0; i < n; i++) {
    for (let k = operandStart[i]; k < operandStart[i + 1]; k++) {
      const o = operands[k];
      if (lastUser[o] === i) continue;
      lastUser[o] = i;
      userStart[o + 1]++;
    }
  }
  for (let i = 0; i < n; i++) userStart[i + 1] += userStart[i];
  const users = new Int32Array(userStart[n]);
  const fill = userStart.slice(0, n);
  lastUser.fill(-1);
  for (let i = 0; i < n; i++) {
    for (let k = operandStart[i]; k < operandStart[i + 1]; k++) {
      const o = operands[k];
      if (lastUser[o] === i) continue;
      lastUser[o] = i;
      users[fill[o]++] = i;
    }
  }
  return { position, operandStart, operands, userStart, users };
}

/**
 * Position of the last use of each value: of the last node that reads it, `nodes.length` where the
 * graph returns it, its own position where nothing reads it.
 */
export function lastUses(graph: Graph): Int32Array {
  const { userStart, users, returned } = indexGraph(graph);
  return Int32Array.from(returned, (r, i) => {
    if (r === 1) return graph.nodes.length;
    return userStart[i + 1] > userStart[i] ? users[userStart[i + 1] - 1] : i;
  });
}

/**
 * Execution order of nodes that may be in any order: operands first, otherwise as given. An order
 * that is legal already comes back unchanged. Iterative, linear.
 *
 * @throws E_GRAPH_LINT for an undefined or repeated name, or a cycle (named in full)
 */
export function topologicalOrder(nodes: readonly Node[]): Node[] {
  const position = new Map<string, number>();
  nodes.forEach((node, i) => {
    if (position.has(node.name))
      throw lintError('single definition', node, 'the name is defined twice');
    position.set(node.name, i);
  });
  const operandsOf = (i: number): number[] => {
    const list: number[] = [];
    eachOperand(nodes[i], (name) => {
      const at = position.get(name);
      if (at === undefined) throw undefinedValue(name, nodes[i], position);
      list.push(at);
    });
    return list;
  };
  // 0 = not seen, 1 = on the stack, 2 = placed.
  const state = new Uint8Array(nodes.length);
  const order: Node[] = [];
  const stack: { at: number; operands: number[]; next: number }[] = [];
  for (let root = 0; root < nodes.length; root++) {
    if (state[root] !== 0) continue;
    state[root] = 1;
    stack.push({ at: root, operands: operandsOf(root), next: 0 });
    while (stack.length > 0) {
      const frame = stack[stack.length - 1];
      if (frame.next === frame.operands.length) {
        state[frame.at] = 2;
        order.push(nodes[frame.at]);
        stack.pop();
        continue;
      }
      const operand = frame.operands[frame.next++];
      if (state[operand] === 1) {
        const from = stack.findIndex((f) => f.at === operand);
        const cycle = stack.slice(from).map((f) => nodes[f.at].name);
        throw lintError(
          'no cycles',
          nodes[operand],
          `the values need each other: ${[...cycle, cycle[0]].join(' -> ')}`,
        );
      }
      if (state[operand] === 0) {
        state[operand] = 1;
        stack.push({ at: operand, operands: operandsOf(operand), next: 0 });
      }
    }
  }
  return order;
}

/**
 * A failed check of the graph rules: names the check, the node and, where known, the place in its
 * source.
 */
export function lintError(
  check: string,
  node: Node | undefined,
  message: string,
  hint?: string,
): ShardwrightError {
  const where = node === undefined ? '' : ` at ${node.name}`;
  return new ShardwrightError('E_GRAPH_LINT', `${check}${where}: ${message}`, {
    ...defined({ node: node?.name }),
    ...(node?.meta.path !== undefined ? { path: node.meta.path } : {}),
    ...defined({ position: linePosition(node?.meta.line) }),
    hint:
      hint ??
      (node?.meta.source !== undefined
        ? `the node comes from ${node.meta.source}`
        : 'check the pass or text that made this graph'),
  });
}

export function undefinedValue(
  name: string,
  user: Node,
  known: ReadonlyMap<string, unknown>,
): ShardwrightError {
  return lintError(
    'references resolve',
    user,
    `uses '${name}', which is not defined`,
    nearest(name, known),
  );
}

export function undefinedOutput(
  name: string,
  graph: string,
  known: ReadonlyMap<string, unknown>,
): ShardwrightError {
  return lintError(
    'references resolve',
    undefined,
    `graph ${graph} returns '${name}', which is not defined`,
    nearest(name, known),
  );
}

function nearest(name: string, known: ReadonlyMap<string, unknown>): string {
  return suggestion(name, [...known.keys()], 'values');
}
