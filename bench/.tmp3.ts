import { loadCluster } from '../src/cost/cluster.ts';
import { alphaBeta } from '../src/cost/alpha-beta.ts';
import { Redistributor } from '../src/cost/redistribute.ts';
import { parseMesh } from '../src/mesh/mesh.ts';
import { ShardingSpace } from '../src/mesh/space.ts';
const mesh = parseMesh('dp=4,cp=4,tp=4'); const space = new ShardingSpace(mesh);
const r = new Redistributor(space, alphaBeta(loadCluster('dgx-h100'), mesh)) as any;
const ids = space.enumerate(5, { partialOps: ['sum'] });
const t: any[] = [];
for (let k = 0; k < 20; k++) {
  const a = process.cpuUsage();
  const p = r.pricesOf({ shape: Array.from({length: 5}, (_, i) => 64 * (i + 3 + k)), itemBytes: 2 }, ids);
  const b = process.cpuUsage(a).user;
  const c = process.cpuUsage();
  for (let s = 0; s < p.graph.stateCount; s++) r.row(p, s);
  t.push([b, process.cpuUsage(c).user]);
}
console.log(t.join(' | '));
