/**
 * The changes of a layout that a person would try, one setting each: another degree, whose ranks
 * come from or go to the data ranks; another state mode; another size of a microbatch; another
 * recomputation. Two changes of different settings make a third layout.
 */
import type { Checkpoint } from '../../step/checkpoints.ts';
import { STATE_MODES } from '../../step/zero-mode.ts';
import type { TrainerRuns } from '../../trainers/runs.ts';
import type { StatedLayout } from '../model/stated-layout.ts';

/** A change of one setting. */
export interface Change {
  /** The setting, as `--layout` names it. */
  readonly key: string;
  /** The setting with its new value: `recompute=none`. */
  readonly set: string;
  /** The changed layout; undefined where the sizes do not allow it. */
  readonly of: (layout: StatedLayout) => StatedLayout | undefined;
}

const DEGREES = ['tp', 'cp', 'pp', 'ep'] as const;
const SCHEDULES = ['1f1b', 'gpipe', 'zb-h1'] as const;
const CHUNKS = [1, 2, 4, 8] as const;

/** @param tried the recomputation that is worth trying */
export function changesOf(layout: StatedLayout, tried: readonly Checkpoint[]): Change[] {
  const { kind, tuning, sizes } = layout;
  const changes: Change[] = [];
  const tune = (key: string, value: string | number, more: Partial<StatedLayout['tuning']>): void =>
    void changes.push({
      key,
      set: `${key}=${value}`,
      of: (l) => ({ ...l, tuning: { ...l.tuning, ...more } }),
    });
  const keep = (key: string, value: string | number, more: Partial<StatedLayout['kind']>): void =>
    void changes.push({
      key,
      set: `${key}=${value}`,
      of: (l) => ({ ...l, kind: { ...l.kind, ...more } }),
    });
  for (const checkpoint of tried)
    if (checkpoint !== tuning.checkpoint) tune('recompute', checkpoint, { checkpoint });
  for (const microbatch of [tuning.microbatch / 2, tuning.microbatch * 2])
    if (Number.isInteger(microbatch)) tune('mbs', microbatch, { microbatch });
  for (const degree of DEGREES)
    for (const factor of [1 / 2, 2]) {
      const value = sizes[degree] * factor;
      if (Number.isInteger(value))
        changes.push({
          key: degree,
          set: `${degree}=${value}`,
          of: (l) => withDegree(l, degree, l.sizes[degree] * factor),
        });
    }
  if (sizes.pp > 1) {
    for (const chunks of CHUNKS)
      if (chunks !== tuning.chunks)
        tune('vp', chunks, { chunks, schedule: chunks > 1 ? 'interleaved' : '1f1b' });
    for (const schedule of SCHEDULES)
      if (tuning.chunks === 1 && schedule !== tuning.schedule)
        tune('schedule', schedule, { schedule });
  }
  for (const mode of STATE_MODES)
    if (mode !== 'hsdp' && mode !== kind.mode)
      changes.push({ key: 'zero', set: `zero=${zeroOf(mode)}`, of: (l) => withMode(l, mode) });
  if (kind.mode === 'fsdp')
    for (const replicas of [2, 4, 8])
      changes.push({
        key: 'dp_replicate',
        set: `dp_replicate=${replicas}`,
        of: (l) => withReplicas(l, replicas),
      });
  if (kind.mode === 'fsdp' || kind.mode === 'hsdp')
    tune('reshard', Number(tuning.once), { once: !tuning.once });
  if (sizes.tp > 1)
    keep('sp', Number(!kind.sequenceParallel), { sequenceParallel: !kind.sequenceParallel });
  if (sizes.cp > 1)
    for (const context of ['ring', 'cp', 'ulysses'] as const)
      if (context !== kind.context) keep('context', context, { context });
  if (sizes.ep > 1)
    tune('pair', Number(tuning.paired !== true), { paired: tuning.paired !== true });
  return changes;
}

function zeroOf(mode: (typeof STATE_MODES)[number]): number {
  return ['dp', 'zero1', 'zero2', 'fsdp', 'hsdp'].indexOf(mode);
}

/** A degree changes, and the data ranks make up the devices; experts fold and take none. */
function withDegree(
  layout: StatedLayout,
  degree: (typeof DEGREES)[number],
  value: number,
): StatedLayout | undefined {
  const { sizes, kind, tuning } = layout;
  if (!Number.isInteger(value) || value < 1) return undefined;
  const shards = degree === 'ep' ? sizes.dp_shard : (sizes.dp_shard * sizes[degree]) / value;
  if (!Number.isInteger(shards)) return undefined;
  const changed = { ...sizes, [degree]: value, dp_shard: shards };
  const ranks = changed.dp_replicate * shards * changed.cp;
  const isPiped = changed.pp > 1;
  return {
    ...layout,
    sizes: changed,
    kind: {
      ...kind,
      ...(ranks === 1 ? { mode: 'dp' as const } : {}),
      ...(sizes.tp === 1 && changed.tp > 1 ? { sequenceParallel: true } : {}),
    },
    tuning: {
      ...tuning,
      ...(degree === 'pp' && sizes.pp === 1 && isPiped ? { schedule: '1f1b' as const } : {}),
      ...(degree === 'pp' && !isPiped ? { chunks: 1, schedule: '1f1b' as const } : {}),
      ...(degree === 'pp' && tuning.once === sizes.pp > 1 ? { once: isPiped } : {}),
    },
  };
}

function withMode(
  { sizes, kind, tuning, ...more }: StatedLayout,
  mode: StatedLayout['kind']['mode'],
): StatedLayout | undefined {
  const { dp_replicate: replicas, dp_shard: shards, cp, pp } = sizes;
  if (replicas * shards * cp === 1) return undefined;
  return {
    ...more,
    sizes: { ...sizes, dp_replicate: 1, dp_shard: replicas * shards },
    kind: { ...kind, mode },
    tuning: { ...tuning, once: mode === 'fsdp' ? pp > 1 : false },
  };
}

function withReplicas(layout: StatedLayout, replicas: number): StatedLayout | undefined {
  const { sizes, kind } = layout;
  const shards = sizes.dp_shard / replicas;
  if (kind.mode !== 'fsdp' || !Number.isInteger(shards) || shards < 2) return undefined;
  return {
    ...layout,
    sizes: { ...sizes, dp_replicate: replicas, dp_shard: shards },
    kind: { ...kind, mode: 'hsdp' },
  };
}

/**
 * A layout with the stages that the trainer makes of it where none are stated; undefined where it
 * makes no such stages, or where the parts have no layer each.
 */
export function onStages(
  layout: StatedLayout,
  layers: number,
  runs: TrainerRuns | undefined,
): StatedLayout | undefined {
  const { sizes, tuning } = layout;
  const { stageLayers: _, ...bare } = tuning;
  const parts = sizes.pp * tuning.chunks;
  const own = { ...layout, tuning: { ...bare, asStated: true } };
  if (sizes.pp === 1) return tuning.chunks === 1 ? own : undefined;
  if (parts > layers) return undefined;
  if (runs?.cuts === undefined) return own;
  const stageLayers = runs.cuts(parts, layers, tuning.chunks);
  return stageLayers === undefined ? undefined : { ...own, tuning: { ...own.tuning, stageLayers } };
}
