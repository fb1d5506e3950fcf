/**
 * Takes a call and the shardings of its inputs and gives the cheapest strategy with the
 * redistributions that it needs.
 */

import { internalError, ShardwrightError } from '../errors.ts';
import type { Placement } from '../mesh/placements/placement.ts';
import type { ShardingSpace } from '../mesh/sharding/space.ts';
import { expandRows } from '../ops/expansion/expand.ts';
import type { ProductOptions } from '../ops/expansion/row-product.ts';
import type { OperatorRecord, TypedContext } from '../ops/record/record.ts';
import type { Rule } from '../ops/record/rule.ts';
import { type FillOptions, fillRules } from './fill.ts';
import { MovePrices, type Prices } from './prices.ts';
import { cheapest, type SearchedCall } from './search.ts';

/**
 * Propagation of one call: given the shardings of its inputs, the strategy to take and what the
 * inputs cost to bring there. This is the eager reading of the rules, for a baseline that never
 * looks ahead and for checks against DTensor.
 */
export interface PropagateOptions extends FillOptions {
  /** `priority` (default) searches best first; `enumerate` prices every candidate. */
  readonly search?: 'priority' | 'enumerate';
  readonly uneven?: 'allow' | 'forbid';
}

/** One mesh dim of one input changes its placement. */
interface Change {
  readonly input: number;
  readonly meshDim: number;
  readonly from: Placement;
  readonly to: Placement;
}

interface Propagation {
  /** Sharding ids that the inputs are brought to. */
  readonly inputs: readonly number[];
  /** Sharding ids of the results; -1 where masked off. */
  readonly outputs: readonly number[];
  /** Seconds for each input, and in all. */
  readonly costs: readonly number[];
  readonly cost: number;
  /** The rule taken on each mesh dim. */
  readonly rules: readonly Rule[];
  readonly changes: readonly Change[];
  readonly how: 'priority' | 'enumerate';
  /** Candidates priced, of an enumeration. */
  readonly candidates?: number;
  /** Entries taken from the heap, of a search: 0 when the inputs could stay as they are. */
  readonly pops?: number;
}

/**
 * @param call the call at global sizes
 * @param given sharding id of each tensor input, in schema order
 * @throws E_PLACEMENT when no strategy is feasible, or an in-place operator would have to move what
 *   it writes
 */
export function propagate(
  space: ShardingSpace,
  record: OperatorRecord,
  call: TypedContext,
  given: readonly number[],
  prices: Prices,
  options: PropagateOptions = {},
): Propagation {
  const { inputs, outputs } = call;
  if (given.length !== inputs.length)
    throw new ShardwrightError(
      'E_PLACEMENT',
      `${record.name} has ${inputs.length} tensor inputs, got ${given.length} placements`,
    );
  const shardings = given.map((id) => space.get(id));
  const asked: Question = {
    space,
    name: record.name,
    call,
    given,
    filled: fillRules(space, record.shard(call), inputs, outputs, shardings, options),
    moves: inputs.map((meta, i) => new MovePrices(prices, meta, given[i])),
    expansion: { uneven: options.uneven ?? 'allow', unitDims: 'expand', patterns: 'any' },
    keeps: isInPlace(record.name) ? given[0] : undefined,
  };
  return (options.search === 'enumerate' ? undefined : searched(asked)) ?? enumerated(asked);
}

/** The same call with the name of its operator. */
interface Question extends SearchedCall {
  readonly name: string;
  readonly call: TypedContext;
  readonly expansion: Pick<ProductOptions, 'uneven' | 'unitDims' | 'patterns'>;
}

/** Undefined where the enumeration must decide. */
function searched(question: Question): Propagation | undefined {
  const found = cheapest(question);
  const { space, filled, given, moves } = question;
  if (found === undefined) return undefined;
  return {
    inputs: found.inputs,
    outputs: found.outputs,
    ...costsOf(moves, found.inputs),
    rules: found.picked.map((row) => filled.rules[filled.rows[row].rule]),
    changes: changesOf(space, given, found.inputs),
    how: 'priority',
    pops: found.pops,
  };
}

function enumerated({
  space,
  name,
  call: { inputs, outputs },
  given,
  filled,
  moves,
  expansion,
  keeps,
}: Question): Propagation {
  const set = expandRows(space, filled.rules, filled.rows, inputs, outputs, expansion);
  const width = set.inputCount + set.outputCount;
  const idsAt = (s: number): Int32Array => set.specs.subarray(s * width, (s + 1) * width);
  let list = Array.from({ length: set.count }, (_, s) => s);
  if (keeps !== undefined) {
    list = list.filter((s) => idsAt(s)[0] === keeps && idsAt(s)[set.inputCount] === keeps);
    if (list.length === 0) throw inPlaceError(name, space.text(keeps));
  }
  const best = choose(list, idsAt, given, moves);
  if (best === undefined)
    throw new ShardwrightError(
      'E_PLACEMENT',
      `${name}: no feasible strategy for ` +
        given.map((id) => space.get(id).orderedText).join(', '),
    );
  const ids = idsAt(best);
  const taken = Array.from(ids.subarray(0, set.inputCount));
  const { meshRank } = space;
  return {
    inputs: taken,
    outputs: Array.from(ids.subarray(set.inputCount)),
    ...costsOf(moves, taken),
    rules: Array.from(
      set.choice.subarray(best * meshRank, (best + 1) * meshRank),
      (r) => filled.rules[r],
    ),
    changes: changesOf(space, given, taken),
    how: 'enumerate',
    candidates: list.length,
  };
}

/** Costs within this relative distance are equal; the order of the list decides. */
const SAME_COST = 1e-12;

/**
 * The one that moves nothing, else the first that costs nothing, else the first of the cheapest.
 */
function choose(
  list: readonly number[],
  idsAt: (s: number) => Int32Array,
  given: readonly number[],
  moves: readonly MovePrices[],
): number | undefined {
  for (const s of list) if (given.every((id, i) => idsAt(s)[i] === id)) return s;
  moves.forEach((move, i) => move.prepare([...new Set(list.map((s) => idsAt(s)[i]))]));
  let best: number | undefined;
  let least = Infinity;
  for (const s of list) {
    const ids = idsAt(s);
    let cost = 0;
    for (let i = 0; i < moves.length; i++) cost += moves[i].seconds(ids[i]);
    if (cost < Infinity && (least === Infinity || cost < least * (1 - SAME_COST)))
      [best, least] = [s, cost];
  }
  return best;
}

function costsOf(
  moves: readonly MovePrices[],
  ids: readonly number[],
): { costs: number[]; cost: number } {
  const costs = moves.map((move, i) => (move.from === ids[i] ? 0 : move.seconds(ids[i])));
  return { costs, cost: costs.reduce((a, b) => a + b, 0) };
}

function changesOf(
  space: ShardingSpace,
  given: readonly number[],
  taken: readonly number[],
): Change[] {
  return taken.flatMap((id, input) => {
    const [before, after] = [space.get(given[input]).placements, space.get(id).placements];
    return before.flatMap((from, meshDim) =>
      from.equals(after[meshDim]) ? [] : [{ input, meshDim, from, to: after[meshDim] }],
    );
  });
}

/**
 * In-place operators write into their first argument, which must stay where it is: `add_`,
 * `__iand__`.
 */
function isInPlace(name: string): boolean {
  const base = name.split('.')[1];
  if (base === undefined) throw internalError(`operator name '${name}' has no namespace`);
  return /^__i\w+__$/.test(base) || (base.endsWith('_') && !base.endsWith('__'));
}

function inPlaceError(name: string, placement: string): ShardwrightError {
  return new ShardwrightError(
    'E_PLACEMENT',
    `${name}: in-place operations that require placement changes are not supported. The ` +
      `input has placement ${placement}, but no valid strategy preserves this placement.`,
    { hint: 'use the form that returns a new tensor' },
  );
}
