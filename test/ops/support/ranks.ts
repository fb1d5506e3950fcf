import type { ReduceOp } from '../../../src/mesh/placements/placement.ts';
import { atSizes } from '../../../src/ops/record/context.ts';
import type { TensorMeta, TypedContext } from '../../../src/ops/record/record.ts';
import { type Rule, type RuleSlot, ruleText } from '../../../src/ops/record/rule.ts';
import { concat, largestDifference, map2, type NDArray, random, take, zeros } from './arrays.ts';

/**
 * Judges single-dim rules by execution. Every input is cut or split as the rule says, the operator
 * runs on each simulated rank, and the results are put together as the rule claims and compared
 * with the unsharded run. Shares no code with the rules. A mesh of several dims takes one rule per
 * mesh dim.
 */

/**
 * One operator on local data. `starts` are the global coordinates of the first element of each
 * input and output.
 */
export interface LocalCall {
  readonly ctx: TypedContext;
  readonly global: TypedContext;
  readonly inputs: readonly NDArray[];
  readonly inputStarts: readonly (readonly number[])[];
  readonly outputStarts: readonly (readonly number[])[];
}
export type Kernel = (call: LocalCall) => readonly (NDArray | null)[];

interface Piece {
  readonly array: NDArray;
  readonly starts: readonly number[];
}

/** Rank's rows of a dim: chunks of ceil(size / n), later ranks short or empty. */
function chunkOf(size: number, n: number, rank: number): readonly [number, number] {
  const chunk = Math.ceil(size / n);
  const start = Math.min(size, rank * chunk);
  return [start, Math.min(size, start + chunk) - start];
}

/** A slot, and of a shard the number of equal chunks of which each rank has a piece. */
interface Placed {
  readonly slot: RuleSlot;
  readonly chunks: number;
}

/**
 * The slots of one tensor with their chunks: a cut inside other dims has one for each index of
 * these that a rank of the mesh dims before has.
 */
function placed(
  ctx: TypedContext,
  rules: readonly Rule[],
  column: number,
  sizes: readonly number[],
): Placed[] {
  const shapes = [...ctx.inputs, ...ctx.outputs].map((meta) => meta?.shape ?? []);
  const slotsOf = (r: Rule): RuleSlot[] => [...r.inputs, ...r.outputs];
  return rules.map((r, m) => {
    const slot = slotsOf(r)[column];
    if (slot?.kind !== 'shard' || slot.inside === null) return { slot, chunks: 1 };
    const { tensor, dims } = slot.inside;
    let chunks = dims.reduce((n, dim) => n * shapes[tensor][dim], 1);
    for (let k = 0; k < m; k++) {
      const before = slotsOf(rules[k])[tensor];
      if (before?.kind === 'shard' && dims.includes(before.dim)) chunks /= sizes[k];
    }
    return { slot, chunks };
  });
}

/** The rows of a dim, some numbers of them after another. */
function takeAll(x: NDArray, dim: number, spans: readonly (readonly [number, number])[]): NDArray {
  return concat(
    spans.map(([start, rows]) => take(x, dim, start, rows)),
    dim,
  );
}

function onePiece(
  piece: Piece,
  { slot, chunks }: Placed,
  n: number,
  rank: number,
  seed: number,
): Piece {
  if (slot === null || slot.kind === 'replicate') return piece;
  if (slot.kind === 'shard' && chunks > 1) {
    const size = piece.array.shape[slot.dim] / chunks;
    const [start, rows] = chunkOf(size, n, rank);
    const spans = Array.from({ length: chunks }, (_, k) => [k * size + start, rows] as const);
    return { array: takeAll(piece.array, slot.dim, spans), starts: piece.starts };
  }
  if (slot.kind === 'shard') {
    const [start, rows] = chunkOf(piece.array.shape[slot.dim], n, rank);
    return {
      array: take(piece.array, slot.dim, start, rows),
      starts: piece.starts.map((s, d) => (d === slot.dim ? s + start : s)),
    };
  }
  return { array: parts(piece.array, slot.op, n, seed)[rank], starts: piece.starts };
}

/**
 * Operands of a pending reduction that cannot pass by accident: uneven shares that vary over the
 * tensor plus offsets that cancel; for extremes, the holder of each element goes round and the
 * others are clearly on the losing side.
 */
function parts(x: NDArray, op: ReduceOp, n: number, seed: number): NDArray[] {
  const next = random(seed);
  const out = Array.from({ length: n }, () => zeros(x.shape));
  const range = x.data.reduce((a, v) => Math.max(a, Math.abs(v)), 0);
  x.data.forEach((v, i) => {
    const holder = (i + seed) % n;
    if (op === 'sum' || op === 'avg') {
      const total = op === 'avg' ? v * n : v;
      let rest = total;
      for (let r = 0; r < n; r++) {
        const share =
          total * (0.6 - 0.5 * next()) +
          (r % 2 === 0 ? 1 : -1) * (Math.abs(v) + 1) * (0.5 + next());
        out[r].data[i] = r === n - 1 ? rest : share;
        rest -= share;
      }
    } else
      for (let r = 0; r < n; r++) {
        const away = (2 * range + 1) * (0.5 + next());
        out[r].data[i] =
          r === holder
            ? v
            : op === 'max'
              ? v - away
              : op === 'min'
                ? v + away
                : op === 'bor'
                  ? 0
                  : op === 'band'
                    ? 1
                    : NaN;
      }
  });
  return out;
}

function reduce(values: readonly NDArray[], op: ReduceOp): NDArray {
  const f = (a: number, b: number): number =>
    op === 'sum' || op === 'avg'
      ? a + b
      : op === 'max' || op === 'bor'
        ? Math.max(a, b)
        : Math.min(a, b);
  const total = values.slice(1).reduce((a, b) => map2(a, b, f), values[0]);
  return op === 'avg'
    ? { shape: total.shape, data: total.data.map((v) => v / values.length) }
    : total;
}

/** What one rank of the mesh holds: the placements are applied outer mesh dim first. */
function localPiece(
  array: NDArray,
  slots: readonly Placed[],
  sizes: readonly number[],
  rank: readonly number[],
): Piece {
  let piece: Piece = { array, starts: array.shape.map(() => 0) };
  slots.forEach((slot, m) => (piece = onePiece(piece, slot, sizes[m], rank[m], 17 * m + 5)));
  return piece;
}

function* ranksOf(sizes: readonly number[]): Generator<number[]> {
  if (sizes.length === 0) yield [];
  else
    for (let r = 0; r < sizes[0]; r++)
      for (const rest of ranksOf(sizes.slice(1))) yield [r, ...rest];
}

/**
 * Puts the results of all ranks together, inner mesh dim first; replicated results must be equal.
 */
function combine(
  values: readonly NDArray[],
  slots: readonly Placed[],
  sizes: readonly number[],
): NDArray | string {
  if (sizes.length === 0) return values[0];
  const inner = values.length / sizes[0];
  const groups: NDArray[] = [];
  for (let r = 0; r < sizes[0]; r++) {
    const part = combine(values.slice(r * inner, (r + 1) * inner), slots.slice(1), sizes.slice(1));
    if (typeof part === 'string') return part;
    groups.push(part);
  }
  const { slot, chunks } = slots[0];
  if (slot === null) return groups[0];
  if (slot.kind === 'shard' && chunks > 1)
    return concat(
      Array.from({ length: chunks }, (_, k) => {
        const of = (x: NDArray): number => x.shape[slot.dim] / chunks;
        return concat(
          groups.map((x) => take(x, slot.dim, k * of(x), of(x))),
          slot.dim,
        );
      }),
      slot.dim,
    );
  if (slot.kind === 'shard') return concat(groups, slot.dim);
  if (slot.kind === 'partial') return reduce(groups, slot.op);
  for (const other of groups.slice(1))
    if (largestDifference(other, groups[0]) > TOLERANCE)
      return 'ranks differ where the rule says R';
  return groups[0];
}

const TOLERANCE = 1e-8;

/**
 * Tells whether the rules' own conditions admit them on these sizes: members of a tie equal (or
 * scaled and even) and cut by the same mesh dims, every cut dim at least as large as the number of
 * pieces, evenness in units, kinds of pending reductions that may meet.
 */
export function admitted(
  ctx: TypedContext,
  rules: readonly Rule[],
  sizes: readonly number[],
): boolean {
  const piecesOf = (slots: readonly RuleSlot[], dim: number): number =>
    slots.reduce((n, s, m) => (s?.kind === 'shard' && s.dim === dim ? n * sizes[m] : n), 1);
  const columns: [TensorMeta | null, RuleSlot[]][] = [
    ...ctx.inputs.map((meta, i): [TensorMeta, RuleSlot[]] => [meta, rules.map((r) => r.inputs[i])]),
    ...ctx.outputs.map((meta, i): [TensorMeta | null, RuleSlot[]] => [
      meta,
      rules.map((r) => r.outputs[i]),
    ]),
  ];
  for (const [meta, slots] of columns) {
    const kinds = new Set(slots.flatMap((s) => (s?.kind === 'partial' ? [s.op] : [])));
    if (kinds.size > 1 && ![...kinds].every((k) => k === 'sum' || k === 'avg')) return false;
    if (meta === null) continue;
    for (const slot of slots) {
      if (slot?.kind !== 'shard') continue;
      const pieces = piecesOf(slots, slot.dim);
      const rows = meta.shape[slot.dim];
      if (rows < pieces) return false;
      if (slot.even || slot.scaled) {
        if (rows % slot.unit !== 0 || (rows / slot.unit) % pieces !== 0) return false;
      }
    }
  }
  for (const [m] of rules.entries()) {
    const tied = columns.flatMap(([meta, slots]) => {
      const slot = slots[m];
      if (meta === null || slot?.kind !== 'shard') return [];
      const rows = slot.scaled ? null : meta.shape[slot.dim];
      const pieces = slot.inside === null ? piecesOf(slots, slot.dim) : null;
      return [{ tie: slot.tie, rows, pieces }];
    });
    const differ = (a: number | null, b: number | null): boolean =>
      a !== null && b !== null && a !== b;
    for (const { tie, rows, pieces } of tied)
      if (tied.some((x) => x.tie === tie && (differ(x.rows, rows) || differ(x.pieces, pieces))))
        return false;
  }
  return true;
}

/** Runs the call with one rule per mesh dim; undefined when right, else what went wrong. */
export function judge(
  ctx: TypedContext,
  inputs: readonly NDArray[],
  kernel: Kernel,
  rules: readonly Rule[],
  sizes: readonly number[],
): string | undefined {
  const origin = (shape: readonly number[]): number[] => shape.map(() => 0);
  const truth = kernel({
    ctx,
    global: ctx,
    inputs,
    inputStarts: ctx.inputs.map((m) => origin(m.shape)),
    outputStarts: ctx.outputs.map((m) => origin(m?.shape ?? [])),
  });
  const wrong = (why: string): string =>
    `${rules.map(ruleText).join(' x ')} on (${sizes.join()}): ${why}`;
  const results: (readonly (NDArray | null)[])[] = [];
  for (const rank of ranksOf(sizes)) {
    const pieces = inputs.map((x, i) => localPiece(x, placed(ctx, rules, i, sizes), sizes, rank));
    const expected = truth.map((x, k) => {
      if (x === null) return null;
      const slots = placed(ctx, rules, inputs.length + k, sizes).map((p) =>
        p.slot?.kind === 'shard' ? p : { slot: null, chunks: 1 },
      );
      return localPiece(x, slots, sizes, rank);
    });
    const metas = (
      all: readonly (TensorMeta | null)[],
      local: readonly (Piece | null)[],
    ): (TensorMeta | null)[] =>
      all.map((meta, i) =>
        meta === null ? null : { dtype: meta.dtype, shape: local[i]?.array.shape ?? meta.shape },
      );
    let out: readonly (NDArray | null)[];
    try {
      out = kernel({
        ctx: atSizes(ctx, metas(ctx.inputs, pieces) as TensorMeta[], metas(ctx.outputs, expected)),
        global: ctx,
        inputs: pieces.map((p) => p.array),
        inputStarts: pieces.map((p) => p.starts),
        outputStarts: expected.map((p) => p?.starts ?? []),
      });
    } catch (error) {
      return wrong(`fails on rank ${rank.join()}: ${String(error)}`);
    }
    for (const [k, x] of out.entries()) {
      const want = expected[k];
      if (x === null || want === null || x === undefined) continue;
      if (x.shape.join() !== want.array.shape.join())
        return wrong(
          `result ${k} of rank ${rank.join()} has shape [${x.shape.join()}], claimed [${want.array.shape.join()}]`,
        );
    }
    results.push(out);
  }
  for (const [k, want] of truth.entries()) {
    if (want === null) continue;
    const slots = placed(ctx, rules, inputs.length + k, sizes);
    const joined = combine(
      results.map((r) => r[k] ?? zeros([])),
      slots,
      sizes,
    );
    if (typeof joined === 'string') return wrong(`result ${k}: ${joined}`);
    const difference = largestDifference(joined, want);
    if (!(difference <= TOLERANCE)) return wrong(`result ${k} is off by ${difference}`);
  }
  return undefined;
}
