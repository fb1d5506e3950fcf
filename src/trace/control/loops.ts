/**
 * Loops as operators: their bodies are traced once, on fresh inputs. Numbers of a carry become
 * scalar tensors.
 */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { checkType } from '../../errors.ts';
import type { Arg } from '../../graph/types.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { needRecorder, type Recorder, recordInto, type TracedValue } from '../record/recorder.ts';
import { type Tree, treeText } from '../record/tree.ts';
import { valueText } from '../record/typed-value.ts';
import { type Size, sizeText } from '../sizes/sizes.ts';
import { needTensor } from '../tensor/core.ts';
import { arange } from '../tensor/functional.ts';
import { apply, type Tensor } from '../tensor/tensor.ts';
import {
  bodyName,
  captures,
  finishBody,
  operandRefs,
  ownedTree,
  resultLike,
  tensorsOf,
  traceBody,
  treeTypes,
  withScalars,
} from './body.ts';
import { commonPrefix, withSettledCarry } from './carry.ts';
import { note } from './site.ts';
import {
  asTensor,
  type BodyTree,
  type Flat,
  flat,
  predicate,
  refill,
  valueOf,
} from './traced-values.ts';

/** A tree with its host numbers as tensors: what a body gets for the carry. */
type Carried<T> = T extends Tensor
  ? Tensor
  : T extends number | boolean
    ? Tensor
    : T extends string | null
      ? T
      : { [K in keyof T]: Carried<T[K]> };

/** Facts about the trips of a loop. */
export interface WhileOptions {
  /**
   * The loop ends after this many trips, whatever its condition says. Gradients and unrolling need
   * it.
   */
  readonly maxTrips?: number;
  /** How many trips are to be expected, for costs, where the number is not known. */
  readonly expectedTrips?: number;
}

/**
 * `while (test(carry)) carry = body(carry)` as one operator.
 *
 * @returns the final carry: the structure, shapes and dtypes of the first
 * @throws E_WHILE_COND when `test` gives no single bool; E_WHILE_CARRY naming the leaf that the
 *   body changes in type
 */
export function whileLoop<const C extends BodyTree>(
  test: (carry: Carried<C>) => Tensor,
  body: (carry: Carried<C>) => BodyTree,
  carry: C,
  options: WhileOptions = {},
): Carried<C> {
  checkType('whileLoop', 'test', test, 'function');
  checkType('whileLoop', 'body', body, 'function');
  const position = sourcePosition();
  return whileAny(
    (c) => test(c as Carried<C>),
    (c) => body(c as Carried<C>),
    carry,
    options,
    position,
  ) as Carried<C>;
}

/** `whileLoop` without the types of its carry. */
export function whileAny(
  test: (carry: unknown) => unknown,
  body: (carry: unknown) => unknown,
  carry: unknown,
  { maxTrips, expectedTrips }: WhileOptions,
  position: string | undefined,
  reason = 'explicit operator',
): unknown {
  const recorder = needRecorder('whileLoop()');
  refuseTrips(recorder, { maxTrips, expectedTrips });
  const {
    carry: init,
    traced: [condition, step],
  } = traceWhile(recorder, test, body, ownedTree(recorder, carry));
  const inputs = init.leaves.map(({ leaf }) => leaf);
  const goesOn = condition.result.kind === 'leaf' ? condition.result.leaf : undefined;
  const checked = predicate(
    condition.recorder,
    goesOn === undefined ? condition.result.kind : asTensor(goesOn),
    'E_WHILE_COND',
    'the condition of whileLoop',
  );
  const next = carryOf(step.recorder, step.result, init, 'E_WHILE_CARRY');
  const read = captures([condition, step]);
  const all = [...inputs, ...read];
  const refs = operandRefs(recorder, all, 'whileLoop');
  const conditionName = recorder.subgraph(
    condition.recorder.name,
    finishBody(condition, [checked]),
  );
  const bodyRef = recorder.subgraph(step.recorder.name, finishBody(step, next));
  const args: Arg[] = [
    { kind: 'graph', name: conditionName },
    { kind: 'graph', name: bodyRef },
    refs.slice(0, inputs.length),
    refs.slice(inputs.length),
  ];
  const results = next.map((value) => resultLike(value, all));
  const made = recorder.controlCall('while_loop', args, results, {
    ...defined({ max_trips: maxTrips, expected_trips: expectedTrips }),
  });
  note(recorder, 'while_loop', 'operators', reason, position);
  return tensorsOf(refill(init.tree, present(made)));
}

/** @throws E_WHILE_COND for a number of trips that is not a whole number from 0 */
function refuseTrips(
  recorder: Recorder,
  options: Readonly<Record<string, number | undefined>>,
): void {
  for (const [name, trips] of Object.entries(options))
    if (trips !== undefined && !(Number.isSafeInteger(trips) && trips >= 0))
      throw refusal(
        'E_WHILE_COND',
        `${name} must be a whole number from 0, but is ${trips}`,
        recorder.trace.place(),
      );
}

/** The condition and the body of a while loop, on a carry of the types that the body leaves. */
function traceWhile(
  recorder: Recorder,
  test: (carry: unknown) => unknown,
  body: (carry: unknown) => unknown,
  given: ReturnType<typeof ownedTree>,
) {
  const [testName, stepName] = [bodyName(recorder, 'while_cond'), bodyName(recorder, 'while_body')];
  return withSettledCarry(recorder, given, (start) => {
    const values = start.leaves.map(({ leaf }) => leaf);
    const asked = traceBody(recorder, testName, values, (now) =>
      test(tensorsOf(refill(start.tree, now))),
    );
    const run = traceBody(
      recorder,
      stepName,
      values,
      (now) => body(tensorsOf(refill(start.tree, now))),
      asked.recorder.captured.keys(),
    );
    return { next: run.result, traced: [asked, run] as const };
  });
}

/** Length, direction and dim of a scan. */
export interface ScanOptions {
  /** Number of trips; needed where nothing is scanned. */
  readonly length?: number;
  /** Scans from the last row to the first; a result is in the row that it came from. */
  readonly reverse?: boolean;
  /** Dim of `xs` that is scanned, 0 by default. Results are always stacked along dim 0. */
  readonly dim?: number;
  /** The backward pass computes the body again from the carry instead of reading saved values. */
  readonly checkpoint?: boolean;
}

/**
 * `[carry, y] = body(carry, x)` for the rows x of `xs`, one after the other, as one operator.
 *
 * @param xs a tensor or a tree of tensors with equal sizes along the scanned dim; null or undefined
 *   for none
 * @returns the final carry, and the ys stacked along a new dim 0
 * @throws E_SCAN_LENGTH when the scanned sizes differ or none is given; E_SCAN_CARRY when the body
 *   changes the carry in type
 */
export function scan<const C extends BodyTree, const X extends BodyTree, Y extends BodyTree>(
  body: (carry: Carried<C>, x: X) => readonly [BodyTree, Y],
  init: C,
  xs: X,
  options: ScanOptions = {},
): [Carried<C>, Y] {
  checkKinds('scan', { body: [body, 'function'] });
  return scanAny((c, x) => body(c as Carried<C>, x as X), init, xs, options) as [Carried<C>, Y];
}

/** `scan` without the types of its trees. */
function scanAny(
  body: (carry: unknown, x: unknown) => unknown,
  init: unknown,
  xs: unknown,
  options: ScanOptions,
): [unknown, unknown] {
  checkKinds('scan', { options: [options, 'record'] });
  const recorder = needRecorder('scan()');
  const { reverse = false, checkpoint = false, dim = 0 } = options;
  const given = ownedTree(recorder, init);
  const scalars = withScalars(recorder, given);
  const rows = rowsOf(recorder, xs, dim, 'scan');
  const scanned = rows.leaves.map(({ leaf }) => leaf);
  const length = lengthOf(recorder, rows, options.length, 'scan');
  const { carry, traced: step } = traceScan(recorder, body, { given, scalars, rows });
  const inputs = carry.leaves.map(({ leaf }) => leaf);
  const pair = step.result;
  if (pair.kind !== 'list' || pair.items.length !== 2)
    throw refusal(
      'E_SCAN_CARRY',
      `the body of scan must return [carry, y], but returns ${treeTypes(pair)}`,
      recorder.trace.place(),
      {
        hint: 'return [carry, null] where there is nothing to stack.',
      },
    );
  const next = carryOf(step.recorder, pair.items[0], carry, 'E_SCAN_CARRY');
  const ys = recordInto(step.recorder, () => flat(withScalars(step.recorder, pair.items[1])));
  const read = captures([step]);
  const results = [...next, ...ys.leaves.map(({ leaf }) => leaf)];
  const all = [...inputs, ...scanned, ...read];
  const name = recorder.subgraph(step.recorder.name, finishBody(step, results));
  const made = recorder.controlCall(
    'scan',
    [
      { kind: 'graph', name },
      ...[inputs, scanned, read].map((values) => operandRefs(recorder, values, 'scan')),
    ],
    results.map((value, i) => resultLike(i < inputs.length ? value : stacked(value, length), all)),
    {
      ...(scanned.length === 0 ? { length: numberOf(recorder, length) } : {}),
      ...(reverse ? { reverse } : {}),
      ...(checkpoint ? { checkpoint } : {}),
    },
  );
  note(recorder, 'scan', 'operators', 'explicit operator');
  const values = present(made);
  const last = tensorsOf(refill(carry.tree, values.slice(0, inputs.length)));
  return [last, tensorsOf(refill(ys.tree, values.slice(inputs.length)))];
}

/** The values that a scan starts from. */
interface ScanStart {
  readonly given: ReturnType<typeof ownedTree>;
  /** The same with numbers as tensors. */
  readonly scalars: ReturnType<typeof withScalars>;
  readonly rows: ReturnType<typeof rowsOf>;
}

/** The body of a scan on one row, with a carry of the types that the body leaves. */
function traceScan(
  recorder: Recorder,
  body: (carry: unknown, x: unknown) => unknown,
  { given, scalars, rows }: ScanStart,
) {
  const title = bodyName(recorder, 'scan_body');
  return withSettledCarry(
    recorder,
    given,
    (start) => {
      const values = start.leaves.map(({ leaf }) => leaf);
      const run = traceBody(
        recorder,
        title,
        [...values, ...rows.leaves.map(({ leaf }) => sliceOf(leaf))],
        (now) => {
          const c = tensorsOf(refill(start.tree, now.slice(0, values.length)));
          return body(c, tensorsOf(refill(rows.tree, now.slice(values.length))));
        },
      );
      const { result } = run;
      return {
        next: result.kind === 'list' && result.items.length === 2 ? result.items[0] : result,
        traced: run,
      };
    },
    scalars,
  );
}

/**
 * `fn(x, ...args)` for every row x of `xs`, each on its own, as one operator.
 *
 * @param args tensors that are the same for every row; outer tensors that `fn` reads are found by
 *   themselves
 * @returns the results stacked along a new dim 0
 * @throws E_SCAN_LENGTH when the rows differ in number
 */
export function map<const X extends BodyTree, Y extends BodyTree>(
  fn: (x: X, ...args: Tensor[]) => Y,
  xs: X,
  ...args: Tensor[]
): Y {
  checkKinds('map', { fn: [fn, 'function'] });
  const recorder = needRecorder('map()');
  const rows = rowsOf(recorder, xs, 0, 'map');
  const length = lengthOf(recorder, rows, undefined, 'map');
  const given = args.map((arg) => recorder.own(valueOf(arg, 'an argument of map'), 'map'));
  const count = rows.leaves.length;
  const inputs = [...rows.leaves.map(({ leaf }) => sliceOf(leaf)), ...given];
  const step = traceBody(recorder, bodyName(recorder, 'map_body'), inputs, (values) => {
    const x = tensorsOf(refill(rows.tree, values.slice(0, count))) as X;
    return fn(x, ...values.slice(count).map(asTensor));
  });
  const ys = recordInto(step.recorder, () => flat(withScalars(step.recorder, step.result)));
  const outs = ys.leaves.map(({ leaf }) => leaf);
  const read = [...given, ...captures([step])];
  const xsValues = rows.leaves.map(({ leaf }) => leaf);
  const name = recorder.subgraph(step.recorder.name, finishBody(step, outs));
  const made = recorder.controlCall(
    'map',
    [
      { kind: 'graph', name },
      operandRefs(recorder, xsValues, 'map'),
      operandRefs(recorder, read, 'map'),
    ],
    outs.map((value) => resultLike(stacked(value, length), [...xsValues, ...read])),
  );
  note(recorder, 'map', 'operators', 'explicit operator');
  return tensorsOf(refill(ys.tree, present(made))) as Y;
}

/**
 * `for (i = lo; i < hi; i++) carry = body(i, carry)` as one operator: a scan where both bounds are
 * numbers, a while loop where one is a tensor. `i` is an i64 scalar.
 *
 * @throws E_SCAN_CARRY, E_WHILE_CARRY when the body changes the carry in type
 */
export function foriLoop<const C extends BodyTree>(
  lo: number | Tensor,
  hi: number | Tensor,
  body: (i: Tensor, carry: Carried<C>) => BodyTree,
  init: C,
  options: WhileOptions & Pick<ScanOptions, 'checkpoint'> = {},
): Carried<C> {
  checkKinds('foriLoop', { body: [body, 'function'], options: [options, 'record'] });
  const recorder = needRecorder('foriLoop()');
  for (const bound of [lo, hi])
    if (typeof bound !== 'number') needTensor(bound, 'a bound of foriLoop');
  if (typeof lo === 'number' && typeof hi === 'number') {
    if (hi <= lo) {
      recorder.trace.notes.push(
        `foriLoop at ${sourcePosition() ?? 'an unknown place'} has no trips: ${lo} to ${hi}`,
      );
      return tensorsOf(withScalars(recorder, ownedTree(recorder, init))) as Carried<C>;
    }
    const { checkpoint = false } = options;
    const counter = arange(hi, { start: lo, dtype: 'i64' });
    const step = (carry: unknown, i: unknown): unknown => [
      body(i as Tensor, carry as Carried<C>),
      null,
    ];
    return scanAny(step, init, counter, { checkpoint })[0] as Carried<C>;
  }
  const [, last] = whileAny(
    (state) => {
      const [i] = state as [Tensor, unknown];
      return i.lt(hi);
    },
    (state) => {
      const [i, carry] = state as [Tensor, unknown];
      return [i.add(1), body(i, carry as Carried<C>)];
    },
    [lo, init],
    options,
    sourcePosition(),
    'foriLoop with a tensor bound',
  ) as [Tensor, unknown];
  return last as Carried<C>;
}

/** The scanned tensors, their rows along dim 0. */
export function rowsOf(recorder: Recorder, xs: unknown, dim: number, what: string): Flat {
  // A scan over nothing may also leave it out.
  const rows = flat(ownedTree(recorder, xs ?? null));
  for (const { path, leaf } of rows.leaves)
    if (leaf.shape.length === 0 || dim >= leaf.shape.length || dim < -leaf.shape.length)
      throw refusal(
        'E_SCAN_LENGTH',
        `${what}: ${valueText(leaf)}${path === '' ? '' : ` ('${path}')`} has no dim ${dim} ` +
          'to go along',
        recorder.trace.place(),
      );
  if (dim === 0) return rows;
  const moved = rows.leaves.map(({ leaf }) =>
    leaf.shape.length + dim === 0
      ? leaf
      : valueOf(apply('aten.movedim.int', [asTensor(leaf), dim, 0]), what),
  );
  return flat(refill(rows.tree, moved));
}

export function lengthOf(
  recorder: Recorder,
  rows: Flat,
  stated: number | undefined,
  what: string,
): Size {
  const sizes: (readonly [where: string, size: Size])[] = rows.leaves.map(({ path, leaf }) => [
    path,
    leaf.shape[0],
  ]);
  if (stated !== undefined) sizes.push(['length', stated]);
  const [first] = sizes;
  const wrong = sizes.find(([, size]) => sizeText(size) !== sizeText(first[1]));
  if (
    sizes.length > 0 &&
    wrong === undefined &&
    (typeof first[1] !== 'number' || (Number.isSafeInteger(first[1]) && first[1] >= 0))
  )
    return first[1];
  const listed = sizes
    .map(([where, size]) => `${where === '' ? 'xs' : where} ${sizeText(size)}`)
    .join(', ');
  throw refusal(
    'E_SCAN_LENGTH',
    sizes.length === 0
      ? `${what} needs a length: nothing is scanned`
      : `${what}: the scanned sizes differ: ${listed}`,
    recorder.trace.place(),
    {
      hint:
        'all scanned tensors must have the same size along the scanned dim; without any, give ' +
        '{ length }.',
    },
  );
}

/** A length that an attribute must state. */
function numberOf(recorder: Recorder, length: Size): number {
  if (typeof length === 'number') return length;
  throw refusal(
    'E_SCAN_LENGTH',
    `a scan of length ${length.sym} needs a scanned tensor of that size`,
    recorder.trace.place(),
  );
}

/** The values that a body returns for the carry, leaf by leaf like the carry. */
function carryOf(
  recorder: Recorder,
  result: Tree<TracedValue>,
  init: Flat,
  code: 'E_WHILE_CARRY' | 'E_SCAN_CARRY',
): TracedValue[] {
  const like = new Map(init.leaves.map(({ path, leaf }) => [path, leaf]));
  const prefix = commonPrefix(result, init.tree);
  const tree = recordInto(recorder, () => withScalars(recorder, prefix, like));
  const what = code === 'E_WHILE_CARRY' ? 'the body of whileLoop' : 'the body of scan';
  const fail = (message: string): never => {
    throw refusal(
      code,
      `${what} must return a carry like the one it got: ${message}`,
      recorder.trace.place(),
      {
        hint:
          'the carry keeps its structure, shapes and dtypes on every trip; pad it, or return ' +
          'growing values as ys of a scan.',
      },
    );
  };
  if (treeText(tree) !== treeText(init.tree))
    fail(`expected ${treeTypes(init.tree)}, got ${treeTypes(tree)}`);
  const leaves = flat(tree).leaves.map(({ leaf }, i) => {
    const wanted = init.leaves[i];
    if (valueText(leaf) !== valueText(wanted.leaf))
      fail(
        `leaf ${wanted.path === '' ? 'carry' : `'${wanted.path}'`}: expected ` +
          `${valueText(wanted.leaf)}, got ${valueText(leaf)}`,
      );
    return leaf;
  });
  if (treeTypes(tree) !== treeTypes(init.tree))
    fail(`expected ${treeTypes(init.tree)}, got ${treeTypes(tree)}`);
  return leaves;
}

function sliceOf(value: TracedValue): TracedValue {
  return { ...value, shape: value.shape.slice(1) };
}

function stacked(value: TracedValue, length: Size): TracedValue {
  const shape = [length, ...value.shape];
  const plain = typeof length === 'number' ? length : { sym: length.sym, example: length.example };
  return { ...value, shape, type: { ...value.type, shape: [plain, ...value.type.shape] } };
}

function present(values: readonly (TracedValue | undefined)[]): TracedValue[] {
  return values.filter((value) => value !== undefined);
}
