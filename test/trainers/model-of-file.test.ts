import { expect, test } from 'vitest';

import { modelsOfFile } from '../../src/trainers/model-of-file.ts';

test('a model is that of all sizes that a text states, not of some', () => {
  const sizes = (vocabulary: number): readonly string[] =>
    modelsOfFile(`num_layers: 32\nhidden_size: 4096\nvocab_size: ${vocabulary}\n`);
  expect(sizes(128256)).toContain('llama-3.1-8b');
  expect(sizes(32000)).not.toContain('llama-3.1-8b');
  expect(sizes(12345)).toEqual([]);
});
