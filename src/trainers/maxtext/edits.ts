/**
 * The settings of a MaxText configuration that state a layout, as `readMaxtext` takes them: degrees
 * within a slice change, those between slices stay as the file has them.
 */
import { editYaml, type Settings } from '../layout/edit-settings.ts';
import type { ConfigEdits } from '../layout/edited-layout.ts';

export const MAXTEXT_EDITS: ConfigEdits = {
  settings: ({ sizes, kind, tuning, microbatches }, text) => {
    const { pp, dp_replicate: replicas, dp_shard: shards, cp, tp, ep } = sizes;
    const { mode, context, sequenceParallel } = kind;
    const policy = POLICIES[tuning.checkpoint];
    const cuts = mode === 'fsdp' || mode === 'hsdp';
    if (policy === undefined || mode === 'zero2' || shards % ep !== 0) return undefined;
    const axes = within(text, {
      pipeline: pp,
      data: cuts ? replicas : replicas * shards,
      fsdp: cuts ? shards / ep : 1,
      expert: ep,
      context: cp,
      tensor: sequenceParallel ? 1 : tp,
      tensor_sequence: sequenceParallel ? tp : 1,
    });
    if (axes === undefined) return undefined;
    const pieces = pp > 1 ? microbatches : 1;
    return {
      ...axes,
      per_device_batch_size: (tuning.microbatch * pieces) / (pp * cp * tp),
      gradient_accumulation_steps: pp > 1 || microbatches === 1 ? undefined : microbatches,
      num_pipeline_microbatches: pp > 1 ? microbatches : undefined,
      context_parallel_strategy: cp > 1 ? (context === 'ring' ? 'ring' : 'all_gather') : undefined,
      shard_optimizer_over_data: mode === 'zero1' ? true : undefined,
      remat_policy: policy,
    };
  },
  edit: editYaml,
};

const POLICIES: Readonly<Record<string, string>> = {
  none: 'none',
  products: 'minimal',
  full: 'full',
};

/**
 * The degrees within a slice; undefined where those between slices do not divide one. An axis of
 * degree 1 is left out where the file does not have it.
 */
function within(text: string, degrees: Readonly<Record<string, number>>): Settings | undefined {
  const settings: [string, number | undefined][] = [];
  for (const [axis, degree] of Object.entries(degrees)) {
    const stated = new RegExp(`^\\s*dcn_${axis}_parallelism:\\s*(\\d+)`, 'm').exec(text)?.[1];
    const inner = degree / Number(stated ?? 1);
    if (!Number.isInteger(inner)) return undefined;
    const key = `ici_${axis}_parallelism`;
    // What is not stated is 1, but for the axis of FSDP, which takes what is left.
    const isStated = axis === 'fsdp' || new RegExp(`^\\s*${key}:`, 'm').test(text);
    settings.push([key, inner > 1 || isStated ? inner : undefined]);
  }
  return Object.fromEntries(settings);
}
