/**
 * Runs the fuzzers in turns until the time is over. Usage: npm run fuzz -- --minutes N [--seed S]
 * [--only NAME] Exit 1 with a report of seed and smallest example for each fuzzer that fails; it is
 * left out of later turns.
 */
import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';

import { FUZZERS } from './all.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
  },
});
const [minutes, seed] = [Number(values.minutes), Number(values.seed)];
if (!(minutes > 0))
  throw new Error(
    `--minutes is '${values.minutes}', expected a number above 0: npm run fuzz -- --minutes 5`,
  );
if (seed !== (seed | 0))
  throw new Error(`--seed is '${values.seed}', expected a whole number from -2^31 to 2^31 - 1`);
const chosen = FUZZERS.filter(({ name }) => name.includes(values.only));
if (chosen.length === 0)
  throw new Error(
    `--only '${values.only}' is in no name: ${FUZZERS.map((f) => f.name).join(', ')}`,
  );

const end = performance.now() + minutes * 60_000;
const failed = new Set<string>();
for (
  let turn = seed;
  performance.now() < end && failed.size < chosen.length;
  turn = (turn + 1) | 0
) {
  for (const fuzzer of chosen) {
    if (failed.has(fuzzer.name) || performance.now() >= end) continue;
    const report = await fuzzer.run(turn, fuzzer.sample);
    if (report === undefined) continue;
    failed.add(fuzzer.name);
    process.stdout.write(`FAILED with --seed ${turn} --only '${fuzzer.name}'\n${report}\n\n`);
  }
}
for (const { name, outcomes } of chosen) {
  const seen = [...outcomes].map(([outcome, count]) => `${outcome} ${count}`).join(', ');
  process.stdout.write(`${failed.has(name) ? 'failed' : 'passed'}  ${name}: ${seen}\n`);
}
process.exitCode = failed.size > 0 ? 1 : 0;
