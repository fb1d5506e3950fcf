import { loadCluster } from '../src/cost/cluster.ts';
import { alphaBeta } from '../src/cost/alpha-beta.ts';
import { Redistributor } from '../src/cost/redistribute.ts';
import { parseMesh } from '../src/mesh/mesh.ts';
import { ShardingSpace } from '../src/mesh/space.ts';
for (const m of ['dp=8,tp=8', 'dp=4,cp=4,tp=4']) for (let rank = 1; rank <= 5; rank++) {
  const mesh = parseMesh(m); const space = new ShardingSpace(mesh);
  const r = new Redistributor(space, alphaBeta(loadCluster('dgx-h100'), mesh)) as any;
  const ids = space.enumerate(rank, { partialOps: ['sum'] });
  const t0 = performance.now();
  const p = r.pricesOf({ shape: Array.from({length: rank}, (_, i) => 64 * (i + 3)), itemBytes: 2 }, ids);
  const t1 = performance.now();
  const g = p.graph; let ess = 0;
  for (let s = 0; s < g.stateCount; s++) { const row = r.row(p, s); for (let e = g.edgeStart[s]; e < g.edgeStart[s+1]; e++) if (p.prices[g.edgeSlot[e]] <= row[g.edgeTarget[e]] ) ess++; }
  const t2 = performance.now();
  for (let k = 0; k < 5; k++) { p.rows.fill(undefined); for (let s = 0; s < g.stateCount; s++) r.row(p, s); }
  const t3 = performance.now();
  console.log(m, rank, 'ids', ids.length, 'states', g.stateCount, 'edges', g.edgeTarget.length, 'slots', g.slots.length, 'essential', ess, 'build ms', (t1-t0).toFixed(1), 'per sssp us', ((t3-t2)*200/g.stateCount).toFixed(1));
}
