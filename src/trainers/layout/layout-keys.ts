/** The keys of a job's layout: those that `--layout` takes and that the trainers' files mean. */

/** Sizes: of mesh dims, of the chunks of a stage (`vp`), of a microbatch. */
export const LAYOUT_SIZES = [
  'pp',
  'dp_replicate',
  'dp',
  'cp',
  'tp',
  'ep',
  'etp',
  'vp',
  'mbs',
] as const;
export type LayoutSize = (typeof LAYOUT_SIZES)[number];

export const LAYOUT_KEYS = [
  ...LAYOUT_SIZES,
  'stages',
  'zero',
  'reshard',
  'recompute',
  'offload',
  'schedule',
  'sp',
  'context',
  'pair',
  'dtype',
  'gradients',
  'states',
] as const;
/** A key of `--layout`. */
export type LayoutKey = (typeof LAYOUT_KEYS)[number];
