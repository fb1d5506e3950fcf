import { loadCluster } from '/work/main/src/cost/cluster.ts';
import { alphaBeta } from '/work/main/src/cost/alpha-beta.ts';
import { Redistributor } from '/work/main/src/cost/redistribute.ts';
import { parseMesh } from '/work/main/src/mesh/mesh.ts';
import { ShardingSpace } from '/work/main/src/mesh/space.ts';
for (const [m, n] of [['dp=8,tp=8', 300], ['dp=4,cp=4,tp=4', 300]] as const) {
  const mesh = parseMesh(m); const space = new ShardingSpace(mesh);
  const t0 = process.cpuUsage();
  const r = new Redistributor(space, alphaBeta(loadCluster('dgx-h100'), mesh));
  let seed = 1; const rnd = (k: number) => (seed = (seed * 48271) % 2147483647) % k;
  const pool: Record<number, Int32Array> = {};
  for (let rank = 1; rank <= 5; rank++) pool[rank] = Int32Array.from(space.enumerate(rank, { partialOps: ['sum'] }));
  let states = 0, sum = 0;
  const per = [0,0,0,0,0,0];
  for (let i = 0; i < n; i++) {
    const rank = [2, 2, 3, 3, 3, 4, 4, 1, 5, 2][i % 10];
    const shape = Array.from({ length: rank }, () => 64 * (1 + rnd(64)) + (rnd(10) === 0 ? 3 : 0));
    const ids = pool[rank];
    const t = process.cpuUsage();
    const x = r.matrix({ shape, itemBytes: 2 }, ids, ids);
    per[rank] += process.cpuUsage(t).user / 1e3;
    sum += x[x.length - 1]; states += ids.length;
  }
  const t1 = process.cpuUsage(t0);
  console.log(m, n, 'types', states / n, 'ids/type', (t1.user / 1e3).toFixed(0), 'ms', per.map((x) => x.toFixed(0)).join(' '), sum, Object.values(pool).map(p=>p.length).join());
}
