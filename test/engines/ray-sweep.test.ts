import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, expect, test } from 'vitest';

import { COMMAND } from '../../scripts/command.ts';

/**
 * `python -m shardwright.sweep` on a Ray cluster of this machine, beside `compare --sweep` in one
 * process.
 */
const python = process.env['SHARDWRIGHT_PYTHON'] ?? 'python3';
const PACKAGE = fileURLToPath(new URL('../../python', import.meta.url));
const QUESTIONS = `
models: [gpt2]
clusters: [{ name: own.json }]
devices: 8
sequences: [512, 1024]
globalBatches: [16]
plans: [fsdp]
`;
/** scripts/test-engines.sh installs Ray; another Python may lack it. */
const hasRay = spawnSync(python, ['-c', 'import ray']).status === 0;
const why = hasRay ? '' : ' (this Python has no ray)';
let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shardwright-ray-'));
  writeFileSync(join(folder, 'questions.yaml'), QUESTIONS);
  writeFileSync(join(folder, 'own.json'), '{"base": "dgx-h100"}');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/**
 * The sweep with a command that does what `first` says where it is called by a Ray worker for the
 * first time.
 */
function swept(
  out: string,
  first: string,
): { readonly status: number | null; readonly stderr: string; readonly calls: number } {
  const calls = join(folder, `${out}-calls`);
  writeFileSync(
    join(folder, 'command.py'),
    `import os, signal, sys
with open(${JSON.stringify(calls)}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
once = ${JSON.stringify(`${calls}-once`)}
if "--slice" in sys.argv and not os.path.exists(once):
    open(once, "w").close()
    ${first}
os.execv(${JSON.stringify(process.execPath)}, [${[process.execPath, ...COMMAND].map((word) => JSON.stringify(word)).join(', ')}, *sys.argv[1:]])
`,
  );
  const program = `import sys
from shardwright.sweep import sweep
from shardwright import CommandError
try:
    sweep(sys.argv[1], sys.argv[2], command=[sys.executable, sys.argv[3]], quiet=True)
except CommandError as error:
    sys.exit(str(error))
`;
  const run = spawnSync(
    python,
    ['-c', program, join(folder, 'questions.yaml'), join(folder, out), join(folder, 'command.py')],
    {
      encoding: 'utf8',
      env: { ...process.env, PYTHONPATH: PACKAGE },
      timeout: 240_000,
    },
  );
  return {
    status: run.status,
    stderr: run.stderr,
    calls: readFileSync(calls, 'utf8')
      .split('\n')
      .filter((line) => line.includes('--slice')).length,
  };
}

function answers(out: string): Record<string, string> {
  const at = join(folder, out);
  return Object.fromEntries(
    readdirSync(at).map((name) => [name, readFileSync(join(at, name), 'utf8')]),
  );
}

test.skipIf(!hasRay)(
  `a worker that is killed: its question is asked again, and the folder is that of one machine, byte for byte${why}`,
  () => {
    const alone = spawnSync(
      process.execPath,
      [
        ...COMMAND,
        'compare',
        '--sweep',
        join(folder, 'questions.yaml'),
        '-o',
        join(folder, 'alone'),
        '--quiet',
      ],
      { encoding: 'utf8' },
    );
    expect(alone.status, alone.stderr).toBe(0);
    const run = swept('ray', 'os.kill(os.getppid(), signal.SIGKILL)');
    expect(run.status, run.stderr).toBe(0);
    expect(run.calls).toBe(3);
    expect(answers('ray')).toEqual(answers('alone'));
    // Answers that are there are not asked again.
    rmSync(join(folder, 'ray', 'gpt2--own--8--512--16.json'));
    const again = swept('ray', 'pass');
    expect([again.status, again.calls]).toEqual([0, 4]);
    expect(answers('ray')).toEqual(answers('alone'));
  },
  300_000,
);

test.skipIf(!hasRay)(
  `what the command refuses on a worker is refused here, with its hint${why}`,
  () => {
    const run = swept(
      'refused',
      `print('{"error": {"code": "E_CLUSTER", "message": "no such rack", "hint": "name another."}}'); sys.exit(2)`,
    );
    expect(run.status).toBe(1);
    expect(run.stderr).toContain('E_CLUSTER no such rack');
    expect(run.stderr).toContain('hint: name another.');
  },
  300_000,
);
