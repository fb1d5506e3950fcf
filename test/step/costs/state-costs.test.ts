import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import type { StateBytes } from '../../../src/cost/memory/state-bytes.ts';
import { stateCosts, type UnitMoving } from '../../../src/step/costs/state-costs.ts';
import { GroupMaker } from '../../../src/step/data-groups.ts';
import type { CoreParameter } from '../../../src/step/units.ts';

/** 48 data ranks, one on each host. */
const groups = new GroupMaker('nccl', loadCluster('dgx-h100')).groups(
  { pp: 1, dp_replicate: 1, dp_shard: 48, cp: 1, tp: 8, ep: 1 },
  'ring',
);
const weight = (unit: number): CoreParameter => ({
  name: `w${unit}`,
  unit,
  kind: 'dense',
  localElements: 4e6,
  localRows: 2000,
  rows: 2000,
  rowWays: 1,
  itemBytes: 2,
  state: { parameter: 2, gradient: 2, optimizer: 12 },
  usedForward: true,
  usedBackward: true,
  trained: true,
  pending: [],
});
/** What the one parameter of unit 1 costs, of which a device has 40. */
const of = (mode: 'zero1' | 'fsdp', moving: Partial<UnitMoving>, state?: Partial<StateBytes>) =>
  stateCosts(
    [weight(1)],
    {
      mode,
      once: false,
      groups,
      moving: { times: [1, 40, 1], ...moving },
      ...(state === undefined ? {} : { state }),
    },
    3,
    false,
  ).sums[1];
const price = (kind: 'reduce_scatter' | 'all_gather', bytes: number): number =>
  groups.dense.collectives.seconds(kind, bytes, groups.dense.mesh.resolve(['dp_shard']));

describe('states of a unit', () => {
  it('a bucket takes the gradients of several layers, at most those of the device, and each layer pays its share', () => {
    expect(of('zero1', {}).sumSeconds).toBeCloseTo(price('reduce_scatter', 8e6), 12);
    const bucket = { elements: 40e6, perRank: 1e6 };
    expect(of('zero1', { bucket }).sumSeconds).toBeCloseTo(price('reduce_scatter', 96e6) / 12, 12);
    expect(of('zero1', { bucket, gradientBytes: 4 }).sumSeconds).toBeCloseTo(
      price('reduce_scatter', 192e6) / 12,
      12,
    );
    expect(of('zero1', { bucket: { elements: Infinity, perRank: 0 } }).sumSeconds).toBeCloseTo(
      price('reduce_scatter', 320e6) / 40,
      12,
    );
    // Many small collectives wait for hops; that is what buckets save.
    expect(of('zero1', { bucket }).sumSeconds).toBeLessThan(0.6 * of('zero1', {}).sumSeconds);
  });

  it('FSDP moves layer by layer, and scatters gradients in what they are summed in', () => {
    const wide = of('fsdp', { gradientBytes: 4, bucket: { elements: 40e6, perRank: 0 } });
    const rows = Math.ceil(2000 / 48) * 48;
    expect(wide.gatherForwardSeconds).toBeCloseTo(price('all_gather', rows * 2000 * 2), 12);
    expect(wide.scatterSeconds).toBeCloseTo(price('reduce_scatter', rows * 2000 * 4), 12);
  });

  it("states that the software keeps otherwise take the place of the optimizer's", () => {
    const kept = of('zero1', {}, { gradient: 4, optimizer: 16 });
    expect([kept.parameterBytes, kept.gradientBytes]).toEqual([8e6, 16e6]);
    expect(kept.optimizerBytes).toBe(16 * Math.ceil(4e6 / 48));
  });
});
