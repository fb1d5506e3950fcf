/** Judges single-dim rules by execution on one mesh dim of some ranks. */

import { ShardwrightError } from '../../errors.ts';
import type { DType } from '../../graph/types.ts';
import type { ReduceOp } from '../../mesh/placements/placement.ts';
import type { NDArray } from '../../ndarray/array.ts';
import { isComplexType, numbersOf } from '../../ndarray/complex.ts';
import type { TensorMeta } from '../../ops/record/record.ts';
import {
  LINEAR_KINDS,
  P,
  R,
  type Rule,
  rule,
  type RuleSlot,
  S,
  slotText,
} from '../../ops/record/rule.ts';
import type { Draw } from '../../ops/samples/values.ts';
import { product } from '../../product.ts';
import { chunkOf, holds, type Piece, place } from './pieces.ts';
import { type Group, localSizes, runGroup, type Window } from './rewrites.ts';
import type { Results, SampleCall } from './sample-call.ts';

/** Values of all tensors of a call, and its results on them. */
export interface Trial {
  readonly inputs: readonly NDArray[];
  readonly truth: Results;
  /** Parts of an input by its slot and the number of ranks. */
  readonly parts: Map<string, readonly Piece[]>;
}

const DRAWS: readonly Draw[] = [
  ...(['plain', 'ties', 'sparse', 'dense'] as const),
  ...Array.from(
    { length: 20 },
    (_, i): Draw => (['ties', 'plain', 'ties', 'sparse', 'dense'] as const)[i % 5],
  ),
];

/**
 * Draws of a call: smooth values, small integers that tie and vanish, bools that are mostly one
 * value. A draw whose results are not all finite is void (it would judge what 1/0 is), unless every
 * one is, as of memory that is not set.
 *
 * @throws what the kernels throw, when no draw can be run
 */
export function trialsOf(sample: SampleCall): Trial[] {
  const trials: Trial[] = [];
  let failure: unknown;
  for (const [seed, how] of DRAWS.entries()) {
    try {
      const inputs = sample.draw(seed + 1, how);
      trials.push({ inputs, truth: sample.run(inputs), parts: new Map() });
    } catch (error) {
      failure = error;
    }
  }
  const sound = trials.filter(({ truth }) =>
    truth.every((x) => x === null || numbersOf(x).every(Number.isFinite)),
  );
  if (trials.length === 0) throw failure;
  return distinct(sound.length > 0 ? sound : trials);
}

/** Calls whose operands have one way to be drawn, or none, are tried once or twice. */
function distinct(trials: readonly Trial[]): Trial[] {
  const seen = new Set<string>();
  return trials.filter(({ inputs, truth }) => {
    const key = [...inputs, ...truth].map((x) => (x === null ? '' : numbersOf(x).join())).join(';');
    return !seen.has(key) && seen.add(key);
  });
}

/** Tells whether a result is absent, empty, or one and the same in every draw. */
export function isConstant(trials: readonly Trial[], k: number): boolean {
  let known = constants.get(trials);
  if (known === undefined) constants.set(trials, (known = []));
  return (known[k] ??= sameInEvery(trials, k));
}

/** Every combination of placements asks the same of the same trials. */
const constants = new WeakMap<readonly Trial[], boolean[]>();

function sameInEvery(trials: readonly Trial[], k: number): boolean {
  const first = trials[0]?.truth[k];
  if (first === null || first === undefined || first.size === 0) return true;
  if (trials.length < 2) return false;
  const values = numbersOf(first);
  return trials.every(({ truth: { [k]: other } }) => {
    if (other === null || other === undefined || other.size !== first.size) return false;
    const own = numbersOf(other);
    // The sign of a zero tells nothing.
    return values.every((v, i) => v === own[i] || (Number.isNaN(v) && Number.isNaN(own[i])));
  });
}

function partsOf(
  sample: SampleCall,
  trial: Trial,
  [i, slot]: readonly [input: number, slot: RuleSlot],
  ranks: number,
  board: number,
): readonly Piece[] {
  const key = `${i} ${slotText(slot)} ${ranks} ${board}`;
  let parts = trial.parts.get(key);
  if (parts === undefined)
    trial.parts.set(
      key,
      (parts = place(trial.inputs[i], slot, ranks, {
        chunks: chunksOf(sample, slot),
        input: i,
        board,
      })),
    );
  return parts;
}

/** Chunks of which each rank has a piece: the indices of the dims that the cut lies inside of. */
function chunksOf(sample: SampleCall, slot: RuleSlot): number {
  if (slot?.kind !== 'shard' || slot.inside === null) return 1;
  const { inputs, outputs } = sample.ctx;
  const shape = [...inputs, ...outputs][slot.inside.tensor]?.shape ?? [];
  return product(slot.inside.dims.map((dim) => shape[dim]));
}

/**
 * The parts of the inputs that every rank holds, and the places of its results under some output
 * slots.
 */
function groupOf(sample: SampleCall, trial: Trial, r: Rule, ranks: number, board: number): Group {
  const byInput = r.inputs.map((slot, i) => partsOf(sample, trial, [i, slot], ranks, board));
  const byRank = Array.from({ length: ranks }, (_, rank) => byInput.map((pieces) => pieces[rank]));
  const outputs = byRank.map((_, rank) =>
    trial.truth.map((x, k) =>
      windowOf(x, r.outputs[k], chunksOf(sample, r.outputs[k]), ranks, rank),
    ),
  );
  return { sample, rule: r, inputs: byRank, outputs };
}

function windowOf(
  x: NDArray | null,
  slot: RuleSlot,
  chunks: number,
  ranks: number,
  rank: number,
): Window | null {
  if (x === null) return null;
  const starts = x.shape.map(() => 0);
  if (slot?.kind !== 'shard' || slot.dim >= x.rank) return { starts, shape: x.shape };
  const [start, count] = chunkOf(x.shape[slot.dim] / chunks, ranks, rank);
  starts[slot.dim] = start;
  return { starts, shape: x.shape.map((n, d) => (d === slot.dim ? count * chunks : n)) };
}

/**
 * Why a rule is wrong on some ranks, or undefined.
 *
 * @param r a rule that is admitted at these sizes
 */
export function refute(
  sample: SampleCall,
  trials: readonly Trial[],
  r: Rule,
  ranks: number,
): string | undefined {
  for (const [board, trial] of trials.entries()) {
    let results: readonly Results[];
    try {
      results = runGroup(groupOf(sample, trial, r, ranks, board));
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      return `the local call fails: ${error.code} ${error.message}`;
    }
    for (const [k, truth] of trial.truth.entries()) {
      if (truth === null) continue;
      const local = results.map((of) => of[k]);
      if (local.some((x) => x === null || x === undefined)) return `result ${k} is missing`;
      if (!holds(local as NDArray[], truth, r.outputs[k], chunksOf(sample, r.outputs[k])))
        return (
          `result ${k} is not ${slotText(r.outputs[k])}: rank 0 has ` +
          `${sketch(local[0] as NDArray)} of ${sketch(truth)}`
        );
    }
  }
  return undefined;
}

function sketch(x: NDArray): string {
  const values = Array.from(numbersOf(x).slice(0, 4), (v) => Number(v.toPrecision(4)));
  return `[${x.shape.join(', ')}] {${values.join(', ')}${x.size > 4 ? ', ..' : ''}}`;
}

// ---- every combination
// -----------------------------------------------------------------------------

const NUMBER_KINDS: readonly ReduceOp[] = ['sum', 'avg', 'max', 'min'];
const BOOL_KINDS: readonly ReduceOp[] = ['bor', 'band'];

/** Complex numbers have no order. */
function kindsOf(dtype: DType): readonly ReduceOp[] {
  return dtype === 'b8' ? BOOL_KINDS : isComplexType(dtype) ? LINEAR_KINDS : NUMBER_KINDS;
}

/**
 * Placements that an input is tried in: replicated, every dim with a row for each rank cut, pending
 * reductions.
 */
export function inputSlots(
  sample: SampleCall,
  i: number,
  ranks: number,
  kinds: 'all' | 'sum',
): RuleSlot[] {
  const { shape, dtype } = sample.ctx.inputs[i];
  const { init } = sample.spec(i);
  const cuts = shape.flatMap((size, d) => (size >= Math.max(2, ranks) ? [S(d)] : []));
  // Numbers of rows and random states are nothing to reduce.
  if (['index', 'signed-index', 'distinct', 'seven', 'starts'].includes(init)) return [R, ...cuts];
  const pending = kindsOf(dtype);
  return [R, ...cuts, ...(kinds === 'all' ? pending : pending.slice(0, 1)).map((op) => P(op))];
}

/**
 * Placements that a result is tried for; pending products where the rules speak of them (`kinds`).
 */
function outputSlots(meta: TensorMeta, ranks: number, kinds: readonly ReduceOp[] = []): RuleSlot[] {
  const cuts = meta.shape.flatMap((size, d) => (size >= Math.max(2, ranks) ? [S(d)] : []));
  const real = !['i', 'u', 'b'].includes(meta.dtype[0]) || meta.dtype === 'bf16';
  const pending = kindsOf(meta.dtype).filter((op) => real || op !== 'avg');
  const more = meta.dtype !== 'b8' && kinds.includes('product') ? (['product'] as const) : [];
  return [R, ...cuts, ...[...pending, ...more].map((op) => P(op))];
}

/**
 * The placements that each result has when the unchanged call runs on inputs placed so; undefined
 * when some result has none, null for a result that says nothing (`isConstant`). Where the call
 * states the size of its result, each rank states that of its piece.
 */
export function validOutputs(
  sample: SampleCall,
  trials: readonly Trial[],
  slots: readonly RuleSlot[],
  ranks: number,
  kinds: readonly ReduceOp[] = [],
): RuleSlot[][] | undefined {
  let open: RuleSlot[][] = sample.ctx.outputs.map((meta, k) =>
    meta === null || isConstant(trials, k) ? [null] : outputSlots(meta, ranks, kinds),
  );
  const probe = rule(
    slots,
    sample.ctx.outputs.map(() => R),
  );
  for (const [board, trial] of trials.entries()) {
    const group = groupOf(sample, trial, probe, ranks, board);
    const { truth } = trial;
    const stated = localSizes(sample, trial.inputs, truth[0]?.shape ?? []) !== undefined;
    const plain = stated ? undefined : runRanks(group, open);
    const ran: Ran = new Map();
    const next: RuleSlot[][] = [];
    for (const [k, candidates] of open.entries()) {
      const whole = truth[k];
      const fitting = candidates.filter((slot) => {
        if (whole === null || slot === null) return true;
        const results = stated ? sized(group, trial, [k, slot], ranks, ran) : plain;
        const local = results?.map((of) => of[k]);
        // A call on parts may have fewer results, such as the rows of a cut dim.
        return local !== undefined && local.every(isArray) && holds(local, whole, slot);
      });
      if (fitting.length === 0) return undefined;
      next.push(fitting);
    }
    open = next;
  }
  return open;
}

/**
 * The call on every rank; undefined when one fails, or when no placement that is open has pieces of
 * the sizes that the first rank gives, so that the other ranks need not run.
 */
function runRanks(
  group: Group,
  open: readonly (readonly RuleSlot[])[],
): readonly Results[] | undefined {
  const ranks = group.inputs.length;
  return attempt(() => {
    const all: Results[] = [];
    for (const pieces of group.inputs) {
      const own = group.sample.run(pieces.map((p) => p.array));
      all.push(own);
      if (
        all.length === 1 &&
        !open.every((slots, k) => slots.some((slot) => fits(group, own[k], slot, k, ranks)))
      )
        return undefined;
    }
    return all;
  });
}

/** Tells whether the first rank's result has the sizes of its piece under a slot. */
function fits(
  { outputs: [first] }: Group,
  x: NDArray | null | undefined,
  slot: RuleSlot,
  k: number,
  ranks: number,
): boolean {
  const whole = first[k]?.shape;
  if (slot === null || whole === undefined) return true;
  if (!isArray(x) || x.rank !== whole.length) return false;
  return x.shape.every(
    (n, d) =>
      n === (slot.kind === 'shard' && slot.dim === d ? chunkOf(whole[d], ranks, 0)[1] : whole[d]),
  );
}

/** The results of a rank, by the sizes that it stated; undefined where the call failed. */
type Ran = Map<string, Results | undefined>;

/** Results when each rank states the size of its piece of result `k`. */
function sized(
  group: Group,
  trial: Trial,
  [k, slot]: readonly [result: number, slot: RuleSlot],
  ranks: number,
  ran: Ran,
): readonly Results[] | undefined {
  const { sample } = group;
  const all: Results[] = [];
  for (const [rank, pieces] of group.inputs.entries()) {
    const inputs = pieces.map((p) => p.array);
    const shape = windowOf(trial.truth[k], slot, 1, ranks, rank)?.shape ?? [];
    const sizes = localSizes(sample, inputs, shape);
    const key = `${rank} ${JSON.stringify(sizes)}`;
    if (!ran.has(key))
      ran.set(
        key,
        attempt(() => sample.run(inputs, sizes)),
      );
    const own = ran.get(key);
    if (own === undefined) return undefined;
    all.push(own);
  }
  return all;
}

function isArray(x: NDArray | null | undefined): x is NDArray {
  return x !== null && x !== undefined;
}

function attempt<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch (error) {
    if (error instanceof ShardwrightError) return undefined;
    throw error;
  }
}
