import { loadCluster } from '../src/cost/cluster.ts';
import { alphaBeta } from '../src/cost/alpha-beta.ts';
import { Redistributor } from '../src/cost/redistribute.ts';
import { parseMesh } from '../src/mesh/mesh.ts';
import { ShardingSpace } from '../src/mesh/space.ts';
const mesh = parseMesh('dp=4,cp=4,tp=4'); 
for (let rank = 2; rank <= 5; rank++) {
const space = new ShardingSpace(mesh);
const r = new Redistributor(space, alphaBeta(loadCluster('dgx-h100'), mesh)) as any;
const ids = Int32Array.from(space.enumerate(rank, { partialOps: ['sum'] }));
const t: any[] = [];
for (let k = 0; k < 12; k++) {
  const shape = Array.from({length: rank}, (_, i) => 64 * (i + 3 + k));
  const a = process.cpuUsage();
  const p = r.pricesOf({ shape, itemBytes: 2 }, ids);
  const b = process.cpuUsage(a).user;
  const c = process.cpuUsage();
  r.matrix({ shape, itemBytes: 2 }, ids, ids);
  const d = process.cpuUsage(c).user, e = process.cpuUsage();
  r.matrix({ shape, itemBytes: 2 }, ids, ids);
  t.push([b, d, process.cpuUsage(e).user, p.known]);
}
console.log(rank, t.join(' | '));
}
