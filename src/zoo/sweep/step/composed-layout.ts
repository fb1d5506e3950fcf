/**
 * What a composer reads from its question and keeps of each layout. In: a question. Out: bytes of states, keys and values; the
 * records of layouts that were put together.
 */

import type { StateBytes } from '../../../cost/memory/state-bytes.ts';
import { DTYPE_BYTES, type DType } from '../../../graph/types.ts';
import { dtypeNamed } from '../../../models/build.ts';
import { parseModelConfig } from '../../../models/families.ts';
import type { Checkpoint } from '../../recipes/checkpoints.ts';
import type { LayoutKind, LayoutSizes } from '../model/layout.ts';
import type { SweepQuestion } from '../model/question.ts';
import type { DataGroups } from '../model/states.ts';
import type { CoreCost, CoreParameter } from '../model/types.ts';
import type { RoutedCosts } from '../rank/moe.ts';
import type { LeastUnits } from './least-units.ts';
import type { StateCosts } from './state-costs.ts';
import type { PassUnit, Unit } from './unit-costs.ts';

/** A mesh and what its dims do. */
export interface Layout {
  readonly sizes: LayoutSizes;
  readonly kind: LayoutKind;
}

export interface MadeLayout extends Layout {
  readonly core: CoreCost;
  readonly routed: RoutedCosts | undefined;
  readonly groups: DataGroups;
  /** By whether FSDP keeps what it gathers. */
  readonly states: Map<boolean, StateCosts>;
  /** Units without their states, by what is recomputed and whether microbatches run in pairs. */
  readonly passes: Map<string, readonly PassUnit[]>;
  /** By what is recomputed, and a number for the way to gather and to pair. */
  readonly units: Map<Checkpoint, MadeUnits[]>;
}

/** Units of a layout: of the built layers, and what is made of them on demand. */
export interface MadeUnits {
  readonly built: readonly Unit[];
  /** Of the whole model. */
  all?: readonly Unit[];
  /** Bounds of them and of the same units that keep all results. */
  least?: LeastUnits;
}

/** Parameters of experts, and all others with a number that equal lists share. */
export interface Parameters {
  readonly id: number;
  readonly experts: readonly CoreParameter[];
  readonly others: readonly CoreParameter[];
}

/** Of weights and activations where the question names none. */
function dtypeOf(config: string): DType {
  const { statedDtype } = parseModelConfig(config);
  return statedDtype === undefined ? 'bf16' : dtypeNamed(statedDtype);
}

/** Software that keeps a master copy keeps it beside 16-bit weights; an optimizer that is asked for goes before. */
export function stateOf({ software, optimizer, dtype, config }: SweepQuestion): Partial<StateBytes> | undefined {
  const state = software?.state;
  if (state === undefined || DTYPE_BYTES[dtype ?? dtypeOf(config)] !== 2) return undefined;
  if (optimizer === undefined) return state;
  return state.gradient === undefined || optimizer === 'none' ? undefined : { gradient: state.gradient };
}

/** Keys and values of a layer for one sequence; heads that a rank does not have whole are repeated (lint rule ZL04). */
export function keyValueBytes({ config, sequence, dtype }: SweepQuestion): (tp: number) => number {
  const { keyHeads, headWidth } = parseModelConfig(config).architecture.shape;
  const itemBytes = DTYPE_BYTES[dtype ?? dtypeOf(config)];
  return (tp) => 2 * sequence * Math.ceil(keyHeads / tp) * headWidth * itemBytes;
}
