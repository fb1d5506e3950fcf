/** The documents that `npm run docs:built` writes can be made, and say what the records say. */

import { expect, it } from 'vitest';

import { rulesDocument } from '../../scripts/docs-rules.ts';
import { galleryList, galleryPage, PAGES } from '../../scripts/gallery.ts';
import { operatorsDocument } from '../../scripts/operators.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { checkHtml } from '../report/html-reader.ts';

it('the table of operators has one row for each record', async () => {
  const document = await operatorsDocument();
  expect(document.match(/^\| `/gm)).toHaveLength(builtinOperators().records.length);
});

it('the comparison with DTensor gives a reason for each rule that is not ours', async () => {
  const document = await rulesDocument();
  expect(document).toContain('wrong: the norm takes absolute values');
  expect(document).toMatch(/^\d+ calls: \d+ with the same rules/m);
});

it('a page of the gallery is well-formed, and the list repeats its answer', async () => {
  const page = PAGES.find(({ name }) => name === 'compare-llama-tiny')!;
  // The program of a few operators is compared in a tenth of the time.
  const few = 'test/fixtures/torch/mlp-loss/joint.expanded.txt.gz';
  const make = page.make.map((word) => (word.includes('llama-tiny') ? few : word));
  expect(make).toContain(few);
  const html = await galleryPage({ ...page, make });
  expect(checkHtml(html)).toEqual([]);
  const list = await galleryList(new Map([[page.name, html]]));
  expect(list.match(/^## /gm)).toHaveLength(1);
  expect(list).toContain('- **Best**: optimum on d0=4');
});
