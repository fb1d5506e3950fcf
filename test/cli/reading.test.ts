import { spawn, spawnSync } from 'node:child_process';
import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { COMMAND } from '../../scripts/command.ts';
import { readFileBytes } from '../../src/platform/read-file.ts';
import { FULL } from '../support/full.ts';
import { cli, fixture } from './support.ts';

/**
 * Files of users: reading stops at a stated size whatever the file says of itself, and `-` is
 * stdin.
 */

let root = '';
beforeAll(() => void (root = mkdtempSync(join(tmpdir(), 'shardwright-'))));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const refusal = (work: () => unknown): string => {
  try {
    work();
  } catch (error) {
    return (error as { headline: string }).headline;
  }
  return 'read';
};

describe('a file of a user', () => {
  it('is read whole up to the limit and refused one byte beyond it', () => {
    const file = join(root, 'a');
    for (const size of [0, 1, 999, 1000]) {
      writeFileSync(file, Buffer.alloc(size, 7));
      expect(readFileBytes(file, { maxBytes: 1000 })).toEqual(Buffer.alloc(size, 7));
    }
    appendFileSync(file, 'x');
    expect(refusal(() => readFileBytes(file, { maxBytes: 1000 }))).toBe(
      `E_LIMIT ${file} has 1001 bytes, more than 1000`,
    );
  });

  it.skipIf(process.platform === 'win32')(
    'that says nothing of its size is read up to the limit and no further',
    () => {
      expect(refusal(() => readFileBytes('/dev/zero', { maxBytes: 300_000 }))).toBe(
        'E_LIMIT /dev/zero has more than 300000 bytes',
      );
      expect(readFileBytes('/dev/null')).toHaveLength(0);
    },
  );

  it.runIf(process.platform === 'linux')(
    'of a pipe or of the kernel, whose size is 0, is read to its end',
    () => {
      const text = readFileBytes('/proc/self/status').toString();
      expect(text).toMatch(/^Name:[^]*nonvoluntary_ctxt_switches:\s+\d+\n$/);
      const pipe = join(root, 'pipe');
      expect(spawnSync('mkfifo', [pipe]).status).toBe(0);
      // Three times the buffer of a pipe: the writer waits for the reader.
      const bytes = 200_000;
      const piped = (maxBytes: number): unknown => {
        const writer = spawnWriter(pipe, bytes);
        try {
          return readFileBytes(pipe, { maxBytes }).length;
        } finally {
          writer();
        }
      };
      expect(piped(bytes)).toBe(bytes);
      expect(refusal(() => piped(bytes - 1))).toMatch(
        /^E_LIMIT .*pipe has more than 199999 bytes$/,
      );
    },
  );
});

describe('every command that reads a file refuses what is too large before it is read', () => {
  // A file of holes: it takes no room, and reading it would take a gigabyte.
  const large = (): string => {
    const file = join(root, 'large.json');
    writeFileSync(file, '');
    truncateSync(file, 2 ** 30);
    return file;
  };
  const on = ['--mesh', 'd=2', '--cluster', 'dgx-h100'] as const;
  it.each([
    ['plan', (file) => ['plan', file, ...on]],
    ['inspect', (file) => ['inspect', file]],
    ['einshard', (file) => ['einshard', '--program', file]],
    ['validate', (file) => ['validate', file]],
    ['solve', (file) => ['solve', file]],
    ['a plan file', (file) => ['explain', file, 'x']],
    ['operators', (file) => ['plan', fixture('mlp'), ...on, '--ops', file]],
    ['a cluster', (file) => ['plan', fixture('mlp'), '--mesh', 'd=2', '--cluster', file]],
    ['a calibration', (file) => ['plan', fixture('mlp'), ...on, '--calibration', file]],
    ['a table of collectives', (file) => ['plan', fixture('mlp'), ...on, '--collectives', file]],
    ['a config', (file) => ['compare', file, '--devices', '2', '--cluster', 'dgx-h100']],
    ['a piece of a comparison', (file) => ['compare', '--merge', file]],
    [
      'what a sweep goes on from',
      (file) => ['compare', 'gpt2', '--devices', '2', '--cluster', 'dgx-h100', '--resume', file],
    ],
  ] as readonly (readonly [string, (file: string) => string[]])[])('%s', async (_, argv) => {
    const file = large();
    const run = await cli(...argv(file));
    expect([run.code, run.out]).toEqual([2, '']);
    expect(run.err).toContain(`E_LIMIT ${file} has 1073741824 bytes, more than`);
  });

  it.skipIf(process.platform === 'win32')('and what has no end at its limit', async () => {
    const run = await cli('validate', '/dev/zero');
    expect([run.code, run.out]).toEqual([2, '']);
    expect(run.err).toContain('E_LIMIT /dev/zero has more than 67108864 bytes');
  });
});

describe('- is stdin', () => {
  const piped = (input: string | Buffer, ...argv: readonly string[]) =>
    spawnSync(process.execPath, [...COMMAND, ...argv], { input, encoding: 'utf8' });

  it('for a model, packed or not: what a file of the same bytes gives', async () => {
    const packed = readFileSync(fixture('mlp'));
    const file = await cli('inspect', fixture('mlp'), '--json');
    // A compiled program comes unpacked below.
    for (const bytes of FULL ? [packed, gunzipSync(packed)] : [packed]) {
      const run = piped(bytes, 'inspect', '-', '--json');
      expect(run.stderr).toBe('');
      expect({ ...JSON.parse(run.stdout), name: '' }).toEqual({
        ...JSON.parse(file.out),
        name: '',
      });
    }
  });

  it('for a compiled program, which is looked at before it is read', () => {
    const run = piped(
      'HloModule m\n\nENTRY %main (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)\n  ROOT %r = f32[4]{0} add(%a, %a)\n}\n',
      'inspect',
      '-',
      '--json',
    );
    expect(JSON.parse(run.stdout)).toMatchObject({ format: 'hlo', nodes: 2 });
  });

  it('for solve, and a fault is told of stdin', () => {
    const problem = {
      problem: {
        name: 'two',
        nodes: {
          intervals: [
            [0, 1],
            [0, 1],
          ],
          costs: [
            [3, 1],
            [2, 5],
          ],
          usages: [
            [1, 1],
            [1, 1],
          ],
        },
        edges: { nodes: [[0, 1]], costs: [[0, 9, 9, 0]] },
        usage_limit: 2,
      },
    };
    // (0,0): 3+2+0, (0,1): 3+5+9, (1,0): 1+2+9, (1,1): 1+5+0.
    const run = piped(JSON.stringify(problem), 'solve', '-', '--json', '--quiet');
    expect(JSON.parse(run.stdout)).toMatchObject({
      status: 'optimal',
      objective: '5',
      choice: [0, 0],
    });
    expect(piped('{', 'solve', '-').stderr).toContain('<stdin>:1:2: E_SYNTAX not JSON');
  });
});

/** Writes so many bytes into a pipe from another process; the answer ends it. */
function spawnWriter(pipe: string, bytes: number): () => void {
  const child = spawn('sh', ['-c', `head -c ${bytes} /dev/zero > "$1"`, 'sh', pipe], {
    stdio: 'ignore',
  });
  return () => void child.kill();
}
