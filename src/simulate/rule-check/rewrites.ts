/**
 * Runs a call on the ranks of one mesh dim under a rule, with the arguments or the body that the
 * rule's rewrite states.
 */

import { ShardwrightError } from '../../errors.ts';
import { full, type NDArray } from '../../ndarray/array.ts';
import { map, map2, scale } from '../../ndarray/elementwise.ts';
import { reduce, sum } from '../../ndarray/reduce.ts';
import { concat, reshape, rows } from '../../ndarray/views.ts';
import type { EvaluatedArg } from '../../ops/kernels/evaluate.ts';
import { elements, type TypedContext } from '../../ops/record/record.ts';
import type { Rule, RuleSlot } from '../../ops/record/rule.ts';
import {
  batchNormAcross,
  batchNormBackwardAcross,
  groupNormAcross,
  groupNormBackwardAcross,
} from './norms-across.ts';
import { type Piece, reduceRanks } from './pieces.ts';
import type { Results, SampleCall } from './sample-call.ts';

/**
 * The calls that the ranks run under a rule: the call as it is, or, where the rule has a `rewrite`,
 * the call with the arguments or the body that the word means. Bodies are written from their
 * meaning and not from the lowering: a rank with a window of rows computes as if it had the whole
 * dim with zeros outside of its window, and keeps its own rows.
 */
export interface Group {
  readonly sample: SampleCall;
  readonly rule: Rule;
  /** By rank: the part of each input. */
  readonly inputs: readonly (readonly Piece[])[];
  /**
   * By rank: where each result lies in the whole one, and its sizes; null for a masked-off result.
   */
  readonly outputs: readonly (readonly (Window | null)[])[];
}

export interface Window {
  readonly starts: readonly number[];
  readonly shape: readonly number[];
}

type Body = (group: Group) => readonly Results[];

/**
 * Results of every rank. @throws E_UNSUPPORTED for a rewrite that is not known here; what the
 * kernels throw
 */
export function runGroup(group: Group): readonly Results[] {
  const { rewrite } = group.rule;
  if (rewrite === undefined) return plain(group);
  if (!Object.hasOwn(BODIES, rewrite))
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `the validator has no body for the rewrite '${rewrite}'`,
    );
  return BODIES[rewrite](group);
}

const arrays = (pieces: readonly Piece[]): NDArray[] => pieces.map((p) => p.array);

function plain({ sample, inputs }: Group): readonly Results[] {
  return inputs.map((pieces) => sample.run(arrays(pieces)));
}

// ---- sizes
// -----------------------------------------------------------------------------

/** Arguments that state sizes, as a rank with these inputs and this first result must have them. */
export function localSizes(
  sample: SampleCall,
  inputs: readonly NDArray[],
  output: readonly number[],
): Readonly<Record<string, EvaluatedArg>> | undefined {
  const { ctx } = sample;
  const [space, short] = sample.record.name.split('.');
  if (space === 'stablehlo') return stablehloSizes(ctx, short, inputs, output);
  switch (short) {
    case 'view':
    case '_unsafe_view':
    case 'expand':
    case 'zeros':
    case 'ones':
    case 'empty':
    case 'full':
    case 'new_zeros':
    case 'new_ones':
    case 'new_empty':
    case 'empty_strided':
    case 'new_empty_strided':
    case 'new_full':
      return { size: output };
    case 'reshape':
      return { shape: output };
    case 'unflatten': {
      const dim = ctx.int('dim') < 0 ? ctx.int('dim') + ctx.inputs[0].shape.length : ctx.int('dim');
      return { sizes: output.slice(dim, dim + ctx.ints('sizes').length) };
    }
    case 'slice_backward':
    case 'select_backward':
    case 'diagonal_backward':
    case 'unfold_backward':
      return { input_sizes: output };
    case 'repeat': {
      const own = inputs[0].shape;
      const added = output.length - own.length;
      return {
        repeats: output.map((n, i) =>
          i < added ? n : own[i - added] === 0 ? 1 : n / own[i - added],
        ),
      };
    }
    case 'repeat_interleave':
      return ctx.has('output_size') ? { output_size: output[ctx.int('dim')] } : {};
    case 'native_group_norm':
    case 'native_group_norm_backward': {
      const [n, c, ...rest] = inputs[ctx.indexOf('input')].shape;
      const group = (ctx.int('group') * c) / ctx.int('C');
      return { N: n, C: c, HxW: elements(rest), group };
    }
    case 'group_norm': {
      const channels = inputs[0].shape[1];
      return { num_groups: (ctx.int('num_groups') * channels) / ctx.inputs[0].shape[1] };
    }
    default:
      return /^upsample_.*_backward$/.test(short) ? { input_size: output } : undefined;
  }
}

function stablehloSizes(
  ctx: TypedContext,
  operator: string,
  inputs: readonly NDArray[],
  output: readonly number[],
): Readonly<Record<string, EvaluatedArg>> | undefined {
  /** Sizes of a slice: where it has the whole of a dim, a rank has the whole of its piece. */
  const sliced = (argument: string): number[] =>
    ctx.ints(argument).map((n, d) => (n === ctx.inputs[0].shape[d] ? inputs[0].shape[d] : n));
  switch (operator) {
    case 'broadcast_in_dim':
    case 'reshape':
    case 'constant':
    case 'iota':
      return { shape: output };
    case 'slice':
      return { limit_indices: sliced('limit_indices') };
    case 'dynamic_slice':
    case 'gather':
      return { slice_sizes: sliced('slice_sizes') };
    default:
      return undefined;
  }
}

/**
 * Operators that give a constant of their input's shape: a rank takes any tensor of the shape of
 * its piece.
 */
const LIKE = new Set([
  'zeros_like',
  'ones_like',
  'empty_like',
  'full_like',
  'fill',
  'fill_',
  'zero_',
]);

const localShape: Body = (group) => {
  const { sample } = group;
  const [, short] = sample.record.name.split('.');
  return group.inputs.map((pieces, rank) => {
    const given = arrays(pieces);
    const output = group.outputs[rank][0]?.shape ?? [];
    if (LIKE.has(short)) return sample.run([full(output, 0, given[0].dtype)]);
    // A dim is dropped for its global size of 1, never for a local one.
    if (short.startsWith('squeeze')) return [reshape(given[0], output)];
    if (short === 'get_dimension_size')
      return [full([], sample.ctx.inputs[0].shape[sample.ctx.int('dimension')], 'i32')];
    const sizes = localSizes(sample, given, output);
    if (sizes === undefined)
      throw new ShardwrightError('E_UNSUPPORTED', `${sample.record.name} states no sizes`);
    return sample.run(given, sizes);
  });
};

const groups: Body = ({ sample, inputs }) => {
  const hlo = sample.record.name.startsWith('stablehlo.');
  const name = hlo ? 'feature_group_count' : 'groups';
  const x = hlo ? 0 : sample.ctx.indexOf('input');
  const channels = hlo ? sample.ctx.ints('input_dimensions')[1] : 1;
  return inputs.map((pieces) => {
    const given = arrays(pieces);
    const share = given[x].shape[channels] / sample.ctx.inputs[x].shape[channels];
    return sample.run(given, { [name]: sample.ctx.int(name) * share });
  });
};

// ---- windows of rows
// -----------------------------------------------------------------------------

/** The whole dim with zeros outside of the window. */
function padded({ array, starts }: Piece, slot: RuleSlot, size: number): NDArray {
  if (slot?.kind !== 'shard') return array;
  const zeros = (count: number): NDArray =>
    full(
      array.shape.map((n, d) => (d === slot.dim ? count : n)),
      0,
      array.dtype,
    );
  const start = starts[slot.dim];
  return concat([zeros(start), array, zeros(size - start - array.shape[slot.dim])], slot.dim);
}

function ownRows(x: NDArray | null, window: Window | null, slot: RuleSlot): NDArray | null {
  if (x === null || window === null || slot?.kind !== 'shard') return x;
  return rows(x, slot.dim, window.starts[slot.dim], window.shape[slot.dim]);
}

/**
 * Computes as if a rank had every row, with those of others zero; of cut results it keeps its rows.
 */
const windowed: Body = ({ sample, rule, inputs, outputs }) =>
  inputs.map((pieces, rank) => {
    const whole = pieces.map((p, i) => {
      const slot = rule.inputs[i];
      return padded(p, slot, slot?.kind === 'shard' ? sample.ctx.inputs[i].shape[slot.dim] : 0);
    });
    return sample.run(whole).map((x, k) => ownRows(x, outputs[rank][k], rule.outputs[k]));
  });

const randomOffset: Body = ({ sample, inputs, outputs }) =>
  inputs.map((pieces, rank) => {
    const window = outputs[rank].find((w) => w !== null);
    const global = sample.ctx.outputs[0]?.shape ?? [];
    const position = (at: number): number => {
      let rest = at;
      let out = 0;
      let step = 1;
      for (let d = global.length - 1; d >= 0; d--) {
        const size = window?.shape[d] ?? 1;
        out += ((rest % size) + (window?.starts[d] ?? 0)) * step;
        rest = Math.floor(rest / size);
        step *= global[d];
      }
      return out;
    };
    const replaced = sample.ctx.inputs.length === 0 ? { size: window?.shape ?? [] } : {};
    return sample.run(arrays(pieces), replaced, position);
  });

// ---- means
// -----------------------------------------------------------------------------

const SUM = 2; // ATen's code of the reduction by sum

/** Sums of own rows over the count of all rows. */
const globalCount: Body = (group) => {
  const { sample, inputs } = group;
  const { record, ctx } = sample;
  const [, short] = record.name.split('.');
  if (short === 'cross_entropy_loss' || short.startsWith('nll_')) return weightedMean(group, false);
  if (short === 'mean')
    return inputs.map(([{ array }], rank) => {
      const all =
        elements(ctx.inputs[0].shape) / Math.max(1, elements(group.outputs[rank][0]?.shape ?? []));
      const out = group.outputs[rank][0]?.shape ?? [];
      const dims = ctx.inputs[0].shape.length === 0 ? [] : reducedOf(sample);
      return [map(reshape(sum(array, dims), out), (v) => v / all)];
    });
  // Elementwise losses and their gradients.
  const count = elements(
    short.endsWith('_backward') ? (ctx.outputs[0]?.shape ?? []) : lossShape(sample),
  );
  return inputs.map((pieces) =>
    sample.run(arrays(pieces), { reduction: SUM }).map((x) => x && scale(x, 1 / count)),
  );
};

function reducedOf(sample: SampleCall): number[] {
  const { ctx, record } = sample;
  const rank = ctx.inputs[0].shape.length;
  const dims = record.name === 'aten.mean.dim' ? (ctx.optionalInts('dim') ?? []) : [];
  return dims.length === 0
    ? Array.from({ length: rank }, (_, d) => d)
    : dims.map((d) => (d < 0 ? d + rank : d));
}

/** Shape that the operands of an elementwise loss broadcast to. */
function lossShape(sample: SampleCall): number[] {
  const rank = Math.max(...sample.ctx.inputs.map((t) => t.shape.length));
  return Array.from({ length: rank }, (_, d) =>
    Math.max(...sample.ctx.inputs.map((t) => t.shape[d - (rank - t.shape.length)] ?? 1)),
  );
}

/** A mean over targets: losses of own targets over the weight of the targets of all ranks. */
function weightedMean({ sample, inputs }: Group, reduced: boolean): readonly Results[] {
  const { ctx, record } = sample;
  const composite = record.name.includes('cross_entropy');
  const target = ctx.indexOf('target');
  const probabilities =
    composite &&
    ctx.inputs[target].shape.length === ctx.inputs[0].shape.length &&
    ctx.inputs[target].dtype.startsWith('f');
  const local = inputs.map((pieces) => {
    const given = arrays(pieces);
    const out = sample.run(given, { reduction: SUM });
    return [
      out[0] as NDArray,
      composite ? totalWeight(sample, given) : (out[1] as NDArray),
    ] as const;
  });
  const weight = probabilities
    ? full(
        [],
        elements(ctx.inputs[target].shape) /
          ctx.inputs[0].shape[ctx.inputs[0].shape.length > 1 ? 1 : 0],
      )
    : reduceRanks(
        local.map(([, w]) => w),
        'sum',
      );
  const divided = (x: NDArray): NDArray => map2(x, weight, (v, w) => v / w);
  const losses = reduced
    ? inputs.map(() =>
        reduceRanks(
          local.map(([x]) => x),
          'sum',
        ),
      )
    : local.map(([x]) => x);
  return losses.map((x) => (composite ? [divided(x)] : [divided(x), weight]));
}

/** Weight of the targets at hand, as the loss without the logarithm counts it. */
function totalWeight(sample: SampleCall, given: readonly NDArray[]): NDArray {
  const { ctx } = sample;
  const [x, target] = [given[0], given[ctx.indexOf('target')]];
  if (target.kind === 'float') return full([], 0);
  const weight = ctx.indexOf('weight') < 0 ? null : given[ctx.indexOf('weight')];
  const name = x.rank > 2 ? 'nll_loss2d_forward' : 'nll_loss_forward';
  // The 2-D form wants four dims.
  const [a, t] =
    x.rank === 3
      ? [reshape(x, [...x.shape, 1]), reshape(target, [...target.shape, 1])]
      : [x, target];
  const out = sample.runAs(`aten.${name}.default`, [a, t, weight, SUM, ctx.int('ignore_index')]);
  return out[1] as NDArray;
}

// ---- bodies with collectives
// -----------------------------------------------------------------------------

const rowMax = (x: NDArray, dim: number): NDArray =>
  reduce(x, [dim], true, (data, start, end) => {
    let best = -Infinity;
    for (let i = start; i < end; i++) best = Math.max(best, data[i]);
    return best;
  });

/** Logarithms of a softmax whose dim is cut: the row maximum and the row sum are all-reduced. */
function logSoftmaxAcross(parts: readonly NDArray[], dim: number): NDArray[] {
  const top = reduceRanks(
    parts.map((x) => rowMax(x, dim)),
    'max',
  );
  const shifted = parts.map((x) => map2(x, top, (v, m) => v - m));
  const total = reduceRanks(
    shifted.map((x) => sum(map(x, Math.exp), [dim], true)),
    'sum',
  );
  return shifted.map((x) => map2(x, total, (v, s) => v - Math.log(s)));
}

function dimOf(sample: SampleCall): number {
  const dim = sample.ctx.int('dim');
  return dim < 0 ? dim + sample.ctx.inputs[0].shape.length : dim;
}

const softmaxAcross: Body = ({ sample, inputs }) => {
  const logs = logSoftmaxAcross(
    inputs.map(([x]) => x.array),
    dimOf(sample),
  );
  return logs.map((x) => [sample.record.name.includes('log_softmax') ? x : map(x, Math.exp)]);
};

const softmaxBackwardAcross: Body = ({ sample, inputs }) => {
  const dim = dimOf(sample);
  const logarithm = sample.record.name.includes('log_softmax');
  const terms = inputs.map(([g, y]) =>
    logarithm ? g.array : map2(g.array, y.array, (a, b) => a * b),
  );
  const total = reduceRanks(
    terms.map((x) => sum(x, [dim], true)),
    'sum',
  );
  return inputs.map(([g, y]) => {
    const spread = map2(y.array, total, (v, s) => (logarithm ? Math.exp(v) : v) * s);
    return [
      map2(logarithm ? g.array : map2(g.array, y.array, (a, b) => a * b), spread, (a, b) => a - b),
    ];
  });
};

const vocabularyParallel: Body = (group) => {
  const { sample, inputs } = group;
  const { ctx } = sample;
  const [slot] = group.rule.inputs;
  if (slot?.kind !== 'shard')
    throw new ShardwrightError('E_UNSUPPORTED', 'the classes are not cut');
  const logs = logSoftmaxAcross(
    inputs.map(([x]) => x.array),
    slot.dim,
  );
  return inputs.map((pieces, rank) => {
    const given = arrays(pieces);
    const size = ctx.inputs[0].shape[slot.dim];
    // Scores of other ranks' classes count as zero; the weight of a target is known everywhere.
    const whole = padded({ array: logs[rank], starts: pieces[0].starts }, slot, size);
    const [x, t] = [whole, given[ctx.indexOf('target')]];
    const [a, b] =
      x.rank === 3 ? [reshape(x, [...x.shape, 1]), reshape(t, [...t.shape, 1])] : [x, t];
    const weight = ctx.indexOf('weight') < 0 ? null : given[ctx.indexOf('weight')];
    const name = a.rank > 2 ? 'nll_loss2d_forward' : 'nll_loss_forward';
    const out = sample.runAs(`aten.${name}.default`, [
      a,
      b,
      weight,
      ctx.int('reduction'),
      ctx.int('ignore_index'),
    ]);
    const loss = out[0] as NDArray;
    return [reshape(loss, ctx.outputs[0]?.shape ?? [])];
  });
};

type NormBody = (sample: SampleCall, inputs: readonly (readonly NDArray[])[]) => readonly Results[];

/** A norm with statistics of all ranks: of groups of channels, or of a batch. */
function normAcross(ofGroups: NormBody, ofBatch: NormBody): Body {
  return ({ sample, inputs }) => {
    const body = sample.record.name.includes('group_norm') ? ofGroups : ofBatch;
    return body(sample, inputs.map(arrays));
  };
}

const BODIES: Readonly<Record<string, Body>> = {
  'local-shape': localShape,
  groups,
  mask: windowed,
  'key-heads': windowed,
  offset: windowed,
  offsets: windowed,
  'random-offset': randomOffset,
  'global-count': globalCount,
  'all-reduce-loss': (group) => weightedMean(group, true),
  'all-reduce-max-sum': softmaxAcross,
  'all-reduce-sum': softmaxBackwardAcross,
  'all-gather-statistics': normAcross(groupNormAcross, batchNormAcross),
  'all-reduce-statistics': normAcross(groupNormBackwardAcross, batchNormBackwardAcross),
  'vocabulary-parallel': vocabularyParallel,
};
