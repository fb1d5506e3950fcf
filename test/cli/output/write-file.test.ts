import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { tryFolder, writeFolder, writeText } from '../../../src/cli/output/write-file.ts';
import { planModelInto } from '../plan-folders.ts';
import { cli, fixture } from '../support.ts';

const root = mkdtempSync(join(tmpdir(), 'write-file-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const PLAN = [
  'plan',
  fixture('mlp-loss'),
  '--mesh',
  'dp=2',
  '--cluster',
  'dgx-h100',
  '--no-recipes',
  '--quiet',
];

function message(write: () => void): string {
  try {
    write();
  } catch (error) {
    const { code, message: text } = error as { readonly code?: string; readonly message: string };
    return `${code} ${text}`;
  }
  return 'written';
}

describe('what cannot be written is E_IO with its path', () => {
  let device = '';
  beforeAll(() => {
    device = join(root, 'pipe');
    execFileSync('mkfifo', [device]);
    mkdirSync(join(root, 'a folder'));
    writeFileSync(join(root, 'target'), 'kept');
    symlinkSync(join(root, 'target'), join(root, 'link'));
    writeFileSync(join(root, 'a file'), '');
  });

  it.each([
    ['no path', () => ''],
    ['a folder', () => join(root, 'a folder')],
    ['a link', () => join(root, 'link')],
    ['a pipe', () => device],
    ['a device', () => '/dev/full'],
    ['a folder that is not there', () => join(root, 'no', 'such')],
    ['a file as a folder', () => join(root, 'a file', 'x')],
    ['/proc', () => '/proc/shardwright'],
  ])('%s', (_, path) => {
    const said = message(() => writeText(path(), 'text', 'report'));
    expect(said).toMatch(/^E_IO cannot write the report to /);
    expect(said).toContain(path() === '' ? "''" : path());
    expect(said).not.toContain('.new');
  });

  it('leaves what a link leads to as it was, and nothing beside it', () => {
    expect(readFileSync(join(root, 'target'), 'utf8')).toBe('kept');
    expect(lstatSync(join(root, 'link')).isSymbolicLink()).toBe(true);
    expect(readdirSync(root).filter((name) => name.endsWith('.new'))).toEqual([]);
  });

  it.each(['/proc/out', '', '/dev/null/out'])(
    'plan -o %j says so before it solves anything',
    async (output) => {
      const run = await cli(...PLAN, '-o', output);
      expect([run.code, run.out]).toEqual([2, '']);
      expect(run.err).toContain(`E_IO cannot write the plan to ${output === '' ? "''" : output}`);
      const json = await cli(...PLAN, '-o', output, '--json');
      expect(JSON.parse(json.out)).toMatchObject({
        error: { code: 'E_IO', where: { path: output } },
      });
    },
  );

  it('plan -o DIR with a link for plan.json follows nothing', async () => {
    const folder = join(root, 'linked');
    mkdirSync(folder);
    symlinkSync(join(root, 'target'), join(folder, 'plan.json'));
    const run = await cli(...PLAN, '-o', folder);
    expect([run.code, run.out]).toEqual([2, '']);
    expect(run.err).toContain('symbolic link');
    expect(readFileSync(join(root, 'target'), 'utf8')).toBe('kept');
  });
});

describe('a file is replaced as a whole', () => {
  it('keeps the mode of the old one, and takes another inode', () => {
    const path = join(root, 'kept mode');
    writeFileSync(path, 'old');
    chmodSync(path, 0o640);
    const before = statSync(path).ino;
    writeText(path, 'new', 'report');
    expect([
      readFileSync(path, 'utf8'),
      statSync(path).mode & 0o777,
      statSync(path).ino === before,
    ]).toEqual(['new', 0o640, false]);
  });

  it('a full disk leaves the old files whole', () => {
    // A limit on the size of a file stands for a full disk: the second file cannot be written to
    // its end.
    const folder = join(root, 'full');
    mkdirSync(folder);
    for (const name of ['a', 'b']) writeFileSync(join(folder, name), 'old');
    const module = fileURLToPath(new URL('../../../src/cli/output/write-file.ts', import.meta.url));
    const script = join(root, 'full.mts');
    writeFileSync(
      script,
      `import { writeFolder } from ${JSON.stringify(module)};
      try { writeFolder(${JSON.stringify(folder)}, [['a', 'new'], ['b', 'x'.repeat(1 << 20)]], 'plan'); console.log('written'); }
      catch (error) { console.log(error.code, error.message); }`,
    );
    const tsx = fileURLToPath(new URL('../../../node_modules/.bin/tsx', import.meta.url));
    const run = spawnSync('bash', ['-c', `trap '' XFSZ; ulimit -f 64; exec ${tsx} ${script}`], {
      encoding: 'utf8',
    });
    expect(run.stdout).toContain(`E_IO cannot write the plan to ${folder}: EFBIG`);
    expect(readdirSync(folder).sort()).toEqual(['a', 'b']);
    for (const name of ['a', 'b']) expect(readFileSync(join(folder, name), 'utf8')).toBe('old');
  });

  it('trying a folder leaves nothing behind', () => {
    tryFolder(join(root, 'tried', 'deep'), ['plan.json'], 'plan');
    expect(existsSync(join(root, 'tried'))).toBe(false);
  });

  it('a removed name is gone, the others are written', () => {
    const folder = join(root, 'removed');
    writeFolder(
      folder,
      [
        ['a', '1'],
        ['b', '2'],
      ],
      'plan',
    );
    writeFolder(
      folder,
      [
        ['a', '3'],
        ['b', undefined],
      ],
      'plan',
    );
    expect(readdirSync(folder)).toEqual(['a']);
    expect(readFileSync(join(folder, 'a'), 'utf8')).toBe('3');
  });
});

describe('a plan folder that a kill left half written', () => {
  it('is one whole plan after every step of the write', async () => {
    const names = [
      'plan.json',
      'graph.swg',
      'request.json',
      'certificate.json.gz',
      'problems.json.gz',
    ];
    const old = await planModelInto(fixture('mlp-loss'), root, 'old');
    const next = await planModelInto(fixture('mlp'), root, 'next', '--inputs', 'S(0)S(0)');
    for (let done = 0; done <= names.length; done++) {
      const folder = join(root, `killed ${done}`);
      mkdirSync(folder);
      // All of the new files are on the disk; so many of them were put in their place.
      for (const name of names) {
        writeFileSync(join(folder, name), readFileSync(join(old, name)));
        writeFileSync(join(folder, `${name}.new`), readFileSync(join(next, name)));
      }
      for (const name of names.slice(0, done))
        renameSync(join(folder, `${name}.new`), join(folder, name));
      const run = await cli('check-plan', folder, '--json');
      const { ok, model } = JSON.parse(run.out) as { readonly ok: boolean; readonly model: string };
      const whose = JSON.parse(
        readFileSync(join(done === 0 ? old : next, 'plan.json'), 'utf8'),
      ) as { readonly model: string };
      expect([done, run.code, ok, model]).toEqual([done, 0, true, whose.model]);
    }
  });
});

describe('the answer is printed before it is written', () => {
  it('a folder that is taken away meanwhile costs the files, not the answer', async () => {
    const folder = join(root, 'taken');
    let out = '';
    const { runCli } = await import('../../../src/cli/program.ts');
    const code = await runCli([...PLAN, '-o', folder], {
      stdout: (text) => {
        out += text;
        // From here on there is a file where the folder was to be.
        if (!existsSync(folder)) writeFileSync(folder, '');
      },
      stderr: () => undefined,
      isTerminal: false,
    });
    expect(code).toBe(2);
    expect(out).toContain('optimal (gap 0)');
  });
});
