import { expect, test } from 'vitest';

import { refuseUtf16 } from '../../src/utf8.ts';
import { refusalText } from '../support/thrown.ts';

test('UTF-16 without a mark is noticed, whichever byte comes first', () => {
  const little = [...'{"layers": 32}'].flatMap((c) => [c.charCodeAt(0), 0]);
  const big = [...'{"layers": 32}'].flatMap((c) => [0, c.charCodeAt(0)]);
  for (const bytes of [little, big])
    expect(refusalText(() => refuseUtf16(Uint8Array.from(bytes)))).toMatch(
      /^E_ENCODING: the text is UTF-16/,
    );
  expect(() => refuseUtf16(new TextEncoder().encode('{"layers": 32}'))).not.toThrow();
});
