// CPU seconds and memory of whole `plan` processes, as the time program counts them.
//
//   node bench/plan.mjs [--runs N] [--before CLI] [CASE ...]
//
// CLI is the dist/cli/main.js of another version; it runs in turn with this one. CASE is the number
// of a case (default: all). Needs a built dist/ (npm run build) and the time program (Debian:
// apt-get install time). Prints one row per case as Markdown.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: { runs: { type: 'string', default: '3' }, before: { type: 'string' } },
});
const runs = Number(flags.runs);
const here = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url));
const versions = flags.before === undefined ? [here] : [flags.before, here];

/** @param {string} name */
const fixture = (name) =>
  fileURLToPath(new URL(`../test/fixtures/torch/${name}/joint.expanded.txt.gz`, import.meta.url));
const two = fixture('llama3-8b-2l-b16');
const deep = fixture('llama3-8b-32l-b16');

/**
 * A graph with its middle layer repeated, made once.
 * @param {string} source
 * @param {number} layers
 * @param {number} extra
 */
function deepened(source, layers, extra) {
  const file = join(tmpdir(), `shardwright-llama-${layers}l.swg`);
  if (existsSync(file)) return file;
  const script = fileURLToPath(new URL('deepen.ts', import.meta.url));
  const made = spawnSync(process.execPath, [
    '--import',
    'tsx',
    script,
    source,
    String(extra),
    file,
  ]);
  if (made.status !== 0) throw new Error(made.stderr.toString());
  return file;
}

const serial = ['--no-recipes'];
const states = [
  '--optimizer',
  'none',
  '--activations',
  'off',
  '--memory',
  '120MiB',
  '--cost',
  'autoparallel',
];
/** @type {[string, () => string, string, ...string[]][]} */
const cases = [
  ['2 layers, 8 x 8', () => two, 'dp=8,tp=8'],
  ['2 layers, 8 x 8, no recipes', () => two, 'dp=8,tp=8', ...serial],
  ['32 layers, 8 x 8', () => deep, 'dp=8,tp=8'],
  ['32 layers, 8 x 8, no recipes', () => deep, 'dp=8,tp=8', ...serial],
  ['126 layers, 8 x 8, 400 GiB', () => deepened(deep, 126, 94), 'dp=8,tp=8', '--memory', '400GiB'],
  [
    '126 layers, the same, no recipes',
    () => deepened(deep, 126, 94),
    'dp=8,tp=8',
    '--memory',
    '400GiB',
    ...serial,
  ],
  ['2 layers, 2 x 4 x 8', () => two, 'pod=2,dp=4,tp=8'],
  ['32 layers, 2 x 4 x 8', () => deep, 'pod=2,dp=4,tp=8'],
  ['32 layers, 2 x 2 x 4 x 4, strides', () => deep, 'a=2,b=2,c=4,d=4', '--strided', 'rows'],
  [
    '32 layers, 8 x 8, states within 75.7 GiB',
    () => deep,
    'dp=8,tp=8',
    '--activations',
    'report',
    ...serial,
  ],
  [
    "8 layers, AutoParallel's prices, parameters within 120 MiB",
    () => deepened(fixture('llama3-8b-4l-b64'), 8, 4),
    'dp=8,tp=8',
    ...states,
  ],
];

/**
 * One run of a version.
 * @param {string} cli
 * @param {string[]} args
 */
function run(cli, args) {
  const child = spawnSync('/usr/bin/time', ['-f', '%U %S %M', process.execPath, cli, ...args], {
    maxBuffer: 2 ** 30,
  });
  const [user, system, kilobytes] = (child.stderr.toString().trim().split('\n').at(-1) ?? '')
    .split(' ')
    .map(Number);
  return { seconds: user + system, megabytes: kilobytes / 1024, output: child.stdout.toString() };
}

/** @param {number[]} numbers */
const median = (numbers) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];

const columns = ['CPU s, min', 'median', 'MB, most', 'step', 'proof'];
const head = [
  'case',
  ...versions.flatMap((_, v) => columns.map((c) => (v < versions.length - 1 ? `before: ${c}` : c))),
];
console.log(`| ${head.join(' | ')} |`);
console.log(`|${head.map(() => '---').join('|')}|`);
const asked = positionals.length === 0 ? cases.map((_, k) => k + 1) : positionals.map(Number);
for (const number of asked) {
  const [name, model, mesh, ...more] = cases[number - 1];
  const args = [
    'plan',
    model(),
    '--mesh',
    mesh,
    '--cluster',
    'dgx-h100',
    '--json',
    '--quiet',
    ...more,
  ];
  /** @type {ReturnType<typeof run>[][]} */
  const all = versions.map(() => []);
  for (let k = 0; k < runs; k++) versions.forEach((cli, v) => all[v].push(run(cli, args)));
  const cells = all.flatMap((one) => {
    const seconds = one.map((r) => r.seconds);
    const { proof, objective } = JSON.parse(one[0].output);
    return [
      Math.min(...seconds).toFixed(2),
      median(seconds).toFixed(2),
      Math.max(...one.map((r) => r.megabytes)).toFixed(0),
      `${(objective.seconds * 1e3).toPrecision(4)} ms`,
      proof.status === 'optimal' ? 'optimal' : `gap ${(proof.gap * 100).toPrecision(2)} %`,
    ];
  });
  console.log(`| ${name} | ${cells.join(' | ')} |`);
}
