import { expect, test } from 'vitest';

import { parseMesh, parseSharding } from '../../src/entries/notations.ts';
import { refusalText } from '../support/thrown.ts';

const mesh = parseMesh('dp=2,tp=4');

test('parseSharding reads placements, a PartitionSpec and einshard as the commands do', () => {
  const shape = [8, 16];
  for (const text of ['S(0)S(1)', 'P("dp", "tp")', 'a b -> a2 b4']) {
    expect(parseSharding(text, mesh, { shape }).text, text).toBe('S(0)S(1)');
  }
  expect(parseSharding('P(("tp", "dp"), None)', mesh).text).toBe(
    parseSharding('S(0)[1]S(0)[0]', mesh).text,
  );
  expect(parseSharding('P("dp")', mesh, { rank: 2 }).text).toBe('S(0)R');
  expect(refusalText(() => parseSharding('a b -> a2 b4', mesh))).toBe(
    "E_EINSHARD: 'a b -> a2 b4' needs the shape of its tensor",
  );
  expect(refusalText(() => parseSharding('P("dp", "up")', mesh))).toMatch(/up/);
});
