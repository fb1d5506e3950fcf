/**
 * What `inspect` takes of long programs: a chain of calls, as many inputs as calls, and as many
 * outputs, in three formats. Usage: npm run build && npx tsx bench/long-programs.ts [NODES ...];
 * writes a table of CPU seconds, seconds a million nodes, MB.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { LONG_PROGRAMS } from '../test/import/long-programs.ts';

const sizes = process.argv.slice(2).map(Number);
const main = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'long-programs-'));
/** Runs the command inside, and says at its end what it took. */
const runOf = (
  path: string,
): string => `process.argv = [process.execPath, 'shardwright', 'inspect', ${JSON.stringify(path)}, '--json'];
process.on('exit', () => { const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage(); process.stderr.write(JSON.stringify([(userCPUTime + systemCPUTime) / 1e6, maxRSS / 1024])); });
await import(${JSON.stringify(main)});`;

process.stdout.write('program | nodes | CPU s | CPU s a million nodes | peak MB\n');
for (const { name, file, write } of LONG_PROGRAMS)
  for (const nodes of sizes.length > 0 ? sizes : [100_000, 400_000, 1_000_000]) {
    const path = join(folder, file);
    writeFileSync(path, write(nodes));
    const run = spawnSync(process.execPath, ['--input-type=module', '-e', runOf(path)], {
      encoding: 'utf8',
      maxBuffer: 2 ** 30,
    });
    const [seconds, megabytes] = JSON.parse(/\[[^[]*\]$/.exec(run.stderr)?.[0] ?? '[]') as [
      number,
      number,
    ];
    process.stdout.write(
      `${name} | ${nodes} | ${seconds.toFixed(1)} | ${((seconds / nodes) * 1e6).toFixed(1)} ` +
        `| ${megabytes.toFixed(0)}\n`,
    );
  }
rmSync(folder, { recursive: true });
