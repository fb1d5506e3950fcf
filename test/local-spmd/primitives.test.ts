import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import {
  primitive,
  type PrimitiveName,
  PRIMITIVES,
  primitiveText,
  redistribution,
  transposeOf,
} from '../../src/mesh/local-types/primitives.ts';
import { type AxisType, gradientType, typedText } from '../../src/mesh/local-types/types.ts';

/** `reinterpret V→P` as its parts. */
function cell(text: string): [PrimitiveName, AxisType, AxisType] {
  const [op, types] = text.split(' ');
  const [src, dst] = types.split('→');
  return [op as PrimitiveName, src as AxisType, dst as AxisType];
}

function refused(text: string, expert = false): string {
  try {
    primitive(...cell(text), { expert });
  } catch (error) {
    if (error instanceof ShardwrightError) return `${error.message} | ${error.details.hint}`;
  }
  return 'accepted';
}

describe('the table of verbs', () => {
  test('the type of a gradient is an involution', () => {
    for (const type of ['V', 'R', 'I', 'P', 'S(0)', 'S(3)'] as const)
      expect(gradientType(gradientType(type))).toBe(type);
    expect((['V', 'R', 'I', 'P', 'S(1)'] as const).map(gradientType)).toEqual([
      'V',
      'P',
      'I',
      'R',
      'S(1)',
    ]);
  });

  test('a gradient goes from the type of the result’s gradient to that of the operand’s', () => {
    for (const p of PRIMITIVES) {
      const way = transposeOf(p);
      expect(way[0].src, primitiveText(p)).toBe(gradientType(p.dst));
      expect(way.at(-1)?.dst, primitiveText(p)).toBe(gradientType(p.src));
      for (const [i, step] of way.entries()) if (i > 0) expect(step.src).toBe(way[i - 1].dst);
    }
  });

  test('the transpose of the transpose is the verb, compositions apart', () => {
    for (const p of PRIMITIVES) {
      const [first, ...more] = transposeOf(p);
      // `reinterpret I→V` is convert I→R and then reinterpret R→V; two names for one verb are
      // listed under one of them.
      if (more.length > 0 || /reinterpret.(I→R|R→I)/.test(primitiveText(p))) continue;
      expect(transposeOf(first).map(primitiveText)).toEqual([primitiveText(p)]);
    }
  });

  test('cuts keep their dims, and change places in all_to_all', () => {
    const text = (of: string): string =>
      transposeOf({ op: cell(of)[0], src: cell(of)[1], dst: cell(of)[2] })
        .map(primitiveText)
        .join(' ');
    expect(text('all_gather S(1)→R')).toBe('reduce_scatter(P→S(1))');
    expect(text('convert I→S(0)')).toBe('all_gather(S(0)→I)');
    expect(text('reduce_scatter P→S(2)')).toBe('all_gather(S(2)→R)');
    expect(text('all_to_all S(0)→S(1)')).toBe('all_to_all(S(1)→S(0))');
    expect(text('convert R→S(1)')).toBe('convert(S(1)→P)');
  });

  test.each([
    ['convert P→R', 'use all_reduce with dst R'],
    ['convert P→I', 'use all_reduce with dst I'],
    ['convert P→S(0)', 'use reduce_scatter with dst S(0)'],
    ['convert P→V', 'use reduce_scatter with dst V'],
    ['convert S(0)→S(1)', 'changes the cut, which moves data | use all_to_all'],
    ['reinterpret S(0)→P', 'use V in place of S(i), or convert'],
    ['reinterpret R→S(0)', 'use V in place of S(i), or convert'],
    ['reinterpret P→R', 'undefined | all_reduce first'],
    ['reinterpret P→V', 'undefined | all_reduce first'],
    ['reinterpret V→R', 'cannot assert that varying values are equal'],
    ['reinterpret V→I', 'cannot assert that varying values are equal'],
    ['all_gather R→I', 'src must be V or S(i), got R'],
    ['all_reduce V→R', 'src must be P, got V | reinterpret V→P first'],
    ['all_reduce P→V', 'dst must be R or I, got V | use reduce_scatter'],
    ['all_to_all S(0)→S(0)', 'the cut stays on its dim | leave it out'],
    ['reduce_scatter P→R', 'dst must be V or S(i), got R | use all_reduce with dst R'],
    ['all_reduce I→R', 'src must be P, got I'],
  ])('%s says %s', (text, said) => {
    expect(refused(text, true)).toContain(said);
  });

  test.each([
    ['convert R→I', 'dst I'],
    ['convert I→P', 'convert I→R'],
    ['convert V→P', 'all_gather'],
    ['reinterpret R→I', 'dst I'],
    ['reinterpret I→R', 'convert I→R'],
    ['reinterpret R→V', 'convert R→S(i)'],
    ['reinterpret R→P', 'convert R→P'],
    ['reinterpret I→P', 'convert R→P'],
  ])('%s wants the flag, and names the usual choice', (text, usual) => {
    expect(refused(text)).toContain('wants the flag expert');
    expect(refused(text)).toContain(usual);
    expect(refused(text, true)).toBe('accepted');
  });

  test('redistribution names the one verb', () => {
    const rows: [AxisType, AxisType, string][] = [
      ['S(0)', 'R', 'all_gather(S(0)→R)'],
      ['S(1)', 'I', 'all_gather(S(1)→I)'],
      ['P', 'R', 'all_reduce(P→R)'],
      ['P', 'S(1)', 'reduce_scatter(P→S(1))'],
      ['S(0)', 'S(1)', 'all_to_all(S(0)→S(1))'],
      ['I', 'R', 'convert(I→R)'],
      ['R', 'S(0)', 'convert(R→S(0))'],
    ];
    for (const [src, dst, text] of rows) expect(primitiveText(redistribution(src, dst))).toBe(text);
  });

  test('types print as in JAX', () => {
    expect(typedText('f32', [4, 2, 8], new Map([['tp', 'V']]))).toBe('f32[4,2,8]{V:tp}');
    expect(
      typedText(
        'f32',
        [4, 8, 16],
        new Map([
          ['dp', 'S(1)'],
          ['tp', 'P'],
        ] as const),
      ),
    ).toBe('f32[4,8@dp,16]{U:tp}');
    expect(typedText('f32', [4, 2], new Map([['tp', 'I']]))).toBe('f32[4,2]');
  });
});
