/** A layout with everything stated, and its text. */
import type { Fp8Recipe } from '../../cost/kernels/software.ts';
import type { Gradients, States } from '../../cost/memory/state-bytes.ts';
import type { LayoutKind, LayoutSizes, LayoutTuning } from '../../step/layout.ts';
import type { LayoutKey } from '../../trainers/layout/layout-keys.ts';
import { cutsText } from '../../trainers/layout/stage-cuts.ts';

/** A layout with everything stated. */
export interface StatedLayout {
  readonly sizes: LayoutSizes;
  readonly kind: LayoutKind;
  readonly tuning: LayoutTuning;
  /**
   * The dtype of products and activations; fp8 and fp4: of products alone, from 16-bit weights,
   * with the recipe of fp8 after a colon. Absent: that of the question.
   */
  readonly dtype?: 'bf16' | 'f16' | 'f32' | 'fp8' | `fp8:${Fp8Recipe}` | 'fp4';
  /** The dtype that gradients are kept and summed in; absent: that of the question. */
  readonly gradients?: Gradients;
  /** The dtypes that weights and moments are kept in; absent: those of the question. */
  readonly states?: States;
}

/** The text of a layout, which `parseLayout` reads; what is as by default is left out. */
export function layoutText({
  sizes,
  kind,
  tuning,
  gradients,
  states,
  dtype,
}: StatedLayout): string {
  const { pp, dp_replicate: replicas, dp_shard: shards, cp, tp, ep, etp = 1 } = sizes;
  const { chunks, stageLayers, once, checkpoint, schedule, paired, offload } = tuning;
  const sized = (n: number): number | undefined => (n > 1 ? n : undefined);
  const isSharded = kind.mode === 'fsdp' || kind.mode === 'hsdp';
  const zero =
    kind.mode === 'hsdp' ? 3 : (['dp', 'zero1', 'zero2', 'fsdp'] as const).indexOf(kind.mode);
  const isEven = stageLayers?.every((n) => n === stageLayers[0]) !== false;
  const settings: Readonly<Partial<Record<LayoutKey, string | number | undefined>>> = {
    pp: sized(pp),
    vp: sized(chunks),
    stages: isEven || pp === 1 ? undefined : cutsText(stageLayers),
    dp_replicate: sized(replicas),
    dp: shards,
    cp: sized(cp),
    tp: sized(tp),
    sp: tp > 1 && !kind.sequenceParallel ? 0 : undefined,
    ep: sized(ep),
    etp: sized(etp),
    mbs: tuning.microbatch,
    zero,
    reshard: isSharded && once !== pp > 1 ? Number(!once) : undefined,
    recompute: checkpoint === 'none' ? undefined : checkpoint,
    offload: offload === true ? 1 : undefined,
    schedule: pp > 1 && schedule !== (chunks > 1 ? 'interleaved' : '1f1b') ? schedule : undefined,
    context: cp > 1 && kind.context !== 'ring' ? kind.context : undefined,
    pair: paired === true ? 1 : undefined,
    ...{ gradients, states, dtype },
  };
  return Object.entries(settings)
    .flatMap(([key, value]) => (value === undefined ? [] : [`${key}=${value}`]))
    .join(',');
}
