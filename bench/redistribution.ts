/**
 * Rates of the redistribution planner, and how its plans compare with PyTorch's default ones on the
 * 10,520 recorded changes. Budget: a plan that was never asked for below 1 ms on three mesh dims.
 * Run: npx tsx bench/redistribution.ts
 */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { alphaBeta } from '../src/cost/collectives/alpha-beta.ts';
import { loadCluster } from '../src/cost/hardware/load-cluster.ts';
import { dtensorModel } from '../src/cost/presets/dtensor.ts';
import { GreedyPlanner } from '../src/cost/redistribution/greedy.ts';
import { Redistributor } from '../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../src/mesh/sharding/space.ts';
import { tableText } from '../src/units.ts';

const cluster = loadCluster('dgx-h100');

/** Median milliseconds of a call, over repetitions that each see something new. */
function median(repeat: number, call: (i: number) => void): number {
  const times: number[] = [];
  for (let i = 0; i < repeat; i++) {
    const start = performance.now();
    call(i);
    times.push(performance.now() - start);
  }
  times.sort((a, b) => a - b);
  return times[repeat >> 1];
}

function rates(text: string, rank: number): string[] {
  const mesh = parseMesh(text);
  const model = alphaBeta(cluster, mesh);
  const space = new ShardingSpace(mesh);
  const ids = space.enumerate(rank, { partialOps: ['sum'] });
  const shape = (i: number): number[] =>
    Array.from({ length: rank }, (_, d) => 64 * (1 + ((i + d * 7) % 97)));
  const pick = (i: number): [number, number] => [
    ids[(i * 7919 + 5) % ids.length],
    ids[(i * 104_729 + 11) % ids.length],
  ];
  const first = median(
    40,
    (i) => void new Redistributor(space, model).plan({ shape: shape(i), itemBytes: 2 }, ...pick(i)),
  );
  const planner = new Redistributor(space, model);
  for (let i = 0; i < 50; i++) planner.plan({ shape: shape(0), itemBytes: 2 }, ...pick(i));
  const type = median(
    60,
    (i) => void planner.plan({ shape: shape(i + 1), itemBytes: 4 }, ...pick(i)),
  );
  const pair = median(200, (i) => void planner.plan({ shape: shape(0), itemBytes: 8 }, ...pick(i)));
  const again = median(
    2000,
    (i) => void planner.plan({ shape: shape(0), itemBytes: 8 }, ...pick(i % 200)),
  );
  const greedy = new GreedyPlanner(space, model);
  const simple = median(
    200,
    (i) => void greedy.plan({ shape: shape(0), itemBytes: 8 }, ...pick(i)),
  );
  const ms = (x: number): string => x.toFixed(x < 0.1 ? 4 : 2);
  return [
    text,
    String(rank),
    ms(first),
    ms(type),
    ms(pair),
    ms(again),
    ms(simple),
    (first / type).toFixed(1),
  ];
}

console.log('Milliseconds of one plan (median), by what is known already:\n');
const rows = ['dp=8,tp=8', 'dp=2,cp=2,tp=2', 'dp=4,cp=4,tp=4'].flatMap((mesh) =>
  [2, 3, 4].map((rank) => rates(mesh, rank)),
);
const head = [
  'mesh',
  'rank',
  'nothing',
  'the mesh',
  'the type',
  'the plan',
  'greedy',
  'nothing / mesh',
];
console.log(tableText([head, ...rows], [1, 2, 3, 4, 5, 6, 7]));

interface OracleSet {
  readonly mesh: readonly number[];
  readonly shape: readonly number[];
  readonly rows: readonly (readonly [src: string, dst: string])[];
}
const file = new URL('../test/fixtures/oracle/redistribute.json.gz', import.meta.url);
const oracle = JSON.parse(gunzipSync(readFileSync(file)).toString()) as Record<string, OracleSet>;
const word = (w: string): string =>
  w.startsWith('S') ? `S(${w.slice(1)})` : w.replace('Psum', 'P(sum)');
const compared: string[][] = [];
for (const [name, { mesh: sizes, shape, rows: changes }] of Object.entries(oracle)) {
  const mesh = parseMesh(sizes.map((n, i) => `m${i}=${n}`).join(','));
  const space = new ShardingSpace(mesh);
  const model = dtensorModel(mesh);
  const greedy = new GreedyPlanner(space, model);
  const planners = [
    new Redistributor(space, model, { merge: false }),
    new Redistributor(space, model),
  ];
  const type = { shape, itemBytes: 4 };
  const cheaper = [0, 0];
  const worse = [0, 0];
  const saved = [0, 0];
  let allowed = 0;
  let total = 0;
  for (const [src, dst] of changes) {
    const from = space.parse(src.split(',').map(word).join(''));
    const to = space.parse(dst.split(',').map(word).join(''));
    const before = greedy.seconds(type, from, to);
    if (before === Infinity) continue;
    allowed++;
    total += before;
    planners.forEach((planner, i) => {
      const after = planner.seconds(type, from, to);
      saved[i] += before - after;
      if (after < before * (1 - 1e-9)) cheaper[i]++;
      if (after > before) worse[i]++;
    });
  }
  const percent = (x: number): string => `${((x / total) * 100).toFixed(1)} %`;
  compared.push([
    name,
    String(changes.length),
    String(allowed),
    ...[0, 1].flatMap((i) => [String(cheaper[i]), percent(saved[i]), String(worse[i])]),
  ]);
}
console.log("\nAgainst PyTorch's default plans, preset dtensor, 8 devices a host:\n");
const titles = [
  'recorded',
  'changes',
  'allowed',
  'cheaper by mesh dim',
  'saved',
  'worse',
  'cheaper merged',
  'saved',
  'worse',
];
console.log(tableText([titles, ...compared], [1, 2, 3, 4, 5, 6, 7, 8]));
