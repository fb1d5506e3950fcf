import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { scriptError } from '../../src/cli/input/script-error.ts';
import { ShardwrightError } from '../../src/errors.ts';
import { OwnProcess } from '../support/own-process.ts';

/**
 * A fault of the user's program is reported in one line with its place and exit code 2, and not as a
 * defect of Shardwright.
 */

const root = join(import.meta.dirname, '../..');
let folder = '';
const other = OwnProcess.shared();
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shardwright-script-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

function file(name: string, body: string): string {
  const path = join(folder, name);
  writeFileSync(
    path,
    `import { spec } from 'shardwright';\nexport const inputs = { x: spec([2]) };\n${body}\n`,
  );
  return path;
}

describe('faults of a program', () => {
  it('a syntax error has line and column', async () => {
    const run = await other.cli(
      'trace',
      file('syntax.ts', 'export function model({ x }) {\n  return x.relu(;\n}'),
    );
    expect([run.code, run.out]).toEqual([2, '']);
    const lines = run.err.trimEnd().split('\n');
    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatch(/syntax\.ts:4:17: E_SYNTAX '\)' expected\./);
  });

  it('what the model throws has its place; --json says the same', async () => {
    const path = file(
      'throws.ts',
      'export function model({ x }) {\n  const u: any = undefined;\n  return u.foo(x);\n}',
    );
    const run = await other.cli('plan', path, '--mesh', 'd=8', '--cluster', 'dgx-h100', '--json');
    expect(run.code).toBe(2);
    expect(JSON.parse(run.out)).toMatchObject({
      error: {
        code: 'E_INPUT',
        message:
          "the program fails: TypeError: Cannot read properties of undefined (reading 'foo')",
        where: { line: 5, column: 12 },
      },
    });
  });

  it("options { controlFlow: 'capture' } make operators of the file's own conditions", async () => {
    const body =
      'export default ({ x }) => {\n  if (x.sum().gt(0)) return x.sin();\n  else return x.cos();\n};';
    const path = file('capture.ts', `export const options = { controlFlow: 'capture' };\n${body}`);
    const run = await other.cli('trace', path, '--json');
    expect(run.code).toBe(0);
    expect(JSON.parse(run.out)).toMatchObject({
      ops: { 'aten.sum.default': 1, 'aten.gt.Scalar': 1, cond: 1 },
      subgraphs: {
        true_0: { ops: { 'aten.sin.default': 1 } },
        false_0: { ops: { 'aten.cos.default': 1 } },
      },
    });
    expect((await other.cli('trace', path)).out).toMatch(
      /%cond = cond\(.*source=".*capture\.ts:5:7"/,
    );
  });

  it('the other faults, without a process of their own', async () => {
    const thrown = async (error: unknown, body: string): Promise<unknown[]> => {
      const found = await scriptError(error, file('other.ts', body));
      if (!(found instanceof ShardwrightError)) return ['passed on'];
      return [found.code, found.message, found.details.position];
    };
    const withStack = (stack: string): Error => Object.assign(new Error('boom'), { stack });
    const path = join(folder, 'other.ts');
    expect(await thrown('text', '')).toEqual(['E_INPUT', 'the program fails: text', undefined]);
    // A name that an import does not provide: the place is the first line of the stack.
    expect(
      (await thrown(withStack(`file://${path}:1\nimport { specc } from 'shardwright';`), ''))[2],
    ).toEqual({ line: 1, column: 1 });
    const lacks = async (from: string, name: string): Promise<unknown> => {
      const fault = `The requested module '${from}' does not provide an export named '${name}'`;
      const found = await scriptError(new SyntaxError(fault), file('other.ts', ''));
      return found instanceof ShardwrightError ? found.details.hint : found;
    };
    expect(await lacks('shardwright', 'allReduce')).toBe(
      "import { allReduce } from 'shardwright/local-spmd'.",
    );
    expect(await lacks('shardwright/trace', 'shard')).toBe("import { shard } from 'shardwright'.");
    expect(await lacks('other', 'allReduce')).toContain('run it by itself');
    expect((await thrown(withStack(`Error: boom\n    at model (${path}:3:9)`), ''))[2]).toEqual({
      line: 3,
      column: 9,
    });
    // The first frame is ours: a defect of the library stays one.
    const inside = join(root, 'src/errors.ts');
    expect(
      await thrown(
        withStack(`Error: boom\n    at f (${inside}:3:9)\n    at model (${path}:3:9)`),
        '',
      ),
    ).toEqual(['passed on']);
    // A promise has no place of its own: that of the model is told.
    const promise = new ShardwrightError('E_TRACE_ASYNC', 'the traced function returned a promise');
    expect(await thrown(promise, '\nexport async function model() {}')).toEqual([
      'E_TRACE_ASYNC',
      promise.message,
      { line: 4, column: 1 },
    ]);
  });
});
