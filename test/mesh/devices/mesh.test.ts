import { describe, expect, test } from 'vitest';

import { DeviceMesh, parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { hintOf } from '../../support/thrown.ts';

const sets = (groups: number[][]): string => groups.map((g) => `{${g.join(',')}}`).join('');

describe('groups', () => {
  const mesh = parseMesh('a=2,b=2,c=2');
  test.each<[number[], string]>([
    [[0], '{0,4}{1,5}{2,6}{3,7}'],
    [[1], '{0,2}{1,3}{4,6}{5,7}'],
    [[2], '{0,1}{2,3}{4,5}{6,7}'],
    [[0, 1], '{0,2,4,6}{1,3,5,7}'],
    [[0, 2], '{0,1,4,5}{2,3,6,7}'],
  ])('dims %j', (dims, expected) => {
    expect(sets(mesh.groups(dims))).toBe(expected);
  });

  test('the shard groups of HSDP are neighbours, its replicate groups are strided', () => {
    const hsdp = parseMesh('replicate=2,shard=4');
    expect(sets(hsdp.groups(['shard']))).toBe('{0,1,2,3}{4,5,6,7}');
    expect(sets(hsdp.groups(['replicate']))).toBe('{0,4}{1,5}{2,6}{3,7}');
  });

  test('the place of pp decides its groups', () => {
    expect(sets(parseMesh('pp=2,dp=2,tp=2').groups(['pp']))).toBe('{0,4}{1,5}{2,6}{3,7}');
    expect(sets(parseMesh('dp=2,pp=2,tp=2').groups(['pp']))).toBe('{0,2}{1,3}{4,6}{5,7}');
  });

  test('gather order follows the dims as listed', () => {
    const two = parseMesh('dp=2,tp=2');
    expect(two.orderedGroups(['tp', 'dp'])).toEqual([[0, 2, 1, 3]]);
    expect(two.orderedGroups(['dp', 'tp'])).toEqual([[0, 1, 2, 3]]);
    expect(two.groups(['tp', 'dp'])).toEqual(two.groups(['dp', 'tp']));
  });

  test('groups follow an explicit device table', () => {
    const mesh = new DeviceMesh(
      [
        { name: 'x', size: 2 },
        { name: 'y', size: 2 },
      ],
      [7, 5, 3, 1],
    );
    expect(sets(mesh.groups(['y']))).toBe('{5,7}{1,3}');
    expect(mesh.toString()).toBe('DeviceMesh((x=2, y=2), stride=(2, 1), devices=(7, 5, 3, 1))');
  });
});

describe('text', () => {
  test('a mesh is read back from its text', () => {
    const mesh = parseMesh(' dp = 2 , tp=4');
    expect(mesh.text).toBe('dp=2,tp=4');
    expect(mesh.toString()).toBe('DeviceMesh((dp=2, tp=4), stride=(4, 1))');
    expect(parseMesh(mesh.text).sizes).toEqual([2, 4]);
  });

  test.each([
    ['', /no mesh dims at column 1/],
    ['dp=2,', /a mesh dim is missing at column 6/],
    ['dp=2,tp:4', /expected NAME=SIZE, got 'tp:4' at column 6/],
    ['dp=two', /size of 'dp' is 'two'/],
    ['dp=2.5', /size of 'dp' is '2.5'/],
    ['dp=0', /'dp' has size 0/],
    ['dp=-1', /'dp' has size -1/],
    ['dp=2,dp=4', /'dp' is given twice/],
    ['2=4', /'2' is not a name/],
    ['a=99999999999', /devices/],
  ])('refuses %j', (text, message) => {
    expect(() => parseMesh(text)).toThrow(message);
  });

  test('hints of wrong meshes name the edit', () => {
    expect(hintOf(() => parseMesh('tp:4'))).toBe("did you mean 'tp=4'?");
    expect(hintOf(() => parseMesh('data=2').groups(['dta']))).toBe("did you mean 'data'?");
    expect(() => parseMesh('dp=2').groups(['dp', 'dp'])).toThrow(/listed twice/);
    expect(() => new DeviceMesh([{ name: 'a', size: 2 }], [1, 1])).toThrow(
      /device 1 is in the mesh twice/,
    );
    expect(() => new DeviceMesh([{ name: 'a', size: 2 }], [1])).toThrow(
      /2 places but 1 device ids/,
    );
  });
});
