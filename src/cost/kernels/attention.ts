/**
 * Takes a call of fused attention and gives the part of its scores that the kernel computes, and
 * the share of the matrix peak that it reaches.
 */

import type { OperatorRecord, TypedContext } from '../../ops/record/record.ts';
import type { AttentionShares, Cluster } from '../hardware/cluster.ts';

/**
 * Attention kernels made for the device reach a good half of the dense peak (FlashAttention-3 and
 * vendors' kernels).
 */
export const ATTENTION_SHARE = 0.55;

/**
 * Kernels that skip scores above the diagonal, by the operator that names them, with what they
 * reach on those that they compute: the mean of two calls of 32 and 64 heads in
 * `data/calibration/h100-sxm-80gb.json` (forward .56 and .53, backward .49 and .44). Shorter rows
 * reach less. Other operators name no kernel: their shares count every score.
 */
const SKIPPING: readonly (readonly [RegExp, AttentionShares])[] = [
  [/cudnn_attention/, { forwardShare: 0.54, backwardShare: 0.46 }],
];

/**
 * The share of a call's FLOPs that the kernel does, and the share of the peak at which it does
 * them.
 */
interface AttentionRate {
  readonly part: number;
  readonly share: number;
}

/**
 * Undefined where the preset prices attention as products and the cluster has no measured share.
 */
export function attentionRate(
  record: OperatorRecord,
  ctx: TypedContext,
  { attentionShares }: Pick<Cluster, 'attentionShares'>,
  usual: number | undefined,
): AttentionRate | undefined {
  if (attentionShares === undefined && usual === undefined) return undefined;
  const key = record.name.includes('backward') ? 'backwardShare' : 'forwardShare';
  const skipping = SKIPPING.find(([name]) => name.test(record.name))?.[1];
  const share = attentionShares?.[key] ?? skipping?.[key] ?? usual;
  return { part: skipping === undefined ? 1 : causalPart(ctx), share: share ?? ATTENTION_SHARE };
}

/**
 * Part of the scores that lies on the diagonal and below it. Where rows are cut over devices, a
 * device has fewer of them than keys: a mask then says where its diagonal is, and every score is
 * computed.
 */
function causalPart(ctx: TypedContext): number {
  const [rows, keys] = ['query', 'key'].map((name) => ctx.tensor(name)?.shape.at(-2) ?? 1);
  return ctx.bool('is_causal') && rows === keys ? (rows + 1) / (2 * keys) : 1;
}
