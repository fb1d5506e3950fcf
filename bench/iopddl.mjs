// Runs the public problems of the ASPLOS / EuroSys 2025 contest on intra-operator parallelism
// through the command line.
//
//   node bench/iopddl.mjs FOLDER [--limit SECONDS] [--threads N] [--seed N] [LETTER ...]
//
// FOLDER holds A.json.gz and so on (google/iopddl, renamed). Without --limit each file gets the
// contest's own limit. Prints one row per file as Markdown. Every choice is evaluated here once
// more, with big integers, straight from the file.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

/** Contest limit in seconds, contest's best cost, best published cost and best published bound. */
const FILES = {
  A: [60, 6548641531, 6548641531, 6.51381e9],
  B: [60, 532843, 532843, 532843],
  C: [60, 84102445260, 84102445200, 8.25091e10],
  G: [120, 217039, 217039, 216933],
  K: [180, 2274276676, 2242635780, 2.06562e9],
  M: [180, 49928460991, 49928157500, 4.94292e10],
  N: [180, 202739586553, 199470115000, 1.7294e11],
  P: [240, 662197407330, 651833115436, 6.21337e11],
  R: [240, 371899551572, 351826900528, 3.0452e11],
  S: [240, 1534613444, 1511377982, 1.51124e9],
  V: [300, 1632051, 1617084, 1617084],
};

const root = join(fileURLToPath(new URL('.', import.meta.url)), '..');
const [folder, ...rest] = process.argv.slice(2);
if (folder === undefined)
  throw new Error('usage: node bench/iopddl.mjs FOLDER [--limit SECONDS] [LETTER ...]');
/** @type {Record<string, string>} */
const flags = {};
/** @type {string[]} */
const letters = [];
for (let k = 0; k < rest.length; k++) {
  if (rest[k].startsWith('--')) flags[rest[k].slice(2)] = rest[++k];
  else letters.push(rest[k]);
}
const built = join(root, 'dist', 'cli', 'main.js');
const command =
  flags.source !== undefined || !existsSync(built)
    ? ['--import', 'tsx', join(root, 'src', 'cli', 'main.ts')]
    : [built];

/**
 * Cost and peak of a choice from the file alone.
 * @param {string} path
 * @param {number[]} choice
 */
function evaluate(path, choice) {
  const { nodes, edges, usage_limit } = JSON.parse(
    gunzipSync(readFileSync(path)).toString(),
  ).problem;
  let cost = 0n;
  const add = (/** @type {number} */ c) => {
    if (c >= 1e18) throw new Error('a forbidden strategy was chosen');
    cost += BigInt(c);
  };
  nodes.costs.forEach((/** @type {number[]} */ costs, /** @type {number} */ i) =>
    add(costs[choice[i]]),
  );
  edges.nodes.forEach((/** @type {[number, number]} */ [i, j], /** @type {number} */ e) =>
    add(edges.costs[e][choice[i] * nodes.costs[j].length + choice[j]]),
  );
  /** @type {Map<number, bigint>} */
  const steps = new Map();
  nodes.intervals.forEach((/** @type {[number, number]} */ [lo, hi], /** @type {number} */ i) => {
    if (lo >= hi) return;
    const u = BigInt(nodes.usages[i][choice[i]]);
    steps.set(lo, (steps.get(lo) ?? 0n) + u);
    steps.set(hi, (steps.get(hi) ?? 0n) - u);
  });
  let level = 0n;
  for (const t of [...steps.keys()].sort((a, b) => a - b)) {
    level += steps.get(t) ?? 0n;
    if (usage_limit !== undefined && level > BigInt(usage_limit))
      throw new Error(`usage ${level} exceeds the limit at ${t}`);
  }
  return cost;
}

console.log(
  '| file | limit s | cost | bound | gap | seconds | status | contest best | / own | best ' +
    'published | published bound |',
);
console.log('|---|---|---|---|---|---|---|---|---|---|---|');
for (const [letter, [contest, best, published, bound]] of Object.entries(FILES)) {
  if (letters.length > 0 && !letters.includes(letter)) continue;
  const path = join(folder, `${letter}.json.gz`);
  if (!existsSync(path)) continue;
  const limit = Number(flags.limit ?? contest);
  const args = [
    'solve',
    path,
    '--json',
    '--quiet',
    '--time-limit',
    String(limit),
    '--threads',
    flags.threads ?? '2',
  ];
  const run = spawnSync(process.execPath, [...command, ...args, '--seed', flags.seed ?? '0'], {
    maxBuffer: 2 ** 28,
    encoding: 'utf8',
  });
  const answer = JSON.parse(run.stdout);
  const cost = evaluate(path, answer.choice);
  if (cost !== BigInt(answer.objective))
    throw new Error(`${letter}: reported ${answer.objective}, the file says ${cost}`);
  const gap = `${(100 * answer.gap).toFixed(3)} %`;
  console.log(
    `| ${letter} | ${limit} | ${answer.objective} | ${answer.bound} | ${gap} | ` +
      `${answer.seconds.toFixed(1)} | ${answer.status} | ${best} | ` +
      `${(best / Number(cost)).toFixed(4)} | ${published} | ${bound} |`,
  );
}
