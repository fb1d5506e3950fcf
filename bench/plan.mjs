// CPU seconds and memory of whole `plan` processes, as /usr/bin/time sees them. Run: node bench/plan.mjs [RUNS]
// Needs a built dist/ (npm run build) and the time program (Debian: apt-get install time).
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const runs = Number(process.argv[2] ?? 3);
const cli = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url));
const torch = fileURLToPath(new URL('../test/fixtures/torch/', import.meta.url));
const deep = join(tmpdir(), 'llama-126l.swg');
if (!existsSync(deep)) {
  const made = spawnSync(process.execPath, [
    '--import',
    'tsx',
    fileURLToPath(new URL('deepen.ts', import.meta.url)),
    deep,
  ]);
  if (made.status !== 0) throw new Error(made.stderr.toString());
}

const cases = [
  ['2 layers, 8 x 8', `${torch}llama3-8b-2l-b16/joint.expanded.txt.gz`, 'dp=8,tp=8'],
  ['32 layers, 8 x 8', `${torch}llama3-8b-32l-b16/joint.expanded.txt.gz`, 'dp=8,tp=8'],
  ['126 layers, 8 x 8 (no limit)', deep, 'dp=8,tp=8', '--memory', '400GiB'],
  ['2 layers, 2 x 4 x 8', `${torch}llama3-8b-2l-b16/joint.expanded.txt.gz`, 'pod=2,dp=4,tp=8'],
  ['32 layers, 2 x 4 x 8', `${torch}llama3-8b-32l-b16/joint.expanded.txt.gz`, 'pod=2,dp=4,tp=8'],
];

console.log('| case | recipes | CPU s (min of runs) | peak MB | solve s | status |');
console.log('|---|---|---|---|---|---|');
for (const [name, model, mesh, ...more] of cases) {
  for (const recipes of ['with', 'without']) {
    let best = Infinity;
    let megabytes = 0;
    let proof = { status: '', gap: 0, solveSeconds: 0 };
    for (let k = 0; k < runs; k++) {
      const flags = recipes === 'with' ? [] : ['--no-recipes'];
      const run = spawnSync(
        '/usr/bin/time',
        [
          '-f',
          '%U %S %M',
          process.execPath,
          cli,
          'plan',
          model,
          '--mesh',
          mesh,
          '--cluster',
          'dgx-h100',
          '--json',
          '--quiet',
          ...flags,
          ...more,
        ],
        { maxBuffer: 2 ** 30 },
      );
      const [user, system, kilobytes] = run.stderr.toString().trim().split('\n').slice(-1)[0].split(' ').map(Number);
      best = Math.min(best, user + system);
      megabytes = Math.max(megabytes, kilobytes / 1024);
      proof = JSON.parse(run.stdout.toString()).proof;
    }
    const status = proof.status === 'optimal' ? 'optimal' : `gap ${(proof.gap * 100).toFixed(3)} %`;
    console.log(
      `| ${name} | ${recipes} | ${best.toFixed(2)} | ${megabytes.toFixed(0)} | ${proof.solveSeconds.toFixed(2)} | ${status} |`,
    );
  }
}
