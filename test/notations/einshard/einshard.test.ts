import { describe, expect, it, test } from 'vitest';

import { DeviceMesh, parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { parseSharding } from '../../../src/mesh/sharding/parse.ts';
import { einshardBlocks } from '../../../src/notations/einshard/blocks.ts';
import { commonMesh } from '../../../src/notations/einshard/common-mesh.ts';
import { einshardOnMesh, parseShardingFor } from '../../../src/notations/einshard/on-mesh.ts';
import {
  einshardMesh,
  fromPlacements,
  toPlacements,
  toSpec,
} from '../../../src/notations/einshard/placements.ts';
import {
  einshardLocalShape,
  integerRoot,
  resolveEinshard,
} from '../../../src/notations/einshard/resolve.ts';
import {
  formatEinshard,
  isEinshard,
  parseEinshard,
} from '../../../src/notations/einshard/syntax.ts';
import { refusal } from '../../support/thrown.ts';

/** `(0,0)={0,8}` for every block. */
function holders(text: string, devices: number, shape: readonly number[]): Map<string, string> {
  const blocks = einshardBlocks(resolveEinshard(text, { devices, shape }));
  return new Map(blocks.map((b) => [`(${b.index.join(',')})`, `{${b.devices.join(',')}}`]));
}

const range = (n: number, from = 0, step = 1): number[] =>
  Array.from({ length: n }, (_, i) => from + i * step);
const set = (ids: readonly number[]): string => `{${ids.join(',')}}`;

describe('meaning: mesh, local shape, devices of blocks', () => {
  type Row = [string, number, number[], number[], number[], Record<string, string>];
  test.each<Row>([
    [
      'a b -> 2 a2 b4',
      16,
      [4, 8],
      [2, 2, 4],
      [2, 2],
      { '(0,0)': '{0,8}', '(0,1)': '{1,9}', '(1,0)': '{4,12}' },
    ],
    ['a b -> a2 2 b4', 16, [4, 8], [2, 2, 4], [2, 2], { '(0,0)': '{0,4}', '(1,0)': '{8,12}' }],
    ['a b -> a2 b4 2', 16, [4, 8], [2, 4, 2], [2, 2], { '(0,0)': '{0,1}', '(0,1)': '{2,3}' }],
    [
      'a b -> b4 2 a2',
      16,
      [4, 8],
      [4, 2, 2],
      [2, 2],
      { '(0,0)': '{0,2}', '(1,0)': '{1,3}', '(0,1)': '{4,6}' },
    ],
    [
      'a ... d -> 4 a2 ... d2',
      16,
      [4, 8, 20, 10],
      [4, 2, 1, 1, 2],
      [2, 8, 20, 5],
      { '(0,0,0,0)': '{0,4,8,12}' },
    ],
    [
      'a b -> * a2 b',
      16,
      [4, 8],
      [8, 2, 1],
      [2, 8],
      { '(0,0)': set(range(8, 0, 2)), '(1,0)': set(range(8, 1, 2)) },
    ],
    [
      'a b -> 2 a2* b*',
      16,
      [4, 8],
      [2, 4, 2],
      [1, 4],
      { '(0,0)': '{0,8}', '(0,1)': '{1,9}', '(1,0)': '{2,10}', '(3,1)': '{7,15}' },
    ],
    [
      'a b -> * a* b2*',
      16,
      [4, 8],
      [2, 2, 4],
      [2, 2],
      { '(0,0)': '{0,8}', '(0,1)': '{1,9}', '(1,3)': '{7,15}' },
    ],
    ['a b -> 2 a b*', 16, [2, 8], [2, 1, 8], [2, 1], { '(0,0)': '{0,8}', '(0,7)': '{7,15}' }],
    ['... a -> 2 ... a*', 16, [2, 8], [2, 1, 8], [2, 1], { '(0,0)': '{0,8}', '(0,7)': '{7,15}' }],
    ['a -> 16 a', 16, [2], [16, 1], [2], { '(0)': set(range(16)) }],
    ['a b -> 2* 2* a b', 16, [4, 8], [4, 4, 1, 1], [4, 8], { '(0,0)': set(range(16)) }],
    [
      'a b -> * a* b*',
      8,
      [4, 4],
      [2, 2, 2],
      [2, 2],
      { '(0,0)': '{0,4}', '(0,1)': '{1,5}', '(1,0)': '{2,6}', '(1,1)': '{3,7}' },
    ],
    ['... -> * ...', 1, [2], [1, 1], [2], { '(0)': '{0}' }],
    ['a b -> * a* b*', 64, [8, 8], [4, 4, 4], [2, 2], { '(0,0)': '{0,16,32,48}' }],
  ])('%s on %i devices, shape %j', (text, devices, shape, mesh, local, some) => {
    const found = resolveEinshard(text, { devices, shape });
    expect(found.axes.map((a) => a.size)).toEqual(mesh);
    expect(einshardMesh(found).sizes).toEqual(mesh);
    expect(einshardLocalShape(found, shape)).toEqual(local);
    const all = holders(text, devices, shape);
    for (const [index, ids] of Object.entries(some)) expect(all.get(index), index).toBe(ids);
    if (text.startsWith('a b -> * a2')) expect(all.size).toBe(2);
  });

  test.each<[string, number[], number[], number[]]>([
    ['a b c -> a2* b2 c*', [4, 16, 8], [4, 2, 2], [1, 8, 4]],
    ['a b -> b* a', [4, 16], [16, 1], [4, 1]],
  ])('%s: one block each', (text, shape, mesh, local) => {
    const found = resolveEinshard(text, { devices: 16, shape });
    expect(found.axes.map((a) => a.size)).toEqual(mesh);
    expect(einshardLocalShape(found, shape)).toEqual(local);
    expect(einshardBlocks(found).map((b) => b.devices)).toEqual(range(16).map((id) => [id]));
  });

  it('stars are exact roots far beyond what rounding gets right', () => {
    for (let k = 1; k <= 24; k++)
      for (const q of [1, 2, 3, 5, 7, 10, 64, 255, 4095]) {
        const n = q ** k;
        if (n > 2 ** 48) continue;
        expect(integerRoot(n, k)).toBe(q);
        if (k > 1) expect(integerRoot(n + 1, k)).toBe(undefined);
      }
    expect(integerRoot(1, 2000)).toBe(1);
    expect(integerRoot(2, 2000)).toBe(undefined);
  });
});

describe('text', () => {
  test.each([
    ['a  b->16 a b', 'a b -> 16 a b', 16],
    [' a -> 16 a ', 'a -> 16 a', 16],
    ['a->a', 'a -> a', 1],
    ['Ab_c -> Ab_c4', 'Ab_c -> Ab_c4', 4],
    ['a b -> 1 a1 b1* 1*', 'a b -> 1 a b* *', 1],
    ['größe ... 高 -> 高2 größe*   ...', 'größe ... 高 -> 高2 größe* ...', 2],
  ])('%j is written %s', (text, canonical, devices) => {
    const expression = parseEinshard(text);
    expect(formatEinshard(expression)).toBe(canonical);
    resolveEinshard(expression, { devices, rank: expression.left.length });
  });

  const ITEM = 'digit 1-9, identifier, string "*" or ellipsis';
  test.each([
    ['a1b -> a', 'string "->"', 1],
    ['a -> a0', 'eof', 6],
    ['a -> a*2', 'eof', 7],
    ['a -> 2*a', 'eof', 7],
    ['a -> 2a', 'eof', 6],
    ['-> a', 'identifier or ellipsis', 0],
    ['', 'identifier or ellipsis', 0],
    ['a ->', ITEM, 4],
    ['a -> ', ITEM, 5],
    ['a b', 'string "->"', 3],
    ['a - > a', 'string "->"', 2],
    ['a b -> a,b', 'eof', 8],
    ['a -> a.', 'eof', 6],
    ['a .. -> a', 'string "->"', 2],
    ['a -> 01', ITEM, 5],
    ['a ->  a -> b', 'eof', 8],
    ['a2* -> a', 'string "->"', 1],
    ['a\t-> a', 'string "->"', 1],
    ['a... -> a ...', 'string "->"', 1],
  ])('%j is refused: expected %s at position %i', (text, expected, position) => {
    const error = refusal(() => parseEinshard(text));
    expect(error.code).toBe('E_SYNTAX');
    expect(error.message).toBe(`expected ${expected} at position ${position}`);
    expect(error.details.position).toEqual({ line: 1, column: position + 1 });
    expect(error.details.excerpt).toBe(text);
    expect(error.details.hint).toBeTruthy();
  });

  it('text without measure is refused, and quickly', () => {
    expect(refusal(() => parseEinshard(`a -> ${'9'.repeat(40)} a`)).code).toBe('E_LIMIT');
    expect(refusal(() => parseEinshard(`${'a '.repeat(1e6)}-> a`)).code).toBe('E_LIMIT');
    expect(refusal(() => resolveEinshard('a -> * a', { devices: 2 ** 40 })).message).toMatch(
      'devices',
    );
    const many = resolveEinshard('a -> * a', { devices: 2 ** 24, shape: [4] });
    expect(refusal(() => einshardBlocks(many)).code).toBe('E_LIMIT');
  });

  it('names are not keys of objects', () => {
    const found = resolveEinshard('__proto__ constructor -> constructor2 __proto__', {
      devices: 2,
      shape: [3, 4],
    });
    expect(toSpec(found)).toEqual([['__proto__'], ['constructor']]);
    expect(toPlacements(found).map((p) => p.text)).toEqual(['S(1)', 'S(0)']);
  });
});

describe('expressions without a meaning name the element and its position', () => {
  test.each<[string, number, number[] | undefined, number, RegExp]>([
    [
      'a b -> * a* b*',
      16,
      [4, 8],
      7,
      /3 stars from '\*' at position 7 .* 16 is not a perfect cube/,
    ],
    ['a b -> a3* b', 16, [3, 8], 7, /16 is not divisible by base 3 of 'a3\*' at position 7/],
    ['a b -> 2 a2 b', 16, [4, 8], 7, /from '2' at position 7 have the product 4, .* 16 devices/],
    ['a ... -> a16', 16, [16, 2], 2, /ellipsis '...' at position 2 is on one side only/],
    ['a -> a16 ...', 16, [16], 9, /ellipsis '...' at position 9 is on one side only/],
    ['... a ... -> ...', 16, [16, 2], 6, /second ellipsis, '...' at position 6/],
    [
      'a b -> 16 a b',
      16,
      [4, 8, 2],
      0,
      /from 'a' at position 0, names 2 dims, but the tensor has 3/,
    ],
    ['a ... -> 16 a ...', 16, undefined, 2, /ellipsis '...' at position 2 needs the rank/],
    [
      'a b ... -> 16 a b ...',
      16,
      [4],
      4,
      /ellipsis '...' at position 4 there are 2 names, .* has 1 dims/,
    ],
    ['a b -> 16 a', 16, [4, 8], 2, /dim 'b' at position 2 is missing on the right/],
    ['a a -> 16 a', 16, [4, 8], 2, /'a' at position 2 is named before/],
    ['a -> a2 c8', 16, [4], 8, /'c8' at position 8 names no dim of the left/],
    ['a -> a2 a8', 16, [16], 8, /'a' is on the right before 'a8' at position 8/],
    [
      'a b -> b16 a',
      16,
      [4, 8],
      7,
      /size 8 is not divisible by 16, the size of 'b16' at position 7/,
    ],
  ])('%s', (text, devices, shape, position, message) => {
    const error = refusal(() =>
      resolveEinshard(text, { devices, ...(shape === undefined ? {} : { shape }) }),
    );
    expect(error.code).toBe('E_EINSHARD');
    expect(error.message).toMatch(message);
    expect(error.details.position).toEqual({ line: 1, column: position + 1 });
    expect(error.details.hint).toBeTruthy();
  });

  it('a right-only name is told to be a bare number', () => {
    expect(refusal(() => resolveEinshard('a -> a2 c8', { devices: 16 })).details.hint).toBe(
      'to replicate write a bare number: 8',
    );
  });
});

describe('einshard and placements', () => {
  test.each([
    ['a b -> 2 a2 b4', [4, 8], 'R S(0) S(1)', [['a'], ['b']]],
    ['a b -> b4 2 a2', [4, 8], 'S(1) R S(0)', [['a'], ['b']]],
    ['a ... d -> 4 a2 ... d2', [4, 8, 20, 10], 'R S(0) R R S(3)', [['a'], [], [], ['d']]],
  ])('placements and spec of %s', (text, shape, placements, spec) => {
    const found = resolveEinshard(text, { devices: 16, shape });
    expect(
      toPlacements(found)
        .map((p) => p.text)
        .join(' '),
    ).toBe(placements);
    expect(toSpec(found)).toEqual(spec);
  });

  test.each([
    ['S(0)R', 'dp=2,tp=4', [4, 8], 'a b -> a2 4 b'],
    ['S(1)S(0)', 'dp=2,tp=4', [4, 8], 'a b -> b2 a4'],
    ['RR', 'dp=2,tp=4', [], '... -> 2 4 ...'],
    ['S(1)RS(0)', 'a=2,b=1,c=2', [2, 2, 5], 'a b c -> b2 a2 c'],
    ['S(0)S(0)', 'a=1,b=2', [2], 'a -> a2'],
    ['R', 'a=1', [3], 'a -> a'],
  ])('fromPlacements %s on %s', (text, meshText, shape, expected) => {
    const mesh = parseMesh(meshText);
    const sharding = parseSharding(text, mesh);
    const made = fromPlacements(sharding, mesh, shape);
    if (!('expression' in made)) throw new Error(made.refused);
    expect(formatEinshard(made.expression)).toBe(expected);
    expect(einshardOnMesh(expected, mesh, shape).placements.map((p) => p.text)).toEqual(
      sharding.placements.map((p, m) => (mesh.sizes[m] === 1 ? 'R' : p.text)),
    );
  });

  test.each([
    ['S(0)S(0)', 'dp=2,tp=2', [8, 8], /'dp' and 'tp' cut the same tensor dim 0/],
    ['RP(sum)', 'dp=2,tp=2', [8, 8], /P\(sum\) on 'tp' is a pending reduction/],
    ['R_S(0, 2)', 'dp=2,tp=2', [8, 8], /_S\(0, 2\) on 'tp' is not a cut into consecutive pieces/],
    ['S(0)R', 'dp=4,tp=2', [6, 8], /dim 0 of size 6 is not divisible by 4/],
    ['RS(2)', 'dp=4,tp=2', [6, 8], /cuts dim 2 of a 2-D tensor/],
  ])('fromPlacements refuses %s on %s', (text, meshText, shape, why) => {
    const mesh = parseMesh(meshText);
    const made = fromPlacements(parseSharding(text, mesh), mesh, shape);
    expect('refused' in made ? made.refused : formatEinshard(made.expression)).toMatch(why);
  });

  it('fromPlacements refuses a mesh whose ids do not count up', () => {
    const mesh = new DeviceMesh([{ name: 'x', size: 2 }], [1, 0]);
    const made = fromPlacements(parseSharding('S(0)', mesh), mesh, [2]);
    expect('refused' in made ? made.refused : '').toMatch('do not count up');
  });

  it('a sharding text is in either notation; a mesh that does not fit is refused with both', () => {
    const mesh = parseMesh('dp=2,one=1,tp=4');
    expect(isEinshard('S(0)R')).toBe(false);
    expect(parseShardingFor('S(0)RS(1)', mesh, [4, 8]).text).toBe('S(0)RS(1)');
    expect(parseShardingFor('a b -> b2 a4', mesh, [4, 8]).text).toBe('S(1)RS(0)');
    expect(parseShardingFor('a b -> * 1 a2* b', mesh, [4, 8]).text).toBe('RRS(0)');
    expect(refusal(() => parseShardingFor('a b -> a4 2 b', mesh, [4, 8])).message).toBe(
      "'a b -> a4 2 b' makes the mesh (4, 2), but the mesh is dp=2,one=1,tp=4, that is (2, 4)",
    );
  });

  it('several expressions on one mesh: the coarsest that all fit on', () => {
    const on = (
      texts: string[],
      devices: number,
    ): { mesh: readonly number[]; shardings: string[] } => {
      const made = commonMesh(texts.map((t) => resolveEinshard(t, { devices, rank: 2 })));
      return { mesh: made.mesh.sizes, shardings: made.shardings.map((s) => s.text) };
    };
    expect(on(['... -> * ...', 'a b -> 2 a b4', 'a b -> a8 b'], 8)).toEqual({
      mesh: [2, 4],
      shardings: ['RR', 'RS(1)', 'S(0)S(0)'],
    });
    expect(on(['a b -> a2 b4', 'a b -> a4 b2'], 8)).toEqual({
      mesh: [2, 2, 2],
      shardings: ['S(0)S(1)S(1)', 'S(0)S(0)S(1)'],
    });
    expect(on(['... -> ...'], 1)).toEqual({ mesh: [], shardings: [''] });
    expect(refusal(() => on(['a b -> a2 b3', 'a b -> a3 b2'], 6)).message).toBe(
      "'a b -> a2 b3' and 'a b -> a3 b2' do not fit on one mesh: one splits the devices in 2 parts, the other in 3",
    );
  });
});
