/** Causal self-attention of a decoder layer, with its positions and the keys that a query sees. */

import { defined } from '../../defined.ts';
import type { DType } from '../../graph/types.ts';
import { Linear } from '../../trace/nn/linear.ts';
import { RMSNorm } from '../../trace/nn/norm.ts';
import { rotateHeads, type Rotation } from '../../trace/nn/rope.ts';
import { cat } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
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
    const { q, k, v } =
      latent === undefined
        ? groupedHeads(x, config, sight, dtype)
        : latentHeads(x, config, latent, sight, dtype);
    const joined = joinHeads(mixed({ q, k, v }, config, sight, dtype));
    const inner = heads * (latent?.valueWidth ?? config.headWidth);
    return new Linear('o_proj', inner, width, { bias: outputBias, dtype }).forward(joined);
  });
}

function mixed({ q, k, v }: Heads, config: DecoderConfig, sight: Sight, dtype: DType): Tensor {
  const { heads, keyHeads, attentionCap: cap, sinks, sinksInKernel } = config;
  const scale = config.scale;
  const grouped = config.latent === undefined && heads !== keyHeads;
  const sink = (): Tensor => param('sinks', { shape: [heads], dtype });
  if (cap === undefined && (!sinks || sinksInKernel === true))
    // No call of PyTorch takes sinks: one number for a row of queries, added to it, is read and has
    // its gradient summed as the kernel does both.
    return fusedAttention(sinks ? q.add(sink().view(1, heads, 1, 1)) : q, k, v, {
      causal: true,
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

/**
 * Multi-head latent attention (DeepSeek-V2, 2024): keys and values come from one narrow vector a
 * token; the part of a key that carries the position is shared by all heads.
 */
function latentHeads(
  x: Tensor,
  config: DecoderConfig,
  latent: LatentAttention,
  { turn }: Sight,
  dtype: DType,
): Heads {
  const { width, heads, eps } = config;
  const { queryRank, keyValueRank, plainWidth, rotaryWidth, valueWidth } = latent;
  const plain = { bias: false, dtype };
  const headWidth = plainWidth + rotaryWidth;
  const narrow = (name: string, rank: number, y: Tensor): Tensor =>
    new RMSNorm(name, rank, { eps, dtype }).forward(y);
  const whole =
    queryRank === null
      ? new Linear('q_proj', width, heads * headWidth, plain).forward(x)
      : new Linear('q_b_proj', queryRank, heads * headWidth, plain).forward(
          narrow(
            'q_a_layernorm',
            queryRank,
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
  const [kPlain, v] = splitHeads(
    new Linear('kv_b_proj', keyValueRank, heads * (plainWidth + valueWidth), plain).forward(
      narrow('kv_a_layernorm', keyValueRank, compressed),
    ),
    plainWidth + valueWidth,
  ).split([plainWidth, valueWidth], -1);
  const shared = rotateHeads(pairsToHalves(position.unsqueeze(1)), turn);
  const spread = shared.expand(x.size(0), heads, x.size(1), rotaryWidth);
  return {
    q: cat([qPlain, rotateHeads(pairsToHalves(qTurned), turn)], -1),
    k: cat([kPlain, spread], -1),
    v,
  };
}
