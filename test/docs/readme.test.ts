import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

/** `test/engines/road.test.ts` runs it on four processes. */
test('the Python of README.md is examples/train_mlp.py', () => {
  expect(read('README.md')).toContain('```python\n' + read('examples/train_mlp.py') + '```');
});
