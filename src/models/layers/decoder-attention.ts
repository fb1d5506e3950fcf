/** Causal self-attention of a decoder layer, with its positions and the keys that a query sees. */

import { defined } from '../../defined.ts';
import type { DType } from '../../graph/types.ts';
import { Linear } from '../../trace/nn/linear.ts';
import { RMSNorm } from '../../trace/nn/norm.ts';
import { rotateHeads, type Rotation } from '../../trace/nn/rope.ts';
import { cat } from '../../trace/tensor/functional.ts';
import { buffer, param, scope } from '../../trace/tensor/state.ts';
import { apply, type Tensor } from '../../trace/tensor/tensor.ts';
import { fusedAttention, joinHeads, splitHeads, writtenOutAttention } from './attention-core.ts';
import type { DecoderConfig, LatentAttention } from './decoder-config.ts';
import { OffsetRMSNorm } from './norms.ts';
import { pairsToHalves, rotatePart } from './rotary.ts';

/** Tensors that layers of one kind share: positions, and the keys that a query sees. */
export interface Sight {
  readonly turn: Rotation;
  /** Absent: all keys up to the query's own position. */
  readonly mask?: Tensor;
  /** Heads do not turn; queries are multiplied by `temper` where there is one. */
  readonly isStill?: true;
  readonly temper?: Tensor;
  /** The mask, always present, for attention that is written out. */
  readonly written?: Tensor;
  /** The keys and values of earlier tokens, in inference. */
  readonly cache?: {
    /** Rows of the cache with the new one; 0 for a prompt, which reads none. */
    readonly rows: number;
    /** Takes the rows of the new tokens. */
    readonly write: (name: string, rows: Tensor) => void;
  };
}

interface Heads {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
}

/**
 * Causal self-attention of a decoder layer, below the module `self_attn`. [batch, length, width] to
 * the same.
 */
export function decoderAttention(
  x: Tensor,
  config: DecoderConfig,
  sight: Sight,
  dtype: DType,
): Tensor {
  const { heads, width, outputBias, latent } = config;
  return scope('self_attn', () => {
    const made =
      latent === undefined
        ? mixed(groupedHeads(x, config, sight, dtype), config, sight, dtype)
        : latentAttention(x, config, latent, sight, dtype);
    const joined = joinHeads(made);
    const inner = heads * (latent?.valueWidth ?? config.headWidth);
    return new Linear('o_proj', inner, width, { bias: outputBias, dtype }).forward(joined);
  });
}

function mixed(heads4: Heads, config: DecoderConfig, sight: Sight, dtype: DType): Tensor {
  const { q, k, v } = withCache(heads4, config, sight, dtype);
  const { heads, keyHeads, attentionCap: cap, sinks, sinksInKernel } = config;
  const scale = config.scale;
  const grouped = config.latent === undefined && heads !== keyHeads;
  const sink = (): Tensor => param('sinks', { shape: [heads], dtype });
  if (cap === undefined && (!sinks || sinksInKernel === true))
    // No call of PyTorch takes sinks: one number for a row of queries, added to it, is read and has
    // its gradient summed as the kernel does both.
    return fusedAttention(sinks ? q.add(sink().view(1, heads, 1, 1)) : q, k, v, {
      causal: (sight.cache?.rows ?? 0) === 0,
      grouped,
      ...defined({ mask: sight.mask, scale }),
    });
  return writtenOutAttention(q, k, v, {
    heads,
    keyHeads,
    scale: scale ?? 1 / Math.sqrt(config.headWidth),
    ...defined({ mask: sight.written, cap }),
    ...(sinks ? { sinks: sink() } : {}),
  });
}

/** The heads as attention reads them: with keys and values of earlier tokens, if there are any. */
function withCache(
  { q, k, v }: Heads,
  { latent }: DecoderConfig,
  { cache }: Sight,
  dtype: DType,
): Heads {
  if (cache === undefined || latent !== undefined) return { q, k, v };
  const { rows, write } = cache;
  write('key', k);
  write('value', v);
  if (rows === 0) return { q, k, v };
  return {
    q,
    k: afterPast('past_key', k, rows, dtype),
    v: afterPast('past_value', v, rows, dtype),
  };
}

/** A cache of so many rows with one new row in its last place. [batch, heads, rows, width]. */
function afterPast(name: string, row: Tensor, rows: number, dtype: DType): Tensor {
  const past = buffer(name, { shape: [row.size(0), row.size(1), rows, row.size(3)], dtype });
  return apply('aten.slice_scatter.default', [past, row, 2, rows - 1, rows]);
}

/** Queries, keys and values of their own weights, or of one weight for all. */
function groupedHeads(x: Tensor, config: DecoderConfig, sight: Sight, dtype: DType): Heads {
  const { width, heads, keyHeads, headWidth, queryBias: bias, headNorm, fused, eps } = config;
  const [queries, keys] = [heads * headWidth, keyHeads * headWidth];
  const one = (name: string, out: number): Tensor =>
    new Linear(name, width, out, { bias, dtype }).forward(x);
  const [wholeQ, wholeK, wholeV] = fused
    ? one('qkv_proj', queries + 2 * keys).split([queries, keys, keys], -1)
    : [one('q_proj', queries), one('k_proj', keys), one('v_proj', keys)];
  const Norm = config.norm === 'offset' ? OffsetRMSNorm : RMSNorm;
  const normed = (name: string, heads4: Tensor): Tensor =>
    headNorm ? new Norm(name, headWidth, { eps, dtype }).forward(heads4) : heads4;
  const q = normed('q_norm', splitHeads(wholeQ, headWidth));
  const k = normed('k_norm', splitHeads(wholeK, headWidth));
  const v = splitHeads(wholeV, headWidth);
  const { isStill = false, temper } = sight;
  if (isStill) return { q: temper === undefined ? q : q.mul(temper), k, v };
  return { q: turned(q, config, sight), k: turned(k, config, sight), v };
}

/** Heads that are turned by their position, and divided by their root mean square if asked. */
function turned(
  y: Tensor,
  { rotaryWidth, turnsPairs, headRoot, eps }: DecoderConfig,
  { turn }: Sight,
): Tensor {
  const at = turnsPairs === true ? pairsToHalves(y) : y;
  const made = rotatePart(at, turn, rotaryWidth);
  if (headRoot !== true) return made;
  const wide = made.to('f32');
  return wide.mul(wide.pow(2).mean([-1], true).add(eps).rsqrt()).to(y.dtype);
}

/** The products of a token in latent attention, before norms and turns. */
interface LatentParts {
  readonly qPlain: Tensor;
  readonly qTurned: Tensor;
  /** Narrow vectors, [batch, length, rank]. */
  readonly compressed: Tensor;
  /** Channels of keys that carry the position, [batch, length, width]. */
  readonly position: Tensor;
}

/**
 * Multi-head latent attention (DeepSeek-V2, 2024): keys and values come from one narrow vector a
 * token; the part of a key that carries the position is shared by all heads.
 */
function latentAttention(
  x: Tensor,
  config: DecoderConfig,
  latent: LatentAttention,
  sight: Sight,
  dtype: DType,
): Tensor {
  const parts = latentParts(x, config, latent, dtype);
  return (sight.cache?.rows ?? 0) === 0
    ? mixed(latentHeads(parts, config, latent, sight, dtype), config, sight, dtype)
    : absorbedAttention(parts, config, latent, sight, dtype);
}

function latentParts(
  x: Tensor,
  { width, heads, eps }: DecoderConfig,
  { queryRank, keyValueRank, plainWidth, rotaryWidth }: LatentAttention,
  dtype: DType,
): LatentParts {
  const plain = { bias: false, dtype };
  const headWidth = plainWidth + rotaryWidth;
  const whole =
    queryRank === null
      ? new Linear('q_proj', width, heads * headWidth, plain).forward(x)
      : new Linear('q_b_proj', queryRank, heads * headWidth, plain).forward(
          new RMSNorm('q_a_layernorm', queryRank, { eps, dtype }).forward(
            new Linear('q_a_proj', width, queryRank, plain).forward(x),
          ),
        );
  const [qPlain, qTurned] = splitHeads(whole, headWidth).split([plainWidth, rotaryWidth], -1);
  const [compressed, position] = new Linear(
    'kv_a_proj_with_mqa',
    width,
    keyValueRank + rotaryWidth,
    plain,
  )
    .forward(x)
    .split([keyValueRank, rotaryWidth], -1);
  return { qPlain, qTurned, compressed, position };
}

function latentNorm(
  { compressed }: LatentParts,
  { eps }: DecoderConfig,
  rank: number,
  dtype: DType,
): Tensor {
  return new RMSNorm('kv_a_layernorm', rank, { eps, dtype }).forward(compressed);
}

/** Every head's queries, keys and values, the latter two made of the narrow vectors. */
function latentHeads(
  parts: LatentParts,
  config: DecoderConfig,
  { keyValueRank, plainWidth, rotaryWidth, valueWidth }: LatentAttention,
  { turn, cache }: Sight,
  dtype: DType,
): Heads {
  const { heads } = config;
  const { qPlain, qTurned, position } = parts;
  const inner = plainWidth + valueWidth;
  const narrow = latentNorm(parts, config, keyValueRank, dtype);
  const made = new Linear('kv_b_proj', keyValueRank, heads * inner, { bias: false, dtype });
  const [kPlain, v] = splitHeads(made.forward(narrow), inner).split([plainWidth, valueWidth], -1);
  const shared = rotateHeads(pairsToHalves(position.unsqueeze(1)), turn);
  const spread = shared.expand(position.size(0), heads, position.size(1), rotaryWidth);
  cache?.write('latent', cat([narrow, shared.select(1, 0)], -1));
  return {
    q: cat([qPlain, rotateHeads(pairsToHalves(qTurned), turn)], -1),
    k: cat([kPlain, spread], -1),
    v,
  };
}

/**
 * Attention of one new token on the narrow vectors themselves, as decoding runs it (DeepSeek-V2,
 * arXiv:2405.04434, section 2.1.2): the weights that make keys of them are multiplied into queries,
 * those that make values into what attention gives. All heads read one cache.
 */
function absorbedAttention(
  parts: LatentParts,
  config: DecoderConfig,
  { keyValueRank, plainWidth, rotaryWidth, valueWidth }: LatentAttention,
  { turn, cache }: Sight,
  dtype: DType,
): Tensor {
  const { heads, scale } = config;
  const { qPlain, qTurned, position } = parts;
  const inner = plainWidth + valueWidth;
  const turned = (y: Tensor): Tensor => rotateHeads(pairsToHalves(y), turn);
  const narrow = latentNorm(parts, config, keyValueRank, dtype);
  const row = cat([narrow, turned(position.unsqueeze(1)).select(1, 0)], -1);
  cache?.write('latent', row);
  const past = afterPast('past_latent', row.unsqueeze(1), cache?.rows ?? 0, dtype);
  const weight = scope('kv_b_proj', () =>
    param('weight', { shape: [heads * inner, keyValueRank], dtype }),
  ).view(heads, inner, keyValueRank);
  const [toKeys, toValues] = weight.split([plainWidth, valueWidth], 1);
  const absorbed = qPlain.select(2, 0).transpose(0, 1).bmm(toKeys).transpose(0, 1).unsqueeze(2);
  const q = cat([absorbed, turned(qTurned)], -1);
  const seen = fusedAttention(q, past, past.slice(3, 0, keyValueRank), {
    causal: false,
    grouped: true,
    scale: scale ?? 1 / Math.sqrt(plainWidth + rotaryWidth),
  });
  const values = seen.select(2, 0).transpose(0, 1).bmm(toValues.transpose(1, 2));
  return values.transpose(0, 1).unsqueeze(2);
}
