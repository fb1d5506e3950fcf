/**
 * Finds products whose result is a pending sum when it is saved for the backward pass, and gives
 * the bytes and moves that implementations have instead.
 */

import { DTYPE_BYTES } from '../../../graph/types.ts';
import { push } from '../../../list-map.ts';
import { isPartialCode } from '../../../mesh/sharding/space.ts';
import { elements } from '../../../ops/record/record.ts';
import type { Routes } from '../../../plan/choice/routes.ts';
import type { Model, Use } from '../../../plan/model/model.ts';
import type { GraphUnits } from '../graph-units.ts';

/** One redistribution on the way of a value to a use. */
export interface Step {
  readonly kind: string;
  readonly meshDims: readonly number[];
  readonly bytes: number;
  readonly seconds: number;
}

/** A move for a use, and the node that it is charged to. */
export interface Move {
  readonly use: Use;
  readonly kind: 'activation' | 'weight' | 'gradient';
  readonly node: number;
  readonly steps: readonly Step[];
  /** True if it makes or takes a copy that stays from the forward to the backward pass. */
  readonly kept: boolean;
}

/** Collectives that can be cut into parts which overlap with products of matrices. */
export const PARTS: ReadonlySet<string> = new Set(['all_gather', 'reduce_scatter']);

/** Bytes of a value on one device under a sharding. */
export function localBytes({ flow, space }: Model, value: number, sharding: number): number {
  const { meta } = flow.values[value];
  return elements(space.localShape(sharding, meta.shape)) * DTYPE_BYTES[meta.dtype];
}

/**
 * Results that a product leaves as pending sums over model dims, where they are kept for the
 * backward pass: kept is what their uses get of them, since nothing reads the summands twice
 * (torchtitan's selective checkpointing keeps the results of `reduce_scatter_tensor`, not what goes
 * in). Recomputation then takes the sum as it is.
 */
export class PendingSums {
  private readonly uses = new Map<number, Use[]>();

  constructor(
    private readonly model: Model,
    private readonly routes: Routes,
    private readonly units: GraphUnits,
    private readonly moves: readonly Move[],
  ) {
    for (const use of model.uses) if (use.at.kind === 'input') push(this.uses, use.value, use);
  }

  /** Bytes of a value on a device, as it is kept. */
  keptBytes(value: number): number {
    const owned = localBytes(this.model, value, this.routes.owned(value));
    const uses = this.uses.get(value) ?? [];
    if (uses.length === 0 || !this.isPending(value)) return owned;
    return Math.min(
      owned,
      Math.max(...uses.map((u) => localBytes(this.model, value, this.routes.demanded(u)))),
    );
  }

  /**
   * By unit, seconds of sums that the calls which are recomputed need of results that are kept; of
   * them those over `tp` in parts.
   */
  madeBefore(again: ReadonlySet<string>): {
    readonly seconds: Float64Array;
    readonly tensorParts: Float64Array;
  } {
    const { graph, flow, space } = this.model;
    const seconds = new Float64Array(this.units.count);
    const tensorParts = new Float64Array(this.units.count);
    for (const { use, kind, node, steps } of this.moves) {
      const producer = graph.nodes[flow.values[use.value].node];
      if (kind !== 'activation' || use.at.kind !== 'input' || producer.kind !== 'call') continue;
      if (
        !again.has(graph.nodes[node].name) ||
        again.has(producer.name) ||
        !this.isPending(use.value)
      )
        continue;
      const unit = this.units.unit[node];
      for (const step of steps) {
        seconds[unit] += step.seconds;
        const isTensor = step.meshDims.every((d) => space.mesh.names[d] === 'tp');
        if (PARTS.has(step.kind) && isTensor) tensorParts[unit] += step.seconds;
      }
    }
    return { seconds, tensorParts };
  }

  private isPending(value: number): boolean {
    const { space } = this.model;
    const owned = this.routes.owned(value);
    return space.mesh.dims.some(({ size }, d) => size > 1 && isPartialCode(space.kindAt(owned, d)));
  }
}
