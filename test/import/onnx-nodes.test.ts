import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { type NodeTest, runNodeTest } from '../../scripts/onnx-node-test.ts';
import type { OnnxNode } from '../../src/import/onnx/file/model.ts';
import { firstUnread } from '../../src/import/onnx/schema.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const packed = readFileSync(join(ROOT, 'test', 'fixtures', 'onnx', 'nodes.jsonl.gz'));
const cases = gunzipSync(packed)
  .toString('utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as NodeTest);

describe('node tests of onnx 1.23.2 give the numbers that it recorded', () => {
  test('there are 36 of them', () => {
    expect(cases.length).toBe(36);
  });

  test.each(cases.map((c) => [c.name, c] as const))('%s', (_name, recorded) => {
    expect(runNodeTest(recorded)).toMatchObject({ result: 'right', why: '' });
  });

  test('the page of counts lists none that is wrong, and most that run', () => {
    const page = readFileSync(join(ROOT, 'docs', 'coverage.md'), 'utf8');
    const [, total, right, wrong, refused] = (
      /^\| (\d+) +\| (\d+) +\| (\d+) +\| (\d+) +\|$/m.exec(page) ?? []
    ).map(Number);
    expect(wrong).toBe(0);
    expect(right + refused).toBe(total);
    expect(right).toBeGreaterThanOrEqual(1292);
  });
});

describe('what a conversion has not read', () => {
  const node = (int: number, inputs: readonly string[] = ['x']): OnnxNode => ({
    op: 'IsInf',
    domain: '',
    name: 'n',
    inputs,
    outputs: ['y'],
    attributes: new Map([
      ['detect_positive', { name: 'detect_positive', int, ints: [], floats: [], texts: [] }],
    ]),
    metadata: new Map(),
    offset: 0,
  });

  test('is nothing at the default of ONNX, and an error at any other value', () => {
    expect(firstUnread(node(1), 20, new Set(), new Set([0]))).toBeUndefined();
    expect(firstUnread(node(0), 20, new Set(['detect_positive']), new Set([0]))).toBeUndefined();
    expect(firstUnread(node(0), 20, new Set(), new Set([0]))).toMatchObject({
      what: "attribute 'detect_positive' is 0, which is not modelled",
      hint: expect.stringContaining('at its default, 1') as unknown,
    });
  });

  test('is an error for an attribute that the version of the file does not have', () => {
    expect(firstUnread(node(1), 9, new Set(), new Set([0]))?.what).toContain('detect_positive');
  });

  test('is an error for an input', () => {
    expect(firstUnread(node(1, ['x', 'z']), 20, new Set(), new Set([0]))?.what).toBe(
      "input 1 (X) is 'z', which is not modelled",
    );
  });
});
