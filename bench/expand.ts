/**
 * Expansion and choice of strategies beside PyTorch 2.13's own figures (`enumerate_us`, `choose_us`
 * of the recorded timing: one thread, milliseconds of Python). "expand" lists every candidate;
 * "enumerate" and "priority" also price and choose, by enumeration or best first. These are warm:
 * the rules of the call are at hand, and shardings and prices that were asked for before are known
 * (DTensor's figures are of repeated calls too). "first" is the first call in a fresh space, where
 * nothing is known yet; most of it is the redistribution planner, and the compiler that has not
 * seen these sizes. Budget: listing at least 100 times faster than the recorded enumeration on mm,
 * the search faster than our enumeration from two mesh dims on. Run: npx tsx bench/expand.ts
 */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { dtensorModel } from '../src/cost/presets/dtensor.ts';
import { Redistributor } from '../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../src/mesh/sharding/space.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import { expandRows } from '../src/ops/expansion/expand.ts';
import { bindText, parseCall } from '../src/ops/samples/call-text.ts';
import { fillRules } from '../src/strategy/fill.ts';
import { propagate } from '../src/strategy/propagate.ts';
import { tableText } from '../src/units.ts';

interface Recorded {
  readonly strategies: Readonly<
    Record<string, Readonly<Record<string, { readonly mixed: { readonly enumerate_us: number } }>>>
  >;
}

/** PyTorch 2.13.0 on CPU, a fake process group of 8, median of 7; no text of PyTorch is in it. */
const file = new URL('../test/fixtures/oracle/timing.json.gz', import.meta.url);
const recorded = JSON.parse(gunzipSync(readFileSync(file)).toString('utf8')) as Recorded;

const CALLS: Readonly<Record<string, readonly [call: string, inputs: number]>> = {
  mm: ['mm(f32[64,64], f32[64,64])', 2],
  bmm: ['bmm(f32[64,64,64], f32[64,64,64])', 2],
  addmm: ['addmm(f32[64], f32[64,64], f32[64,64])', 3],
  add: ['add.Tensor(f32[64,64], f32[64,64])', 2],
};
const MESHES = ['1d(8)', '2d(2,4)', '3d(2,2,2)', '4d(2,2,2,2)'];

/**
 * Microseconds of user CPU of a call: the least of five batches of 60 ms, after 200 ms of calls
 * that let the compiler settle. CPU time and not wall time, so that other work on the machine does
 * not count.
 */
function microseconds(run: () => void): number {
  const until = process.hrtime.bigint() + 200_000_000n;
  while (process.hrtime.bigint() < until) run();
  let least = Infinity;
  for (let batch = 0; batch < 5; batch++) {
    const start = process.cpuUsage();
    let calls = 0;
    let used = 0;
    while (used < 60_000) {
      for (let i = 0; i < 16; i++) run();
      calls += 16;
      used = process.cpuUsage(start).user;
    }
    least = Math.min(least, used / calls);
  }
  return least;
}

const operators = builtinOperators();
const rows: string[][] = [];
for (const [name, [text, inputs]] of Object.entries(CALLS))
  for (const meshText of MESHES) {
    const sizes = meshText.slice(3, -1).split(',').map(Number);
    const mesh = parseMesh(sizes.map((n, i) => `m${i}=${n}`).join(','));
    const { record, ctx } = bindText(operators, parseCall(text));
    const given = Array.from({ length: inputs }, (_, i) =>
      sizes
        .map((__, m) => (i === 0 && m === 0 ? 'S(0)' : i > 0 && m === 0 ? 'P(sum)' : 'R'))
        .join(''),
    );
    const setup = () => {
      const space = new ShardingSpace(mesh);
      return {
        space,
        ids: given.map((g) => space.parse(g)),
        prices: new Redistributor(space, dtensorModel(mesh), { merge: false }),
      };
    };
    const { space, ids, prices } = setup();
    const shardings = ids.map((id) => space.get(id));
    let count = 0;
    const list = (): void => {
      const filled = fillRules(space, record.shard(ctx), ctx.inputs, ctx.outputs, shardings, {
        compat: true,
      });
      count = expandRows(space, filled.rules, filled.rows, ctx.inputs, ctx.outputs, {
        uneven: 'allow',
        unitDims: 'expand',
      }).count;
    };
    const expand = microseconds(list);
    const best = (search: 'priority' | 'enumerate'): number =>
      microseconds(() => propagate(space, record, ctx, ids, prices, { compat: true, search }));
    const [priority, enumerate] = [best('priority'), best('enumerate')];
    const fresh = setup();
    const start = process.hrtime.bigint();
    propagate(fresh.space, record, ctx, fresh.ids, fresh.prices, { compat: true });
    const first = Number(process.hrtime.bigint() - start) / 1e3;
    const theirs = recorded.strategies[name]?.[meshText]?.mixed.enumerate_us;
    rows.push([
      name,
      meshText,
      String(count),
      expand.toFixed(1),
      theirs === undefined ? '-' : theirs.toFixed(0),
      theirs === undefined ? '-' : `${(theirs / expand).toFixed(0)}x`,
      enumerate.toFixed(1),
      priority.toFixed(1),
      first.toFixed(0),
    ]);
  }
const head = [
  'call',
  'mesh',
  'candidates',
  'expand us',
  '2.13 enumerate us',
  'ratio',
  'enumerate us',
  'priority us',
  'first us',
];
process.stdout.write(`${tableText([head, ...rows], [2, 3, 4, 5, 6, 7, 8])}\n`);
