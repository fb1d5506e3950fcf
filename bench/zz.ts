import { loadCluster } from '../src/cost/hardware/load-cluster.ts';
import { ATTENTION_SHARE, computeCost } from '../src/cost/compute.ts';
import { readFileSync } from 'node:fs';
import { calibratedClusterText, parseCalibration } from '../src/cost/collectives/calibration.ts';
import { builtinOperators } from '../src/index.ts';
import { loadPlan } from '../src/cli/input/plan-folder.ts';
import { exportSource } from '../src/export/target.ts';
import { fusedComputeSeconds } from '../src/passes/fusion/fusion.ts';
import { callContext, tensorMetas } from '../src/passes/call-context.ts';
const table = builtinOperators();
const cal = parseCalibration(readFileSync('/work/notes/gpu/calibration.json', 'utf8'));
const plain = loadCluster('dgx-h100'), measured = loadCluster(calibratedClusterText('dgx-h100', cal));
for (const p of process.argv.slice(2)) {
  const folder = loadPlan(`/work/main/.gpu/plans/${p}/plan`);
  const { graph } = exportSource(folder as never, table).lowered();
  for (const [name, cluster] of [['plain', plain], ['calibrated', measured]] as const)
    console.log(p, folder.plan.objective.computeSeconds, name, fusedComputeSeconds(graph, table, cluster, { attentionShare: ATTENTION_SHARE }));
  const metas = tensorMetas(graph);
  const by = new Map<string, [number, number]>();
  for (const node of graph.nodes) {
    const record = node.kind === 'call' ? table.get(node.target) : undefined;
    const ctx = record === undefined ? undefined : callContext(node, record, metas);
    if (!record || !ctx) { if (node.kind==='call') by.set(`MISSING ${node.target}`, [((by.get(`MISSING ${node.target}`)??[0])[0])+1, 0]); continue; }
    const s = computeCost(record, ctx, plain, { attentionShare: ATTENTION_SHARE }).seconds * 1e6;
    const e = by.get(node.target) ?? [0, 0]; e[0]++; e[1] += s; by.set(node.target, e);
  }
  for (const [k, v] of [...by].sort((m, n) => n[1][1] - m[1][1]).slice(0, 26)) console.log('   ', k.padEnd(50), v[0], v[1].toFixed(1));
}
