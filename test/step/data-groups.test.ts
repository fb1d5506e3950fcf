import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { GroupMaker } from '../../src/step/data-groups.ts';

/** Hosts of eight devices. */
const maker = new GroupMaker('nccl', loadCluster('dgx-h100'));
const overHosts = (dp_replicate: number, dp_shard: number, tp: number, cp = 1): boolean =>
  maker.groups({ pp: 1, dp_replicate, dp_shard, cp, tp, ep: 1 }, 'ring').overHosts;

describe('the data ranks of a layout are over hosts', () => {
  it.each([
    [1, 8, 1, false],
    [2, 4, 1, false],
    [1, 2, 4, false],
    [1, 1, 8, false],
    [1, 16, 1, true],
    [2, 8, 1, true],
    [1, 2, 8, true],
    [2, 1, 8, true],
    [16, 1, 1, true],
  ])('dp_replicate=%d, dp_shard=%d, tp=%d: %s', (replicate, shard, tp, expected) => {
    expect(overHosts(replicate, shard, tp)).toBe(expected);
  });

  it('two of them lie on two hosts where cp fills a host', () => {
    expect(overHosts(1, 2, 1, 8)).toBe(true);
    expect(overHosts(1, 2, 1, 4)).toBe(false);
  });
});
