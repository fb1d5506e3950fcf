import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { describe, expect, it } from 'vitest';

import { COMMAND } from '../../scripts/command.ts';
import { fixture } from './support.ts';

const main = COMMAND[0] ?? '';
const dist = dirname(dirname(main));
const run = (...args: readonly string[]): string => {
  const { stdout, stderr, status } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    cwd: fileURLToPath(new URL('../../', import.meta.url)),
  });
  expect(status, stderr).toBe(0);
  return stdout;
};

// Where dist/ is not of these sources, the command line runs from them.
describe.runIf(COMMAND.length === 1)(
  'the command line as one script with its compiled code',
  () => {
    it('is what plans run, and not what runs with a program of the user, which loads the library too', () => {
      const built = (path: string): string => JSON.stringify(pathToFileURL(join(dist, path)).href);
      const ask = `
      const { tuneRuntime } = await import(${built('cli/runtime.js')});
      const { compiledProgram } = await import(${built('cli/thread/compiled-program.mjs')});
      const kind = (...argv) => typeof compiledProgram(argv)?.runCli;
      const others = kind('demo');
      tuneRuntime();
      console.log(kind('demo'), kind('plan', 'a.fx.txt'), kind('plan', 'a.ts'), kind('plan', 'a', '--ops', 'b.mjs'), kind('--help'), others);`;
      expect(run('--input-type=module', '-e', ask).trim()).toBe(
        // The code is that of the flags of a command, and of no others.
        'function function undefined undefined undefined undefined',
      );
    });

    it('answers as the modules do', () => {
      const answer = (...flags: readonly string[]): string =>
        run(
          ...flags,
          main,
          'plan',
          fixture('mlp'),
          '--mesh',
          'd=2',
          '--cluster',
          'dgx-h100',
          '--json',
        ).replace(/"(re)?solveSeconds":[^,}]*/g, '');
      // A flag that V8 keeps no code for.
      expect(answer('--no-flush-bytecode')).toBe(answer());
    });
  },
);
