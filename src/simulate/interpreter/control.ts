/**
 * Runs control-flow calls on values of all ranks: takes a call and its operands, gives its results.
 */

import { ShardwrightError } from '../../errors.ts';
import { CONTROL_TARGETS, scanPositions } from '../../graph/control.ts';
import type { Arg, Node, ValueType } from '../../graph/types.ts';
import { exampleShape, getOwn, isGraphRef, isList, isRef } from '../../graph/value.ts';
import { fromFlat, NDArray, sizeOf } from '../../ndarray/array.ts';
import { ofParts, partType } from '../../ndarray/complex.ts';
import { concat, select, unsqueeze } from '../../ndarray/views.ts';
import type { Value } from './values.ts';

/** A value on each rank; a run without ranks has one. */
export type RankValues = readonly Value[];

/**
 * Control-flow calls on values: which body runs, how often, and on what. The forms of the calls are
 * those of `graph/control`. All ranks run in step, so what decides must be the same on all of them.
 */
interface ControlFrame {
  readonly ranks: number;
  /** Value of a name of the graph in hand. */
  value(name: string): RankValues;
  /** Stated type of the call on a rank. */
  type(rank: number): ValueType;
  readonly maxTrips: number;
  /** Runs a body; `trip` counts its runs within this call. */
  run(body: string, inputs: readonly RankValues[], trip: number): RankValues[];
}

const CONTROL = new Set(CONTROL_TARGETS);

export function isControl(target: string): boolean {
  return CONTROL.has(target);
}

/**
 * Results of a control-flow call.
 *
 * @throws E_TYPE when it does not have the form of its target; E_VERIFY when ranks would go
 *   different ways
 */
export function controlFlow(node: Node, frame: ControlFrame): readonly RankValues[] {
  const { target, args } = node;
  const body = (at: number): string => {
    const arg: Arg | undefined = args[at];
    if (arg === undefined || !isGraphRef(arg))
      throw malformed(target, `argument ${at} must be a subgraph`);
    return arg.name;
  };
  const operands = (at: number): RankValues[] => {
    const arg: Arg | undefined = args[at];
    if (arg === undefined || !isList(arg))
      throw malformed(target, `argument ${at} must be a list of values`);
    return arg.map((member) => operand(member, frame));
  };
  switch (target) {
    case 'call':
      return frame.run(body(0), operands(1), 0);
    case 'case':
      return frame.run(branchOf(node, operand(args[0], frame)), operands(2), 0);
    case 'cond':
      return frame.run(truth(target, operand(args[0], frame)) ? body(1) : body(2), operands(3), 0);
    case 'while_loop':
      return whileLoop(node, frame, {
        condition: body(0),
        step: body(1),
        init: operands(2),
        captured: args.length > 3 ? operands(3) : [],
      });
    case 'scan':
    case 'map':
    case 'map_impl': {
      const at = scanPositions(target);
      const captured = args.length > at.captured ? operands(at.captured) : [];
      return scan(node, frame, {
        step: body(0),
        init: at.init === undefined ? [] : operands(at.init),
        xs: operands(at.xs),
        captured,
      });
    }
    case 'wrap_with_set_grad_enabled':
    case 'wrap_with_autocast': {
      const at = target === 'wrap_with_autocast' ? 4 : 1;
      return frame.run(
        body(at),
        args.slice(at + 1).map((arg) => operand(arg, frame)),
        0,
      );
    }
    default:
      throw new ShardwrightError('E_NO_KERNEL', `control flow by ${target} is not evaluated`);
  }
}

/**
 * The branch of a `case` that the index names; the last one for an index outside, as StableHLO has
 * it.
 */
function branchOf({ target, args }: Node, index: RankValues): string {
  const list: Arg | undefined = args[1];
  if (list === undefined || !isList(list))
    throw malformed(target, 'argument 1 must be a list of subgraphs');
  const at = agreed(target, index, (x) => (x instanceof NDArray ? x.item() : x));
  const branch = list[typeof at === 'number' && at >= 0 && at < list.length ? at : list.length - 1];
  if (branch === undefined || !isGraphRef(branch))
    throw malformed(target, 'a branch is not a subgraph');
  return branch.name;
}

/** A loop: the body of a trip, the carry at first, and what every trip reads. */
interface LoopParts {
  readonly step: string;
  readonly init: readonly RankValues[];
  readonly captured: readonly RankValues[];
}

function whileLoop(
  { target, kwargs }: Node,
  frame: ControlFrame,
  { condition, step, init, captured }: LoopParts & { readonly condition: string },
): readonly RankValues[] {
  let carried = init;
  // A stated bound ends the loop whatever its condition says.
  const bound = getOwn(kwargs, 'max_trips');
  for (let trip = 0; ; trip++) {
    if (trip === bound) return carried;
    const [goesOn] = frame.run(condition, [...carried, ...captured], trip);
    if (!truth(target, goesOn ?? [null])) return carried;
    if (trip === frame.maxTrips)
      throw new ShardwrightError(
        'E_LIMIT',
        `while_loop runs for more than ${frame.maxTrips} trips`,
        {
          hint: 'check its condition, or raise the option `maxTrips`',
        },
      );
    carried = frame.run(step, [...carried, ...captured], trip);
  }
}

/**
 * One run for each row of the scanned values; what the body returns beyond the carry is stacked.
 */
function scan(
  node: Node,
  frame: ControlFrame,
  { step, init, xs, captured }: LoopParts & { readonly xs: readonly RankValues[] },
): readonly RankValues[] {
  const { target, kwargs } = node;
  const arrays = xs.map((byRank) =>
    byRank.map((x) => {
      if (x instanceof NDArray && x.rank > 0) return x;
      throw malformed(target, 'a scanned value must be an array with dims');
    }),
  );
  const stated = getOwn(kwargs, 'length');
  const length = arrays[0]?.[0]?.shape[0] ?? stated;
  if (typeof length !== 'number')
    throw malformed(target, 'a scan without scanned values needs a length');
  if (arrays.some((byRank) => byRank.some((x) => x.shape[0] !== length)))
    throw malformed(target, 'scanned values differ in length');
  const backwards = getOwn(kwargs, 'reverse') === true;
  let carried = init;
  const rows: NDArray[][][] = [];
  for (let trip = 0; trip < length; trip++) {
    const row = backwards ? length - 1 - trip : trip;
    const sliced = arrays.map((byRank) => byRank.map((x) => select(x, 0, row)));
    const results = frame.run(step, [...carried, ...sliced, ...captured], trip);
    carried = results.slice(0, init.length);
    results.slice(init.length).forEach((byRank, k) => {
      byRank.forEach((y, rank) => {
        if (!(y instanceof NDArray)) throw malformed(target, 'a body must return arrays to stack');
        ((rows[k] ??= [])[rank] ??= [])[row] = unsqueeze(y, 0);
      });
    });
  }
  if (length === 0) return [...init, ...noRows(node, frame, init.length)];
  return [...carried, ...rows.map((byRank) => byRank.map((ys) => concat(ys, 0)))];
}

/** The stacked results of a scan without trips: its stated types give the type of the rows. */
function noRows({ target }: Node, frame: ControlFrame, carried: number): RankValues[] {
  const byRank = Array.from({ length: frame.ranks }, (_, rank) => {
    const type = frame.type(rank);
    return (type.kind === 'tuple' ? type.items.slice(carried) : []).map((item) => {
      if (
        item.kind !== 'tensor' ||
        !item.shape.every((dim) => typeof dim === 'number' || dim.example !== undefined)
      )
        throw malformed(target, 'a scan of no rows gives no values to stack');
      const shape = exampleShape(item, 0);
      const zeros = fromFlat(shape, new Float64Array(sizeOf(shape)), partType(item.dtype));
      return ofParts([zeros, zeros], item.dtype);
    });
  });
  return byRank[0].map((_, k) => byRank.map((items) => items[k]));
}

function operand(arg: Arg, frame: ControlFrame): RankValues {
  if (isRef(arg)) return frame.value(arg.name);
  const everywhere = (value: Value): RankValues => new Array<Value>(frame.ranks).fill(value);
  if (typeof arg === 'number' || arg === null) return everywhere(arg);
  if (typeof arg === 'boolean') return everywhere(arg ? 1 : 0);
  if (
    !isList(arg) &&
    typeof arg === 'object' &&
    arg.kind === 'size' &&
    arg.size.example !== undefined
  )
    return everywhere(arg.size.example);
  throw new ShardwrightError(
    'E_TYPE',
    'an operand of a control-flow call must be a value or an integer',
  );
}

function truth(target: string, byRank: RankValues): boolean {
  return agreed(target, byRank, (value) => {
    if (typeof value === 'number') return value !== 0;
    if (value instanceof NDArray && value.size === 1) return value.item() !== 0;
    throw malformed(target, 'the condition must be one bool');
  });
}

/** A reading of a value that all ranks must agree on. */
function agreed<T>(target: string, byRank: RankValues, read: (value: Value) => T): T {
  const [first, ...others] = byRank.map(read);
  if (others.every((other) => other === first)) return first;
  throw new ShardwrightError('E_VERIFY', `${target}: ranks decide differently`);
}

function malformed(target: string, message: string): ShardwrightError {
  return new ShardwrightError('E_TYPE', `${target}: ${message}`);
}
