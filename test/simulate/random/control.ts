import type { Arg, DType, Graph } from '../../../src/graph/types.ts';
import { type Draw, ProgramBuilder, ref, type Tensor } from './builder.ts';
import { FAMILIES, floats } from './families.ts';
import { MORE_FAMILIES } from './more-families.ts';

const ALL = [...FAMILIES, ...MORE_FAMILIES];
const TOTAL = ALL.reduce((sum, [, , weight]) => sum + weight, 0);
const MAX_DEPTH = 2;

/** Adds calls of any family until there are `wanted`, or nothing fits any more. */
export function grow(b: ProgramBuilder, wanted: number): void {
  for (let tries = 0; (b.callCount < wanted || b.tensors.length === 0) && tries < 60; tries++) {
    let at = b.draw.below(TOTAL);
    for (const [, family, weight] of ALL) {
      at -= weight;
      if (at >= 0) continue;
      family(b);
      break;
    }
  }
  if (b.tensors.length === 0) b.call('aten.relu.default', [ref(floats(b))]);
}

/** A body under construction: an input that its calls lack is a tensor of the program around it. */
class BodyBuilder extends ProgramBuilder {
  private readonly captured: Tensor[] = [];

  constructor(
    draw: Draw,
    private readonly outer: ProgramBuilder,
    readonly depth: number,
    /** What the call hands over in each run. */
    readonly handed: readonly Tensor[],
    prefix: string,
  ) {
    super(draw, prefix);
    for (const { dtype, shape } of handed) this.tensors.push(this.argument(dtype, shape));
  }

  override input(dtype: DType, shape: readonly number[]): Tensor {
    const fits = this.outer.tensors.filter(
      (t) => t.dtype === dtype && t.shape.join() === shape.join(),
    );
    // Half of the time a value that is there already, so that what is around a body is placed for
    // other uses too.
    const from =
      fits.length > 0 && this.draw.chance(0.5)
        ? this.draw.pick(fits)
        : this.outer.input(dtype, shape);
    this.captured.push(from);
    return this.argument(dtype, shape);
  }

  /** Outer tensors that stand for its inputs after those that are handed over. */
  get captures(): readonly Tensor[] {
    return this.captured;
  }

  /** Takes operands before and after its own that other bodies of the same call want. */
  captureAround(before: readonly Tensor[], after: readonly Tensor[]): void {
    const own = this.arguments.splice(this.handed.length);
    for (const t of before) this.argument(t.dtype, t.shape);
    this.arguments.push(...own);
    for (const t of after) this.argument(t.dtype, t.shape);
  }
}

/** Any tensor of that type in the body, made there if there is none that is not an input. */
function ofType(b: BodyBuilder, like: Tensor): Tensor {
  const made = b.tensors.filter(
    (t) => t.dtype === like.dtype && t.shape.join() === like.shape.join(),
  );
  if (made.length > 0 && b.draw.chance(0.9)) return made[made.length - 1];
  const from = made[0] ?? b.input(like.dtype, like.shape);
  return (
    b.call(like.dtype === 'f32' ? 'aten.tanh.default' : 'aten.clone.default', [ref(from)]) ?? from
  );
}

function fill(b: BodyBuilder): void {
  grow(b, 1 + b.draw.below(4));
  if (b.depth < MAX_DEPTH && b.draw.chance(0.15)) b.draw.pick(CONTROL)(b, b.depth);
}

type ControlFamily = (b: ProgramBuilder, depth: number) => void;

/**
 * Tells whether all of a tensor's elements together are above a number that no sum is by chance.
 */
function predicate(b: ProgramBuilder): Tensor {
  const sum = b.call('aten.sum.default', [ref(floats(b))]);
  const test =
    sum === undefined
      ? undefined
      : b.call('aten.gt.Scalar', [ref(sum), { kind: 'float', value: 0.0137 }]);
  return test ?? b.input('b8', []);
}

/** The branches of a call: they return tensors of the same types. */
function branches(
  b: ProgramBuilder,
  count: number,
  depth: number,
): { graphs: Graph[]; operands: Tensor[] } {
  const handed = Array.from({ length: 1 + b.draw.below(2) }, () => floats(b));
  const bodies = Array.from(
    { length: count },
    (_, i) => new BodyBuilder(b.draw, b, depth + 1, handed, `b${i}`),
  );
  for (const body of bodies) fill(body);
  const [first] = bodies;
  const types = Array.from({ length: 1 + b.draw.below(2) }, () => b.draw.pick(first.tensors));
  const returns = bodies.map((body) => types.map((type) => ofType(body, type)));
  const lists = bodies.map((body) => body.captures.slice());
  bodies.forEach((body, i) => {
    const [before, after] = [lists.slice(0, i).flat(), lists.slice(i + 1).flat()];
    body.captureAround(before, after);
  });
  const graphs = bodies.map((body, i) => body.body(`branch${i}`, returns[i]));
  return { graphs, operands: [...handed, ...lists.flat()] };
}

const cond: ControlFamily = (b, depth) => {
  const test = predicate(b);
  const { graphs, operands } = branches(b, 2, depth);
  const names = graphs.map((graph) => b.subgraph(graph));
  b.control('cond', [ref(test), ...names, operands.map(ref)]);
};

const choice: ControlFamily = (b, depth) => {
  const index = b.input('i64', []);
  const { graphs, operands } = branches(b, 2 + b.draw.below(2), depth);
  const names = graphs.map((graph) => b.subgraph(graph));
  b.control('case', [ref(index), names, operands.map(ref)]);
};

const LENGTHS = [1, 2, 3, 4] as const;

/** Scanned tensors; none for a third of the scans that carry something. */
function scanned(b: ProgramBuilder, length: number, atLeast: number): Tensor[] {
  return Array.from({ length: atLeast + b.draw.below(2) }, () => {
    const there = b.tensors.filter(
      (t) => t.dtype === 'f32' && t.shape.length > 0 && t.shape[0] === length,
    );
    if (there.length > 0 && b.draw.chance(0.5)) return b.draw.pick(there);
    const row = floats(b, 0, 3);
    return b.input('f32', [length, ...row.shape]);
  });
}

const rowOf = ({ name, dtype, shape }: Tensor): Tensor => ({ name, dtype, shape: shape.slice(1) });

const scan: ControlFamily = (b, depth) => {
  const length = b.draw.pick(LENGTHS);
  const carry = Array.from({ length: 1 + b.draw.below(2) }, () => floats(b));
  const xs = scanned(b, length, b.draw.chance(0.3) ? 0 : 1);
  const body = new BodyBuilder(b.draw, b, depth + 1, [...carry, ...xs.map(rowOf)], 's');
  fill(body);
  const stacked = Array.from({ length: b.draw.below(3) }, () => b.draw.pick(body.tensors));
  const graph = body.body('step', [...carry.map((c) => ofType(body, c)), ...stacked]);
  const kwargs = {
    ...(xs.length === 0 ? { length } : {}),
    ...(b.draw.chance(0.3) ? { reverse: true } : {}),
  };
  b.control(
    'scan',
    [b.subgraph(graph), carry.map(ref), xs.map(ref), body.captures.map(ref)],
    kwargs,
  );
};

const map: ControlFamily = (b, depth) => {
  const xs = scanned(b, b.draw.pick(LENGTHS), 1);
  const body = new BodyBuilder(b.draw, b, depth + 1, xs.map(rowOf), 'm');
  fill(body);
  const stacked = Array.from({ length: 1 + b.draw.below(2) }, () => b.draw.pick(body.tensors));
  const graph = body.body('each', stacked);
  b.control('map', [b.subgraph(graph), xs.map(ref), body.captures.map(ref)]);
};

/** A loop of at most four trips, which may end earlier for what it computes. */
const loop: ControlFamily = (b, depth) => {
  const count = b.call('aten.zeros.default', [[]], { dtype: { kind: 'dtype', dtype: 'i64' } });
  if (count === undefined) return;
  const carry = [count, ...Array.from({ length: 1 + b.draw.below(2) }, () => floats(b))];
  const test = new BodyBuilder(b.draw, b, depth + 1, carry, 't');
  const limit = b.draw.below(5);
  let goes = test.call('aten.lt.Scalar', [ref(test.tensors[0]), limit]);
  if (goes !== undefined && b.draw.chance(0.5)) {
    const sum = test.call('aten.sum.default', [ref(test.tensors[1])]);
    const small =
      sum === undefined
        ? undefined
        : test.call('aten.lt.Scalar', [ref(sum), { kind: 'float', value: 3.0137 }]);
    if (small !== undefined)
      goes = test.call('aten.logical_and.default', [ref(goes), ref(small)]) ?? goes;
  }
  const step = new BodyBuilder(b.draw, b, depth + 1, carry, 'w');
  const next = step.call('aten.add.Scalar', [ref(step.tensors[0]), 1]);
  if (goes === undefined || next === undefined) return;
  fill(step);
  const returns = [next, ...carry.slice(1).map((c) => ofType(step, c))];
  test.captureAround([], step.captures);
  const names: Arg[] = [
    b.subgraph(test.body('test', [goes])),
    b.subgraph(step.body('step', returns)),
  ];
  b.control(
    'while_loop',
    [...names, carry.map(ref), step.captures.map(ref)],
    b.draw.chance(0.3) ? { max_trips: 3 } : {},
  );
};

/** Calls with bodies, each as likely as the others. */
export const CONTROL: readonly ControlFamily[] = [cond, choice, scan, map, loop];
