import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';

import { COMMAND, REGISTER } from '../../scripts/command.ts';
import { type CliRun, OwnProcess } from '../support/own-process.ts';

/**
 * The command and the hook in processes of their own: module hooks do not run inside the test
 * runner.
 */

const root = join(import.meta.dirname, '../..');
let folder = '';
const other = OwnProcess.shared();
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shardwright-trace-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

interface Run {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function node(...args: readonly string[]): Run {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    cwd: root,
    encoding: 'utf8',
  });
  return { code: status, out: stdout, err: stderr };
}
const cli = (...args: readonly string[]): Promise<CliRun> => other.cli(...args);

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const MODEL = `import { spec, type Tensor } from 'shardwright';
import { MLP } from 'shardwright/trace';

const net: MLP = new MLP('', [128, 256, 64]);
export function model({ x }: { x: Tensor }): Tensor {
  return net.forward(x);
}
export const inputs = { x: spec([8, 128]) };
`;

test('the hook of node --import is installed where no file is on the command line', () => {
  const run = node(...REGISTER, '--eval', 'console.log(6 * 7)');
  expect(run).toEqual({ code: 0, out: '42\n', err: '' });
});

describe('shardwright trace', () => {
  it('prints the canonical text; --json counts', async () => {
    const path = file('mlp.model.ts', MODEL);
    const run = await cli('trace', path);
    expect(run.err).toBe('');
    expect(run.out).toMatch(
      /^swgraph 1\ngraph @mlp \{\n {2}in %fc1\.weight: f32\[256, 128\] parameter "fc1\.weight"\n/,
    );
    expect(run.out).toMatch(
      /%relu = aten\.relu\.default\(%linear\): f32\[8, 256\] ; forward source=".*mlp\.model\.ts:6:14"/,
    );
    expect(JSON.parse((await cli('trace', path, '--json')).out)).toEqual({
      nodes: 9,
      ops: { 'aten.linear.default': 2, 'aten.relu.default': 1 },
      subgraphs: {},
    });
  });

  it('a file without inputs exits 2 and names the export', async () => {
    const run = await cli('trace', file('no-inputs.ts', 'export default (x) => x;'));
    expect([run.code, run.out]).toEqual([2, '']);
    expect(run.err).toContain("has no export 'inputs'");
    expect((await cli('trace', file('no-model.ts', 'export const inputs = [];'))).err).toContain(
      "has no export 'model'",
    );
    expect((await cli('trace', join(folder, 'absent.ts'))).code).toBe(2);
  });

  it('a branch on a traced value exits 2 with the place of the condition in the source', async () => {
    const path = file(
      'branch.ts',
      MODEL.replace('return net.forward(x);', 'if (x.sum().gt(0)) return x.sin();\n  return x;'),
    );
    const run = await cli('trace', path);
    expect(run.code).toBe(2);
    expect(run.err).toContain(
      'symbolically traced variables cannot be used as inputs to control flow',
    );
    expect(run.err).toMatch(/branch\.ts:6:7\n/);
  });

  it('inspect and plan read a program', async () => {
    const path = file('planned.model.ts', MODEL);
    expect(JSON.parse((await cli('inspect', path, '--json')).out)).toMatchObject({
      format: 'trace',
      parameters: 49_472,
      flops: { forward: 786_432 },
    });
    const plan = JSON.parse(
      (await cli('plan', path, '--mesh', 'x=8', '--cluster', 'dgx-h100', '--no-recipes', '--json'))
        .out,
    ) as { proof: { status: string }; parameters: unknown[] };
    expect(plan.proof.status).toBe('optimal');
    expect(plan.parameters).toHaveLength(4);
    expect((await cli('inspect', path, '--role', 'x=parameter')).code).toBe(2);
  });
});

describe('node --import shardwright/register', () => {
  const app = `import { trace, spec } from 'shardwright';
import { model } from './net.model.ts';
import { helper } from './helper.ts';
const kind: string = helper();
try {
  trace(model, { x: spec([2]) });
} catch (error) {
  console.log(kind, (error as { code: string }).code, (error as Error).message);
}
`;
  const run = (): Run => {
    file(
      'net.model.ts',
      `import type { Tensor } from 'shardwright';\n\nexport const model = ({ x }: { x: Tensor }): Tensor =>\n  (x.sum() ? x : x.neg());\n`,
    );
    file(
      'helper.ts',
      `export function helper(): string { const t: unknown = {}; return t ? 'host' : 'none'; }\n`,
    );
    return node(...REGISTER, file('app.ts', app));
  };

  it('model files are watched, their imports share the tracer, other TypeScript only loses its types', () => {
    const { out, err } = run();
    expect(err).toBe('');
    expect(out).toMatch(
      /^host E_TRACE_CONTROL_FLOW symbolically traced variables .* in '\?:' at .*net\.model\.ts:4:4\n$/,
    );
  });

  it('two processes print the same text', async () => {
    const path = file('twice.model.ts', MODEL);
    const alone = node(...COMMAND, 'trace', path);
    expect([alone.code, alone.err]).toEqual([0, '']);
    expect(alone.out).toMatch(/^swgraph 1\n/);
    expect((await other.cli('trace', path)).out).toBe(alone.out);
  });
});
