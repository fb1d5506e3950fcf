import { expect, test } from 'vitest';

import type { ShardwrightError } from '../../src/errors.ts';
import { importGraph } from '../../src/import/import.ts';
import { infer, jaxText } from './support-jax.ts';

test('a character less in a statement is found there or at the next token', () => {
  const text = jaxText('mlp-constraint/shardy.mlir.gz');
  const lines = text.split('\n');
  for (const [line, from] of [
    [4, '%0 ='],
    [4, 'dot_general'],
    [4, '%arg2,'],
    [4, '[1] x'],
    [6, '<@mesh'],
    [6, '{"q"}'],
    [5, '@relu'],
  ] as const) {
    const at = lines[line - 1].indexOf(from);
    const broken = [...lines];
    broken[line - 1] = broken[line - 1].slice(0, at) + broken[line - 1].slice(at + 1);
    let found: ShardwrightError | undefined;
    try {
      importGraph(broken.join('\n'), { infer });
    } catch (error) {
      found = error as ShardwrightError;
    }
    expect([
      from,
      found?.details.position !== undefined && Math.abs(found.details.position.line - line) <= 1,
    ]).toEqual([from, true]);
  }
});
