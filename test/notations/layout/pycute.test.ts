import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { expect, test } from 'vitest';

import { coalesce } from '../../../src/notations/layout/coalesce.ts';
import { complement } from '../../../src/notations/layout/complement.ts';
import { composition } from '../../../src/notations/layout/composition.ts';
import { offsets } from '../../../src/notations/layout/coordinates.ts';
import { logicalDivide } from '../../../src/notations/layout/divide.ts';
import { leftInverse, rightInverse } from '../../../src/notations/layout/inverse.ts';
import type { Layout } from '../../../src/notations/layout/layout.ts';
import { parseLayout } from '../../../src/notations/layout/parse.ts';
import { logicalProduct } from '../../../src/notations/layout/product.ts';

/** Results of PyTorch's layout module; see the README beside the file. */

type Row = readonly [string, ...(string | number | readonly number[])[]];
const path = fileURLToPath(new URL('../../fixtures/layout/pycute.json.gz', import.meta.url));
const { cases } = JSON.parse(gunzipSync(readFileSync(path)).toString('utf8')) as {
  cases: readonly Row[];
};
const rows = (name: string): (readonly (string | number)[])[] =>
  cases.filter((c) => c[0] === name).map((c) => c.slice(1) as (string | number)[]);
const L = (text: string | number): Layout => parseLayout(String(text), 'lex');

test('offsets in lexicographic order are those of PyTorch', () => {
  const all = cases.filter((c) => c[0] === 'offsets');
  expect(all.length).toBe(250);
  for (const [, a, list] of all) expect(offsets(L(a as string), 'lex'), String(a)).toEqual(list);
});

const functions: Record<string, (args: readonly (string | number)[]) => Layout> = {
  coalesce: ([a]) => coalesce(L(a), 'lex'),
  compose: ([a, b]) => composition(L(a), L(b), 'lex'),
  complement: ([a, bound]) => complement(L(a), Number(bound), 'lex'),
  right_inverse: ([a]) => rightInverse(L(a), 'lex'),
  left_inverse: ([a]) => leftInverse(L(a), 'lex'),
  logical_divide: ([a, b]) => logicalDivide(L(a), L(b)),
  logical_product: ([a, b]) => logicalProduct(L(a), L(b)),
};

test.each([
  ['coalesce', 250],
  ['compose', 250],
  ['complement', 250],
  ['right_inverse', 250],
  ['left_inverse', 250],
  ['logical_divide', 250],
  ['logical_product', 150],
])('%s as PyTorch has it', (name, count) => {
  const list = rows(name);
  expect(list.length).toBe(count);
  const wrong: string[] = [];
  for (const row of list) {
    const want = row[row.length - 1];
    let got: string;
    try {
      got = functions[name](row).text;
    } catch (error) {
      got = error instanceof Error ? error.message : 'thrown';
    }
    if (got !== want) wrong.push(`${row.slice(0, -1).join(' ')}: want ${want}, got ${got}`);
  }
  expect(wrong).toEqual([]);
});
