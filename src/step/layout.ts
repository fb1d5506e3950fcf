/** The layout of a step: sizes of the mesh dims, how the sequence is cut, what is tuned; names. */

import {
  type Allocation,
  allocationOf,
  type Hosts,
  usedPerHost,
} from '../cost/hardware/topology.ts';
import type { PipelineSchedule } from '../simulate/pipeline/schedules.ts';
import type { Checkpoint } from './checkpoints.ts';
import type { StateMode } from './zero-mode.ts';

/**
 * Sizes of a mesh, outermost first: pp, dp_replicate, dp_shard, cp (or sp of Ulysses), tp; ep folds
 * over the last three, and so does etp, inside it: devices that cut each expert between them.
 * Without etp an expert is whole where it is used.
 */
export interface LayoutSizes {
  readonly pp: number;
  readonly dp_replicate: number;
  readonly dp_shard: number;
  readonly cp: number;
  readonly tp: number;
  readonly ep: number;
  readonly etp?: number;
}

/**
 * How a sequence dim is used (`cp` gathers keys and values, `ring` passes them on), and whether the
 * residual stream is cut between tensor-parallel regions.
 */
export interface LayoutKind {
  readonly mode: StateMode;
  readonly context: 'cp' | 'ring' | 'ulysses';
  readonly sequenceParallel: boolean;
  /** Placements over the model dims are free. */
  readonly free?: boolean;
}

/** The choices that are left when mesh and plan are given. */
export interface LayoutTuning {
  readonly microbatch: number;
  readonly schedule: PipelineSchedule;
  readonly chunks: number;
  readonly checkpoint: Checkpoint;
  /**
   * True if FSDP gathers parameters once a step and keeps them (`reshard=false`), not before every
   * pass.
   */
  readonly once: boolean;
  /**
   * True if the forward pass of a microbatch overlaps on a device with the backward pass of
   * another, so that exchanges of tokens with experts are hidden (`overlap.ts`); absent: one after
   * another.
   */
  readonly paired?: boolean;
  /**
   * True if what layers keep for the backward pass waits in the memory of the host: it goes there
   * beside the forward pass of its layer, and comes back beside the backward pass.
   */
  readonly offload?: true;
  /**
   * True if the layout runs as frameworks run what is stated: layers in equal parts (or by one
   * layer unequal), all of them recomputed; absent: stages are balanced by their seconds, and
   * layers are recomputed only where memory requires it.
   */
  readonly asStated?: boolean;
  /**
   * For a stated layout, the layers of each chunk, in the order of the model; embedding and head
   * are with the first and the last. Absent: equal parts.
   */
  readonly stageLayers?: readonly number[];
}

/** The name of a plan, as `compare --plans` takes it. */
export function planName(
  { pp, dp_replicate, dp_shard, cp, tp, ep, etp = 1 }: LayoutSizes,
  kind: LayoutKind,
): string {
  const parts: string[] = [];
  if (pp > 1) parts.push('pp');
  if (dp_replicate * dp_shard * cp > 1) parts.push(kind.mode);
  if (kind.free === true) parts.push('optimum');
  else {
    if (cp > 1) parts.push(kind.context);
    if (tp > 1) parts.push('tp');
    if (tp > 1 && kind.sequenceParallel) parts.push('sp');
  }
  if (ep > 1) parts.push('ep');
  if (etp > 1) parts.push('etp');
  return parts.length === 0 ? 'one device' : parts.join('+');
}

/** `pp=4,dp=8,tp=8`: the dims above 1, outermost first. */
export function meshText(sizes: LayoutSizes, kind?: LayoutKind): string {
  const data = sizes.dp_replicate > 1 && sizes.dp_shard > 1;
  const names: readonly (readonly [string, number])[] = [
    ['pp', sizes.pp],
    ...(data
      ? ([
          ['dp_replicate', sizes.dp_replicate],
          ['dp_shard', sizes.dp_shard],
        ] as const)
      : ([['dp', sizes.dp_replicate * sizes.dp_shard]] as const)),
    [kind?.context === 'ulysses' ? 'sp' : 'cp', sizes.cp],
    ['tp', sizes.tp],
  ];
  const text = names
    .filter(([, n]) => n > 1)
    .map(([name, n]) => `${name}=${n}`)
    .join(',');
  const dense = text === '' ? 'dp=1' : text;
  const folded = [
    ['ep', sizes.ep],
    ['etp', sizes.etp ?? 1],
  ] as const;
  const experts = folded
    .filter(([, n]) => n > 1)
    .map(([name, n]) => `${name}=${n}`)
    .join(',');
  return experts === '' ? dense : `${dense} ${experts}`;
}

/**
 * Products of the inner sizes of a layout's dense mesh, as hosts must fit them; its expert mesh
 * folds over the same devices.
 */
export function layoutInners({ pp, dp_replicate, dp_shard, cp, tp }: LayoutSizes): number[] {
  const rank = dp_replicate * dp_shard * cp * tp;
  return [pp * rank, rank, cp * tp, tp];
}

/** Hosts that a layout holds. */
export function allocationOfLayout(cluster: Hosts, sizes: LayoutSizes): Allocation {
  const inners = layoutInners(sizes);
  return allocationOf(cluster, inners[0], usedPerHost(cluster, inners));
}
