/**
 * CPU time of all redistribution cost matrices of a large model: 300 distinct tensor types, every
 * sharding with P(sum) as source and as target. Budget: 150 ms on two mesh dims, 1.5 s on three.
 * Run: npx tsx bench/redistribution-matrices.ts
 */
import { alphaBeta } from '../src/cost/collectives/alpha-beta.ts';
import { loadCluster } from '../src/cost/hardware/load-cluster.ts';
import { Redistributor } from '../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../src/mesh/sharding/space.ts';

const RANKS = [2, 2, 3, 3, 3, 4, 4, 1, 5, 2];
const cluster = loadCluster('dgx-h100');
for (const text of ['dp=8,tp=8', 'dp=4,cp=4,tp=4']) {
  const mesh = parseMesh(text);
  const space = new ShardingSpace(mesh);
  const planner = new Redistributor(space, alphaBeta(cluster, mesh));
  const ids = new Map<number, Int32Array>();
  for (const rank of RANKS)
    ids.set(rank, Int32Array.from(space.enumerate(rank, { partialOps: ['sum'] })));
  let seed = 1;
  const random = (n: number): number => (seed = (seed * 48271) % 2147483647) % n;
  const start = process.cpuUsage();
  let pairs = 0;
  for (let i = 0; i < 300; i++) {
    const rank = RANKS[i % RANKS.length];
    const own = ids.get(rank) ?? new Int32Array();
    // One dim in ten is uneven.
    const shape = Array.from(
      { length: rank },
      () => 64 * (1 + random(64)) + (random(10) === 0 ? 3 : 0),
    );
    pairs += planner.matrix({ shape, itemBytes: 2 }, own, own).length;
  }
  const { user } = process.cpuUsage(start);
  console.log(`${text}: 300 types, ${pairs} pairs, ${(user / 1000).toFixed(0)} ms CPU`);
}
