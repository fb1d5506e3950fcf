/** Edited settings are read back by the parsers of their languages; every other line stays. */
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';

import { editJson, editYaml, type Settings } from '../../../src/trainers/layout/edit-settings.ts';

type Tree = Record<string, unknown>;

/** The tree with the settings put in, or taken out where they have no value. */
function changedTree(tree: Tree, settings: Settings): Tree {
  const copy = structuredClone(tree);
  for (const [path, value] of Object.entries(settings)) {
    const names = path.split('.');
    const last = names.pop() ?? '';
    let at = copy;
    for (const name of names) at = (at[name] ??= {}) as Tree;
    if (value === undefined) Reflect.deleteProperty(at, last);
    else at[last] = value;
  }
  return copy;
}

const CASES: readonly (readonly [string, Settings])[] = [
  ['a value is replaced', { 'model.tp': 4, 'model.fp8.recipe': 'rowwise' }],
  ['a value is added to a section that is there', { 'model.cp': 2 }],
  ['two sections and a value are added', { 'model.deep.inner.size': 8 }],
  ['a section is added at the top', { 'optim.lr': 0.5 }],
  ['the first value is taken out', { 'model.tp': undefined, 'model.nothing': undefined }],
  ['the last value is taken out', { 'model.fp8.on': undefined }],
];

describe('settings of a file', () => {
  const tree = { model: { tp: 2, fp8: { recipe: 'tensorwise', on: true } }, data: { batch: 16 } };
  const yaml = [
    'model:  # of the model',
    '  tp: 2  # ranks',
    '  fp8:',
    '    recipe: tensorwise',
    '    on: true',
    '',
    'data:',
    '  batch: 16',
    '',
  ].join('\n');
  const json = JSON.stringify(tree, null, 2);

  it.each(CASES)('%s', (_, settings) => {
    const wanted = changedTree(tree, settings);
    const edited = editYaml(yaml, settings);
    expect(parse(edited)).toEqual(wanted);
    expect(JSON.parse(editJson(json, settings))).toEqual(wanted);
    const kept = new Set(edited.split('\n'));
    for (const line of yaml.split('\n'))
      if (!/tp:|recipe:|on:/.test(line)) expect(kept).toContain(line);
  });

  it('comments behind a replaced value stay', () => {
    expect(editYaml(yaml, { 'model.tp': 8 })).toContain('  tp: 8  # ranks\n');
  });
});
