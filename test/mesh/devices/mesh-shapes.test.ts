import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { groupLevels, hostLevel, levelText, meshLevels } from '../../../src/mesh/devices/levels.ts';
import { DeviceMesh, parseMesh } from '../../../src/mesh/devices/mesh.ts';
import {
  commonRefinement,
  flattenDims,
  permuteDims,
  sameDevices,
  submesh,
  unflattenDim,
} from '../../../src/mesh/devices/submesh.ts';
import {
  areOrthogonal,
  checkOrthogonal,
  groupsMeet,
  type MeshAxis,
  meshAxis,
} from '../../../src/notations/layout/orthogonal.ts';
import { parseLayout } from '../../../src/notations/layout/parse.ts';
import { hintOf } from '../../support/thrown.ts';

const sets = (groups: readonly (readonly number[])[]): string =>
  groups.map((g) => `{${g.join(',')}}`).join('');
const axis = (text: string, name = text): MeshAxis => ({ name, layout: parseLayout(text, 'lex') });

describe('meshes of a mesh', () => {
  const mesh = parseMesh('a=2,b=2,c=2');

  test('a sub-mesh at fixed coordinates', () => {
    expect(submesh(mesh, ['c'], { a: 1, b: 0 }).devices).toEqual([4, 5]);
    expect(submesh(mesh, ['a', 'c'], { b: 1 }).devices).toEqual([2, 3, 6, 7]);
    expect(submesh(mesh, ['c', 'a'], { b: 1 }).devices).toEqual([2, 6, 3, 7]);
    expect(sets(submesh(mesh, ['a', 'c'], { b: 1 }).groups(['a']))).toBe('{2,6}{3,7}');
    expect(submesh(parseMesh('x=3,y=1'), ['x']).devices).toEqual([0, 1, 2]);
    expect(submesh(submesh(mesh, ['a', 'c'], { b: 1 }), ['c'], { a: 1 }).devices).toEqual([6, 7]);
  });

  test('a sub-mesh names what is wrong', () => {
    expect(() => submesh(mesh, ['a'], { b: 0 })).toThrow(/'c' is neither kept nor fixed/);
    expect(() => submesh(mesh, ['a'], { a: 0, b: 0, c: 0 })).toThrow(/'a' is both kept and fixed/);
    expect(() => submesh(mesh, ['a'], { b: 2, c: 0 })).toThrow(
      /coordinate 2 of mesh dim 'b' is outside 0\.\.1/,
    );
    expect(() => submesh(mesh, ['a'], { d: 0, c: 0 })).toThrow(/no dim 'd'/);
    expect(() => submesh(mesh, ['a', 'a'], {})).toThrow(/'a' is listed twice/);
  });

  test('flattened dims have the groups of the dims together', () => {
    const ac = flattenDims(mesh, ['a', 'c']);
    expect(ac.text).toBe('a_c=4,b=2');
    expect(sets(ac.groups(['a_c']))).toBe('{0,1,4,5}{2,3,6,7}');
    expect(sets(ac.groups(['b']))).toBe('{0,2}{1,3}{4,6}{5,7}');
    expect(sets(flattenDims(mesh, ['a', 'b'], 'x').groups(['x']))).toBe('{0,2,4,6}{1,3,5,7}');
    expect(flattenDims(mesh, ['c', 'a']).orderedGroups(['c_a'])[0]).toEqual([0, 4, 1, 5]);
    expect(() => flattenDims(mesh, ['a', 'b'], 'c')).toThrow(/'c' is given twice/);
    expect(() => flattenDims(mesh, [])).toThrow(/no mesh dims to flatten/);
  });

  test('unflattening gives the mesh back', () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 2, maxLength: 4 });
    fc.assert(
      fc.property(
        sizes,
        fc.shuffledSubarray([0, 1, 2, 3], { minLength: 4 }),
        fc.nat(),
        (list, places, salt) => {
          const dims = list.map((size, i) => ({ name: `d${i}`, size }));
          const total = list.reduce((n, s) => n * s, 1);
          const table = Array.from({ length: total }, (_, i) => ((i * 7 + salt) % 101) + 101 * i);
          const random = new DeviceMesh(dims, table);
          const chosen = places.filter((d) => d < list.length).slice(0, 2);
          const flat = flattenDims(random, chosen, 'x');
          expect(flat.groups(['x']).map(String).sort()).toEqual(
            random.groups(chosen).map(String).sort(),
          );
          const back = permuteDims(
            unflattenDim(
              flat,
              'x',
              chosen.map((d) => dims[d]),
            ),
            random.names,
          );
          expect(back.toString()).toBe(random.toString());
        },
      ),
    );
    expect(() => unflattenDim(mesh, 'a', [{ name: 'x', size: 3 }])).toThrow(
      /'a' has size 2, but x=3 makes 3/,
    );
    expect(() => permuteDims(mesh, ['c', 'a'])).toThrow(/mesh dim 'b' missing/);
  });

  test('two meshes over the same ranks', () => {
    const dense = parseMesh('dp=4,cp=2,tp=2');
    const expert = parseMesh('efsdp=2,ep=4,etp=2');
    expect(sameDevices(dense, expert)).toBe(true);
    expect(sameDevices(dense, parseMesh('x=15'))).toBe(false);
    expect(
      sameDevices(
        dense,
        new DeviceMesh(
          dense.dims,
          Array.from({ length: 16 }, (_, i) => i + 1),
        ),
      ),
    ).toBe(false);
    const fine = commonRefinement(dense, expert);
    expect(fine?.text).toBe('dp_efsdp=2,dp_ep=2,cp_ep=2,tp_etp=2');
    expect(sets(fine?.groups(['dp_ep', 'cp_ep']) ?? [])).toBe(sets(expert.groups(['ep'])));
    expect(sets(fine?.groups(['dp_efsdp', 'dp_ep']) ?? [])).toBe(sets(dense.groups(['dp'])));
    expect(commonRefinement(parseMesh('x=2,y=3'), parseMesh('u=3,v=2'))).toBeUndefined();
    expect(commonRefinement(parseMesh('x=1'), parseMesh('u=1'))?.size).toBe(1);
    expect(() =>
      commonRefinement(parseMesh('x=2'), new DeviceMesh([{ name: 'x', size: 2 }], [1, 0])),
    ).toThrow(/do not have the same table/);
  });

  test('dims of size 1 are legal and make groups of one', () => {
    const one = parseMesh('a=1,b=2');
    expect(sets(one.groups(['a']))).toBe('{0}{1}');
    expect(one.toString()).toBe('DeviceMesh((a=1, b=2), stride=(2, 1))');
  });
});

describe('orthogonal axes', () => {
  test('4:1 and 2:4 are orthogonal', () => {
    expect(areOrthogonal([axis('4:1'), axis('2:4')])).toBe(true);
  });

  test('4:1 with 2:2 is refused, and both are named', () => {
    const axes = [axis('4:1', 'tp'), axis('2:2', 'ep')];
    expect(areOrthogonal(axes)).toBe(false);
    expect(() => checkOrthogonal(axes)).toThrow(
      "mesh axes 'tp' (4:1) and 'ep' (2:2) are not orthogonal",
    );
    expect(() => checkOrthogonal(axes)).toThrow(/rank 2 in two ways/);
  });

  test('an axis of size 1 is orthogonal to any', () => {
    for (const text of ['4:1', '2:2', '(2,2):(4,1)'])
      for (const k of [0, 1, 2, 5]) expect(areOrthogonal([axis(text), axis(`1:${k}`)])).toBe(true);
  });

  test('three axes may collide where no two do', () => {
    const axes = [axis('2:1', 'x'), axis('2:2', 'y'), axis('2:3', 'z')];
    for (const a of axes)
      for (const b of axes) if (a !== b) expect(areOrthogonal([a, b])).toBe(true);
    expect(() => checkOrthogonal(axes)).toThrow(
      "'x' (2:1), 'y' (2:2) and 'z' (2:3) are not orthogonal",
    );
    expect(() => checkOrthogonal([axis('(2,2):(1,1)', 'w')])).toThrow(
      /'w' \(\(2,2\):\(1,1\)\) meets itself/,
    );
    expect(areOrthogonal([])).toBe(true);
  });

  test('dims of one mesh are orthogonal, dims of two meshes when their groups share no two devices', () => {
    const sizes = fc.array(fc.constantFrom(1, 2, 3, 4), { minLength: 1, maxLength: 3 });
    const product = (list: readonly number[]): number => list.reduce((n, s) => n * s, 1);
    const pair = fc.tuple(sizes, sizes).filter(([x, y]) => product(x) === product(y));
    fc.assert(
      fc.property(pair, ([x, y]) => {
        const [a, b] = [x, y].map(
          (l) => new DeviceMesh(l.map((size, i) => ({ name: `d${i}`, size }))),
        );
        expect(areOrthogonal(a.names.map((n) => meshAxis(a, [n])))).toBe(true);
        for (const m of a.names)
          for (const n of b.names) {
            const shared = a
              .groups([m])
              .some((g) => b.groups([n]).some((h) => h.filter((id) => g.includes(id)).length > 1));
            expect(groupsMeet(a, [m], b, [n])).toBe(shared);
            expect(areOrthogonal([meshAxis(a, [m]), meshAxis(b, [n])])).toBe(!shared);
          }
      }),
      { numRuns: 100 },
    );
  });

  test('tables: axes of device ids, or groups where no layout is the axis', () => {
    const dims = parseMesh('x=2,y=2').dims;
    const turned = new DeviceMesh(dims, [0, 2, 1, 3]);
    const plain = new DeviceMesh(dims);
    expect(meshAxis(turned, ['x']).layout.text).toBe('2:1');
    expect(areOrthogonal([meshAxis(turned, ['x']), meshAxis(plain, ['x'])])).toBe(true);
    expect(() =>
      checkOrthogonal([meshAxis(turned, ['x'], 'tx'), meshAxis(plain, ['y'], 'py')]),
    ).toThrow(/'tx' \(2:1\) and 'py' \(2:1\)/);
    const odd = new DeviceMesh(dims, [0, 1, 2, 4]);
    expect(() => meshAxis(odd, ['y'])).toThrow(/makes 'y' no even axis/);
    expect(groupsMeet(odd, ['y'], plain, ['y'])).toBe(true);
    expect(groupsMeet(odd, ['y'], plain, ['x'])).toBe(false);
  });
});

describe('printed meshes', () => {
  test.each([
    ['DeviceMesh((dp=2, tp=2), stride=(2, 1))', [0, 1, 2, 3]],
    ['DeviceMesh((dp=2), stride=(2))', [0, 2]],
    ['DeviceMesh((a=2, b=2), stride=(1, 2))', [0, 2, 1, 3]],
    ['DeviceMesh((a=2, b=2), stride=(2, 1), devices=(7, 5, 3, 1))', [7, 5, 3, 1]],
    ['DeviceMesh((), stride=())', [0]],
  ])('%s', (text, devices) => {
    const mesh = parseMesh(text);
    expect(mesh.devices).toEqual(devices);
    expect(mesh.toString()).toBe(text);
  });

  test('print and parse on random tables', () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 3 });
    fc.assert(
      fc.property(
        sizes,
        fc.shuffledSubarray([...Array(30).keys()], { minLength: 30 }),
        fc.boolean(),
        (l, ids, own) => {
          const dims = l.map((size, i) => ({ name: `d${i}`, size }));
          const mesh = new DeviceMesh(
            dims,
            own
              ? ids.slice(
                  0,
                  l.reduce((n, s) => n * s, 1),
                )
              : undefined,
          );
          const again = parseMesh(mesh.toString());
          expect([again.devices, again.text]).toEqual([mesh.devices, mesh.text]);
          expect(again.toString()).toBe(mesh.toString());
        },
      ),
    );
  });

  test('what PyTorch prints is read too', () => {
    const mesh = parseMesh("DeviceMesh((dp=2, tp=4), 'cuda', stride=(4, 1))");
    expect(mesh.toString()).toBe('DeviceMesh((dp=2, tp=4), stride=(4, 1))');
    expect(parseMesh("DeviceMesh((tp=4,), 'cpu', stride=(1,))").text).toBe('tp=4');
  });

  test.each([
    ['DeviceMesh', /expected 'DeviceMesh\(\(' at column 1/],
    ['DeviceMesh((dp=2, tp=2))', /expected ', stride=' at column 24/],
    ['DeviceMesh((dp=2, tp=2), stride=(2))', /1 strides for 2 dims at column 33/],
    ['DeviceMesh((dp=2, 3), stride=(2, 1))', /expected NAME=SIZE, got '3' at column 19/],
    ['DeviceMesh((dp=2), stride=(1,,))', /a gap in strides/],
    ['DeviceMesh((dp=2), stride=(1)) x', /expected '\)' at the end at column 30/],
    ['DeviceMesh((dp=2), stride=(1), devices=(1))', /2 places but 1 device ids/],
    ['DeviceMesh((dp=2), stride=(3), devices=(1, 4))', /stride 3 of 'dp' with a table/],
    ['DeviceMesh((dp=2), stride=(0))', /device 0 is in the mesh twice, as ranks 0 and 1/],
    ['DeviceMesh((a=2, b=2), stride=(1, 1))', /device 1 is in the mesh twice, as ranks 1 and 2/],
    ['DeviceMesh((a=2, a=2), stride=(2, 1))', /'a' is given twice/],
    ['DeviceMesh((a=99999, b=99999), stride=(99999, 1))', /more than 16777216/],
  ])('refuses %s', (text, message) => {
    expect(() => parseMesh(text)).toThrow(message);
  });

  test('errors name the device id that is wrong', () => {
    const dims = [{ name: 'dp', size: 2 }];
    expect(() => new DeviceMesh(dims, [0, -1])).toThrow(/device id -1 of rank 1/);
    expect(() => new DeviceMesh(dims, [0, 1.5])).toThrow(/device id 1.5 of rank 1/);
    expect(() => new DeviceMesh(dims, [3, 3])).toThrow(/device 3 is in the mesh twice/);
    expect(() => new DeviceMesh(dims, [3])).toThrow(/2 places but 1 device ids/);
    expect(() => new DeviceMesh([...dims, ...dims])).toThrow(/'dp' is given twice/);
    expect(() => new DeviceMesh(dims).groups([1])).toThrow(/mesh dim 1 is out of range/);
    expect(hintOf(() => new DeviceMesh(dims).groups(['dpp']))).toBe("did you mean 'dp'?");
    expect(hintOf(() => checkOrthogonal([axis('2:1'), axis('2:1')]))).toContain('dims of one mesh');
  });
});

describe('physical levels', () => {
  const mesh = parseMesh('dp=4,tp=4');

  test('inside a host, across hosts on rails, mixed', () => {
    const text = (dims: string[], perHost: number): string =>
      levelText(dims.join('_'), groupLevels(mesh, dims, hostLevel(perHost)));
    expect(text(['tp'], 4)).toBe('tp=4 inside a host');
    expect(text(['dp'], 4)).toBe('dp=4 across 4 hosts on rails');
    expect(text(['tp'], 2)).toBe('tp=4 across 2 hosts, 2 members in each');
    expect(text(['dp'], 8)).toBe('dp=4 across 2 hosts, 2 members in each');
    expect(text(['dp', 'tp'], 16)).toBe('dp_tp=16 inside a host');
    expect(text([], 4)).toBe('=1 on one device');
  });

  test('one member in each host, but at different places, is not a rail', () => {
    const shifted = new DeviceMesh([{ name: 'x', size: 2 }], [0, 5]);
    expect(groupLevels(shifted, ['x'], hostLevel(4))).toMatchObject({
      devices: 2,
      inside: 'cluster',
      rail: false,
    });
    expect(levelText('x', groupLevels(shifted, ['x'], hostLevel(4)))).toBe('x=2 across 2 hosts');
    const rail = new DeviceMesh([{ name: 'x', size: 2 }], [1, 5]);
    expect(groupLevels(rail, ['x'], hostLevel(4)).rail).toBe(true);
  });

  test('several levels: the first that holds every group, and the worst counts', () => {
    const big = parseMesh('pp=2,dp=8,tp=8');
    const levels = [
      { name: 'host', devices: 8 },
      { name: 'rack', devices: 64 },
    ];
    expect(meshLevels(big, levels).map((l) => l.inside)).toEqual(['cluster', 'rack', 'host']);
    expect(groupLevels(big, ['pp', 'dp'], levels).spans).toEqual([
      { level: 'host', units: 16, members: 1 },
      { level: 'rack', units: 2, members: 8 },
    ]);
    // Groups of 3 over hosts of 4: some lie in one host, the worst in two, alone in one of them.
    expect(groupLevels(parseMesh('x=4,y=3'), ['y'], hostLevel(4)).spans).toEqual([
      { level: 'host', units: 2, members: 1 },
    ]);
  });

  test('levels that are none are refused', () => {
    expect(() => groupLevels(mesh, ['tp'], [])).toThrow(/no physical levels/);
    expect(() => groupLevels(mesh, ['tp'], hostLevel(0))).toThrow(/'host' has 0 devices/);
    expect(() =>
      groupLevels(
        mesh,
        ['tp'],
        [
          { name: 'host', devices: 8 },
          { name: 'rack', devices: 12 },
        ],
      ),
    ).toThrow(/'rack' of 12 devices does not hold whole units of 'host' \(8\)/);
  });
});
