/** The names of the cost presets, for whoever only names one: `presets.ts` loads what they do. */

/** Names that `--cost` takes, sorted. */
export const COST_PRESETS = ['alpha-beta', 'autoparallel', 'dtensor', 'nccl'] as const;
export type CostPreset = (typeof COST_PRESETS)[number];
