/**
 * The program of one data rank, priced on the mesh dims that cut it (its model dims): what every
 * layout with the same model dims, whatever its stages and data ranks, is put together from. Plain
 * data: it travels between threads.
 */

import { meshSize } from '../../mesh/devices/mesh.ts';
import type { Part } from '../../recipes/parts.ts';
import type { Checkpoint } from '../../step/checkpoints.ts';
import type { LayoutKind, LayoutSizes } from '../../step/layout.ts';
import type { CoreParameter, CoreTraffic, CoreUnit, DataExtra } from '../../step/units.ts';
import type { DataRanks } from '../../step/zero-mode.ts';

/** A mesh dim that cuts the program of a data rank: `cp`, `sp` (Ulysses) or `tp`. */
interface CoreAxis {
  readonly name: 'cp' | 'sp' | 'tp';
  readonly size: number;
  /** Absent: every placement over it is free, and the cheapest plan is sought. */
  readonly part?: Part;
}

export interface CoreRequest {
  /** Sequences of one microbatch on a data rank. */
  readonly microbatch: number;
  /** Outermost first; dims of one device are left out. */
  readonly axes: readonly CoreAxis[];
  /** Also priced with this recomputed; absent: with what a search tries. */
  readonly recompute?: Checkpoint;
  /**
   * The data ranks whose costs the placements are chosen for, where they are free; absent: the
   * program alone.
   */
  readonly data?: DataRanks;
}

export interface CoreCost {
  readonly request: CoreRequest;
  /** Unit 0, the built layers, the last unit. */
  readonly units: readonly CoreUnit[];
  readonly parameters: readonly CoreParameter[];
  readonly extras: readonly DataExtra[];
  readonly traffic: readonly CoreTraffic[];
  /**
   * Seconds of the built layers as one program on the model dims, parameters and gradients in
   * place; with the costs of `data`.
   */
  readonly shallowSeconds: number;
  /** The proof of a free core, for the built layers. */
  readonly proof?: {
    readonly status: string;
    readonly bound: number;
    readonly gap: number;
    readonly objective: number;
  };
}

/** A core, or why there is none. */
export type CoreResult =
  | { readonly status: 'priced'; readonly core: CoreCost }
  | { readonly status: 'refused'; readonly request: CoreRequest; readonly reason: string };

/** A program by its sequences and axes: there is one of each in a sweep. */
export function coreKey({ microbatch, axes }: CoreRequest): string {
  return `${microbatch};${axes.map((a) => `${a.name}=${a.size}:${a.part ?? 'free'}`).join(',')}`;
}

/** Routed blocks by their program: equal for all that cut a data rank over as many devices. */
export function routedKey({ microbatch, axes }: CoreRequest): string {
  return `${microbatch} ${meshSize(axes)}`;
}

/** The program of a data rank of a layout. */
export function coreRequest(sizes: LayoutSizes, kind: LayoutKind, microbatch: number): CoreRequest {
  const axes: CoreAxis[] = [];
  if (sizes.cp > 1)
    axes.push({
      name: kind.context === 'ulysses' ? 'sp' : 'cp',
      size: sizes.cp,
      ...(kind.free === true ? {} : { part: kind.context === 'ulysses' ? 'ulysses' : 'context' }),
    });
  if (sizes.tp > 1)
    axes.push({
      name: 'tp',
      size: sizes.tp,
      ...(kind.free === true
        ? {}
        : { part: kind.sequenceParallel ? 'tensor-sequence' : 'tensor-whole' }),
    });
  return { microbatch, axes };
}
