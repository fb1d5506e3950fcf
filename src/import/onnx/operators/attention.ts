/** `Attention` and `RotaryEmbedding` of ai.onnx (opset 23 on), by the definitions of ONNX. */

import { floatArg, type Lowering, type OnnxCall, type OnnxOperand } from '../call.ts';

/** [batch, sequence, heads * width] as [batch, heads, sequence, width]. */
function headsApart(c: OnnxCall, x: OnnxOperand, heads: number): OnnxOperand {
  const [batch, length, width] = c.sizesOfRank(x.type, 3);
  return c.op('permute', c.op('reshape', x, [batch, length, heads, width / heads]), [0, 2, 1, 3]);
}

function headsTogether(c: OnnxCall, x: OnnxOperand): OnnxOperand {
  const [batch, heads, length, width] = c.sizesOfRank(x.type, 4);
  return c.op('reshape', c.op('permute', x, [0, 2, 1, 3]), [batch, length, heads * width]);
}

/** Stages at which the scores may be returned: plain, capped, with the mask, as probabilities. */
const enum Stage {
  plain = 0,
  capped = 1,
  masked = 2,
  probabilities = 3,
}

const attention: Lowering = (c) => {
  const packed = c.rank(0) === 3;
  const apart = (i: number, attribute: string): OnnxOperand => {
    if (!packed) return c.input(i);
    const heads = c.int(attribute) ?? c.fail('E_TYPE', `attribute '${attribute}' is missing`);
    return headsApart(c, c.input(i), heads);
  };
  const query = apart(0, 'q_num_heads');
  let [key, value] = [apart(1, 'kv_num_heads'), apart(2, 'kv_num_heads')];
  const [pastKey, pastValue] = [c.optional(4), c.optional(5)];
  const past = pastKey === undefined ? 0 : c.sizeAt(pastKey.type, 2);
  if (pastKey !== undefined) key = c.op('cat', [pastKey, key], 2);
  if (pastValue !== undefined) value = c.op('cat', [pastValue, value], 2);
  const { made, scores } = scored(c, query, key, value, past);
  return [packed ? headsTogether(c, made) : made, key, value, scores];
};

interface Scored {
  readonly made: OnnxOperand;
  readonly scores?: OnnxOperand;
}

function scored(
  c: OnnxCall,
  query: OnnxOperand,
  key: OnnxOperand,
  value: OnnxOperand,
  past: number,
): Scored {
  const isCausal = c.flag('is_causal', false);
  const mask = c.optional(3);
  const softmaxType = c.int('softmax_precision');
  if (softmaxType !== undefined && softmaxType !== 1 && softmaxType !== 11)
    c.fail('E_UNSUPPORTED', `attribute 'softmax_precision' is ${softmaxType}`, 'use float32, 1');
  // It has no effect where the scores are not asked for.
  const stage = c.int('qk_matmul_output_mode', 0) as Stage;
  const isPlain = c.float('softcap', 0) === 0 && !c.wants(3) && past === 0;
  return isPlain && !(isCausal && mask !== undefined)
    ? { made: fused(c, query, key, value) }
    : writtenOut(c, [query, key, value], past, stage);
}

/** Attention as one call. */
function fused(c: OnnxCall, query: OnnxOperand, key: OnnxOperand, value: OnnxOperand): OnnxOperand {
  const scale = c.attribute('scale')?.float;
  const mask = c.optional(3);
  const given = [query, key, value].map((x) => c.build.ref(x));
  return c.build.emit(
    'aten.scaled_dot_product_attention.default',
    [
      ...given,
      mask === undefined ? null : c.build.ref(widened(c, mask, key)),
      floatArg(0),
      c.flag('is_causal', false),
    ],
    { ...(scale === undefined ? {} : { scale: floatArg(scale) }), enable_gqa: true },
  );
}

/** Attention as products, mask and softmax, with the scores of the stage that is asked for. */
function writtenOut(
  c: OnnxCall,
  [query, key, value]: readonly [OnnxOperand, OnnxOperand, OnnxOperand],
  past: number,
  stage: Stage,
): Scored {
  const cap = c.float('softcap', 0);
  const isCausal = c.flag('is_causal', false);
  const mask = c.optional(3);
  const [, heads, rows, width] = c.sizesOfRank(query.type, 4);
  const [, groups, columns] = c.sizesOfRank(key.type, 4);
  const repeat = (x: OnnxOperand): OnnxOperand =>
    heads === groups ? x : c.op('repeat_interleave.self_int', x, heads / groups, 1);
  const factor = floatArg(c.attribute('scale')?.float ?? 1 / Math.sqrt(width));
  const plain = c.op(
    'mul.Tensor',
    c.op('matmul', query, c.op('transpose.int', repeat(key), -2, -1)),
    factor,
  );
  const capped = cap === 0 ? plain : softCapped(c, plain, cap);
  let masked = capped;
  if (isCausal) {
    const late = c.op('triu', c.filled(1, 'b8', [rows, columns]), past + 1);
    masked = c.op('masked_fill.Scalar', masked, late, floatArg(-Infinity));
  }
  if (mask !== undefined) masked = withMask(c, masked, widened(c, mask, key));
  const isDead = c.op('eq.Scalar', c.op('amax', masked, [-1], true), floatArg(-Infinity));
  const isMasked = mask !== undefined || isCausal;
  const weights = c.op('softmax.int', masked, -1);
  // A row without any key gives zeros.
  const probabilities = isMasked ? c.op('masked_fill.Scalar', weights, isDead, 0) : weights;
  const made = c.cast(c.op('matmul', probabilities, repeat(value)), query.type.dtype);
  if (!c.wants(3)) return { made };
  checkStage(c, stage, cap !== 0, isMasked);
  const stages = { 0: plain, 1: capped, 2: masked, 3: probabilities };
  return { made, scores: stages[stage] };
}

/** @throws E_UNSUPPORTED for scores that releases of ONNX define differently */
function checkStage(c: OnnxCall, stage: Stage, isCapped: boolean, isMasked: boolean): void {
  const isAmbiguous =
    (stage === Stage.plain && isCapped) ||
    (stage === Stage.capped && isMasked) ||
    (stage === Stage.masked && isCapped && isMasked);
  if (isAmbiguous)
    c.fail(
      'E_UNSUPPORTED',
      `'qk_matmul_output_mode' ${stage} means different scores in different releases of ONNX here`,
      'ask for the probabilities (mode 3), or leave the fourth result unread',
    );
}

function softCapped(c: OnnxCall, scores: OnnxOperand, cap: number): OnnxOperand {
  const bounded = c.op('tanh', c.op('div.Tensor', scores, floatArg(cap)));
  return c.op('mul.Tensor', bounded, floatArg(cap));
}

/** A mask of too few columns leaves out the last keys. */
function widened(c: OnnxCall, mask: OnnxOperand, key: OnnxOperand): OnnxOperand {
  const missing = c.sizeAt(key.type, 2) - (c.sizes(mask.type).at(-1) ?? 0);
  if (missing <= 0) return mask;
  return c.op(
    'constant_pad_nd',
    mask,
    [0, missing],
    mask.type.dtype === 'b8' ? false : floatArg(-Infinity),
  );
}

function withMask(c: OnnxCall, scores: OnnxOperand, mask: OnnxOperand): OnnxOperand {
  if (mask.type.dtype !== 'b8') return c.op('add.Tensor', scores, mask);
  return c.op('masked_fill.Scalar', scores, c.op('logical_not', mask), floatArg(-Infinity));
}

/** Rotates the first dims of each head by the angles of its position. */
const rotary: Lowering = (c) => {
  const packed = c.rank(0) === 3;
  const heads = c.int('num_heads', 0);
  if (packed && heads === 0) return c.fail('E_TYPE', `attribute 'num_heads' is missing`);
  const x = packed ? headsApart(c, c.input(0), heads) : c.input(0);
  const width = c.sizeAt(x.type, 3);
  const dims = c.int('rotary_embedding_dim', 0) || width;
  const positions = c.optional(3);
  const angles = (i: number): OnnxOperand => {
    const table = positions === undefined ? c.input(i) : c.op('embedding', c.input(i), positions);
    return c.op('unsqueeze', c.op('slice.Tensor', table, -1, 0, dims / 2), 1);
  };
  const [cos, sin] = [angles(1), angles(2)];
  const rotated = c.op('slice.Tensor', x, -1, 0, dims);
  const isInterleaved = c.flag('interleaved', false);
  const part = (k: number): OnnxOperand =>
    isInterleaved
      ? c.op('slice.Tensor', rotated, -1, k, dims, 2)
      : c.op('slice.Tensor', rotated, -1, (k * dims) / 2, ((k + 1) * dims) / 2);
  const [first, second] = [part(0), part(1)];
  const times = (a: OnnxOperand, b: OnnxOperand): OnnxOperand => c.op('mul.Tensor', a, b);
  const real = c.op('sub.Tensor', times(first, cos), times(second, sin));
  const imaginary = c.op('add.Tensor', times(first, sin), times(second, cos));
  const turned = isInterleaved
    ? c.op('reshape', c.op('stack', [real, imaginary], -1), c.sizes(rotated.type))
    : c.op('cat', [real, imaginary], -1);
  const rest = c.op('slice.Tensor', x, -1, dims, width);
  const whole = dims === width ? turned : c.op('cat', [turned, rest], -1);
  return [packed ? headsTogether(c, whole) : whole];
};

export const ATTENTION: readonly (readonly [string, Lowering])[] = [
  ['Attention', attention],
  ['RotaryEmbedding', rotary],
];
