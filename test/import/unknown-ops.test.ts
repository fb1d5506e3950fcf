import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { importGraph } from '../../src/import/import.ts';
import { cli } from '../cli/support.ts';
import { text } from './fixtures.ts';
import { infer, refusal } from './twins.ts';

/** The joint graph of the small Llama (579 nodes) with three operators that nobody knows. */
const typed = text('llama-tiny/joint.readable.txt.gz')
  .replaceAll('aten.silu.default', 'foo.one.default')
  .replaceAll('aten.rsqrt.default', 'foo.two.default')
  .replace('aten.cos.default', 'foo.three.default');
const erased = typed.replaceAll(/^( *\w+): "[^"]*" =/gm, '$1 =');
const lineOf = (part: string): number => typed.slice(0, typed.indexOf(part)).split('\n').length;

describe('three unknown operators in a large graph', () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
    writeFileSync(join(folder, 'typed.txt'), typed);
    writeFileSync(join(folder, 'erased.txt'), erased);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  test('without types: one error with the three names, their counts and first lines', () => {
    const { code, message, details } = refusal(() => importGraph(erased, { infer }));
    expect(code).toBe('E_UNKNOWN_OP');
    for (const [name, count] of [
      ['foo.one.default', '2 calls'],
      ['foo.two.default', '5 calls'],
      ['foo.three.default', '1 call'],
    ])
      expect(message).toContain(`${name} (${count}, first in line ${lineOf(`torch.ops.${name}`)})`);
    expect(message).toMatch(/^3 unknown operators whose results have no type: /);
    expect(details.position?.line).toBe(lineOf('torch.ops.foo.three.default'));
  });

  test('with types: imported and listed; plan refuses all three and names the way out', async () => {
    const file = join(folder, 'typed.txt');
    const inspected = await cli('inspect', file, '--json');
    expect(JSON.parse(inspected.out)).toMatchObject({
      nodes: 579,
      unknownOps: ['foo.one.default', 'foo.three.default', 'foo.two.default'],
    });
    const run = await cli('plan', '-v', file, '--mesh', 'x=8', '--cluster', 'dgx-h100');
    expect(run.code).toBe(2);
    for (const part of [
      'E_UNKNOWN_OP',
      'foo.one.default',
      'foo.two.default',
      'foo.three.default',
      '--unknown replicate',
    ])
      expect(run.err).toContain(part);
  });
});
