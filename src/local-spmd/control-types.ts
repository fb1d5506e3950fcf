/**
 * Types the results of calls with bodies: branches must agree, the predicate must be equal on all
 * ranks, and a carry has one type on every trip. Source: JAX's rules for `scan` and `cond` under
 * `shard_map`.
 */
import { CONTROL_TARGETS, scanPositions } from '../graph/control.ts';
import type { Frame } from '../graph/interpret.ts';
import { indexGraph } from '../graph/order.ts';
import type { Arg, Graph, Node } from '../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef } from '../graph/value.ts';
import { type AxisType, chunksOf, cutType } from '../mesh/local-types/types.ts';
import { isTuple, type Known, type Typed, type Typing } from './typed.ts';

const CONTROL = new Set(CONTROL_TARGETS);

/** Types of the results of a call with bodies; undefined for any other call. */
export function controlTypes(typer: Typing, node: Node, frame: Frame<Typed>): Typed | undefined {
  if (!CONTROL.has(node.target)) return undefined;
  const call = new ControlTyper(typer, node, frame);
  switch (node.target) {
    case 'call':
      return call.once(0, call.operands(1));
    case 'cond':
      return call.branches(node.args.slice(1, 3), 3);
    case 'case': {
      const list: Arg | undefined = node.args[1];
      return call.branches(list !== undefined && isList(list) ? list : [], 2);
    }
    case 'while_loop':
      return call.whileLoop();
    case 'scan':
    case 'map':
    case 'map_impl':
      return call.scan();
    default: {
      const at = node.target === 'wrap_with_autocast' ? 4 : 1;
      return call.once(
        at,
        node.args.slice(at + 1).map((arg) => call.operand(arg)),
      );
    }
  }
}

/** Runs the bodies of one call on types. */
class ControlTyper {
  constructor(
    private readonly typer: Typing,
    private readonly node: Node,
    private readonly frame: Frame<Typed>,
  ) {}

  operand(arg: Arg): Typed {
    return isRef(arg) ? this.frame.value(arg.name) : this.typer.everywhere('number');
  }

  operands(at: number): Typed[] {
    const list: Arg | undefined = this.node.args[at];
    return list !== undefined && isList(list) ? list.map((arg) => this.operand(arg)) : [];
  }

  /** A body that runs once. */
  once(at: number, inputs: readonly Typed[]): Typed {
    return { items: this.run(this.node.args[at], inputs) };
  }

  /** @param at where the operands of all branches are */
  branches(branches: readonly Arg[], at: number): Typed {
    const { typer, node, frame } = this;
    decided(typer, node, frame, node.args[0]);
    return agreed(
      typer,
      node,
      frame,
      branches.map((branch) => this.run(branch, this.operands(at))),
    );
  }

  whileLoop(): Typed {
    const { typer, node, frame } = this;
    const [test, body, init] = node.args;
    const captured = this.operands(3);
    const carry = fixedCarry(typer, node, frame, this.operands(2), init, (now) =>
      this.run(body, [...now, ...captured]),
    );
    const [decides] = this.run(test, [...carry, ...captured]);
    if (decides !== undefined) decidedBy(typer, node, frame, decides);
    return { items: carry };
  }

  scan(): Typed {
    const { typer, node, frame } = this;
    const at = scanPositions(node.target);
    const rows = this.operands(at.xs).map((typed) => rowsOf(typer, node, frame, typed));
    const captured = this.operands(at.captured);
    const init = at.init === undefined ? [] : this.operands(at.init);
    const starts = at.init === undefined ? undefined : node.args[at.init];
    let last: Typed[] = [];
    const carry = fixedCarry(typer, node, frame, init, starts, (now) => {
      last = this.run(node.args[0], [...now, ...rows, ...captured]);
      return last;
    });
    return { items: [...carry, ...last.slice(carry.length).map(stacked)] };
  }

  private run(body: Arg | undefined, inputs: readonly Typed[]): Typed[] {
    const graph =
      body !== undefined && isGraphRef(body)
        ? getOwn(this.frame.graph.subgraphs, body.name)
        : undefined;
    if (graph === undefined) return [];
    return this.typer.run(graph, inputs).map((typed) => typed ?? this.typer.everywhere(undefined));
  }
}

function decided(typer: Typing, node: Node, frame: Frame<Typed>, test: Arg): void {
  if (isRef(test)) decidedBy(typer, node, frame, frame.value(test.name), test.name);
}

function decidedBy(
  typer: Typing,
  node: Node,
  { graph }: Frame<Typed>,
  test: Typed,
  name?: string,
): void {
  if (isTuple(test)) return;
  test.forEach((type, a) => {
    if (type === undefined || type === 'number' || type === 'I' || type === 'R') return;
    typer.violate(graph, node, a, {
      rule: 'predicate',
      operands: name === undefined ? [] : [name],
      reason: `the predicate is ${type}, so ranks would go different ways`,
      fix: 'all_reduce what decides, so that it is I on every axis',
    });
  });
}

/** The types that all branches return. */
function agreed(
  typer: Typing,
  node: Node,
  { graph }: Frame<Typed>,
  branches: readonly (readonly Typed[])[],
): Typed {
  const [first, ...rest] = branches;
  const merged = rest.reduce<readonly Typed[]>(
    (left, right) =>
      left.map((typed, k) =>
        joined(typed, right[k], (axis, a, b) => {
          typer.violate(graph, node, axis, {
            rule: 'branches',
            reason: `result ${k} is ${a} in one branch and ${b} in another`,
            fix: `cast it in one of the branches: ${castText(a, b)}`,
          });
        }),
      ),
    first ?? [],
  );
  return { items: [...merged] };
}

function castText(a: AxisType, b: AxisType): string {
  if (a === 'I' || b === 'I') return `reinterpret I→${a === 'I' ? b : a}`;
  return `redistribute ${a}→${b}`;
}

/** The common type of two values of one name; a plain number takes the other's type. */
function joined(
  left: Typed,
  right: Typed | undefined,
  refuse: (axis: number, a: AxisType, b: AxisType) => void,
): Typed {
  if (right === undefined || isTuple(left) || isTuple(right)) return left;
  return left.map((a, axis): Known => {
    const b = right[axis];
    if (a === undefined || b === undefined) return a ?? b;
    if (a === 'number') return b;
    if (b === 'number' || a === b) return a;
    refuse(axis, a, b);
    return a;
  });
}

/**
 * Types of a carry that the body hands on as it got them; an initial number takes the type that the
 * body gives it. Zeros may be addends: sums of addends, as those of gradients over the trips of a
 * loop, start with them.
 */
function fixedCarry(
  typer: Typing,
  node: Node,
  { graph }: Frame<Typed>,
  init: readonly Typed[],
  operands: Arg | undefined,
  step: (carry: readonly Typed[]) => readonly Typed[],
): Typed[] {
  let carry = [...init];
  const starts = operands !== undefined && isList(operands) ? operands : [];
  for (let round = 0; round < 4; round++) {
    const [count, casts] = [typer.violations.length, typer.casts.length];
    const next = step(carry);
    const wider = carry.map((typed, k) => {
      const back = next[k];
      if (isTuple(typed) || isTuple(back) || !isZero(graph, starts[k]))
        return joined(typed, back, () => undefined);
      return typed.map((type, a): Known => (type === 'number' ? (back[a] ?? 'P') : type));
    });
    if (wider.some((typed, k) => !sameTyped(typed, carry[k]))) {
      // What is said of the narrower carry may not hold of the wider one.
      typer.violations.length = count;
      typer.casts.length = casts;
      carry = wider;
      continue;
    }
    carry.forEach((typed, k) =>
      joined(typed, next[k], (axis, a, b) => {
        typer.violate(graph, node, axis, {
          rule: 'carry',
          reason: `carry ${k} goes into the body as ${a} and comes out as ${b}`,
          fix:
            'cast what goes in or what comes out, so that it is ' +
            `${a === 'V' || b === 'V' ? 'V' : b} both times`,
        });
      }),
    );
    break;
  }
  return carry;
}

/** Tells whether a value is made of zeros, as gradients are at their start. */
function isZero(graph: Graph, operand: Arg | undefined): boolean {
  if (operand === undefined || !isRef(operand)) return operand === 0;
  const made = graph.nodes[indexGraph(graph).position.get(operand.name) ?? -1];
  if (made?.target === 'aten.zeros.default' || made?.target === 'aten.zeros_like.default')
    return true;
  const filled = made?.target === 'aten.full.default' ? made.args[1] : undefined;
  return (
    filled === 0 ||
    (typeof filled === 'object' && filled !== null && 'value' in filled && filled.value === 0)
  );
}

function sameTyped(a: Typed, b: Typed): boolean {
  return isTuple(a) || isTuple(b) || a.every((type, i) => type === b[i]);
}

/** One row of scanned values: the scanned dim must be whole. */
function rowsOf(typer: Typing, node: Node, { graph }: Frame<Typed>, typed: Typed): Typed {
  if (isTuple(typed)) return typed;
  return typed.map((type, a): Known => {
    const cut = type === undefined || type === 'number' ? undefined : chunksOf(type);
    if (cut === undefined) return type;
    if (cut.dim > 0) return cutType(cut.dim - 1, cut.chunks);
    typer.violate(graph, node, a, {
      rule: 'scan over S',
      reason: 'the loop goes over the rows of a dim that the axis cuts',
      fix: 'gather it before the loop, or write the loop in a localMap',
    });
    return undefined;
  });
}

function stacked(typed: Typed): Typed {
  if (isTuple(typed)) return typed;
  return typed.map((type): Known => {
    const cut = type === undefined || type === 'number' ? undefined : chunksOf(type);
    return cut === undefined ? type : cutType(cut.dim + 1, cut.chunks);
  });
}
