import { describe, expect, test } from 'vitest';

import { alphaBeta } from '../../../src/cost/collectives/alpha-beta.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { Redistributor } from '../../../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { Shard } from '../../../src/mesh/placements/shards/shard.ts';
import { parseSharding } from '../../../src/mesh/sharding/parse.ts';
import { cutFurther } from '../../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';

describe('FSDP over a weight that tensor parallelism cut', () => {
  const mesh = parseMesh('dp=2,tp=2');
  const space = new ShardingSpace(mesh);
  const planner = new Redistributor(space, alphaBeta(loadCluster('dgx-h100'), mesh), {
    merge: false,
  });
  const steps = (from: string): string[] => {
    const plan = planner.plan(
      { shape: [64, 64], itemBytes: 4 },
      space.parse(from),
      space.parse('RS(0)'),
    );
    return (plan?.steps ?? []).map(
      (s) => `${s.kind} ${s.meshDims.map((m) => mesh.names[m]).join()}`,
    );
  };

  test('the order that cuts last is undone by one all-gather over dp', () => {
    const stored = cutFurther(parseSharding('RS(0)', mesh), 0, Shard.of(0));
    expect(space.intern(stored)).toBe(space.parse('_S(0, 2)S(0)'));
    expect(steps('_S(0, 2)S(0)')).toEqual(['all_gather dp']);
  });

  test('mesh order takes two all-gathers and a slice', () => {
    expect(steps('S(0)S(0)')).toEqual(['all_gather tp', 'all_gather dp', 'slice tp']);
  });
});
