import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import {
  denseMesh,
  DERIVED_AXES,
  expertFold,
  fillSizes,
  strategyGroups,
} from '../../src/recipes/expert-mesh.ts';
import { MEGATRON_ORDERS, megatronMeshes } from '../../src/trainers/megatron/mesh-order.ts';
import { hintOf } from '../support/thrown.ts';

const sets = (groups: readonly (readonly number[])[]): string =>
  groups.map((g) => `{${g.join(',')}}`).join('');

describe('expert fold', () => {
  const sizes = { dp_shard: 4, cp: 2, tp: 2 };

  test('world 16, ep 4, expert-tp = tp', () => {
    const { dense, expert, modEp, inEp } = expertFold(16, { ...sizes, ep: 4, etp: 2 });
    expect([modEp, inEp]).toEqual([2, 2]);
    const first = (groups: readonly (readonly number[])[]): readonly number[] | undefined =>
      groups.find((g) => g.includes(0));
    expect(first(expert.groups(['ep']))).toEqual([0, 2, 4, 6]);
    expect(first(expert.groups(['efsdp']))).toEqual([0, 8]);
    expect(first(dense.groups(['dp_shard']))).toEqual([0, 4, 8, 12]);
    expect(first(dense.groups(DERIVED_AXES.fsdp))).toEqual([0, 2, 4, 6, 8, 10, 12, 14]);
    expect(first(dense.groups(['tp']))).toEqual([0, 1]);
    expect(sets(expert.groups(['ep']))).toBe('{0,2,4,6}{1,3,5,7}{8,10,12,14}{9,11,13,15}');
    expect(dense.text).toBe('pp=1,dp_replicate=1,dp_shard=4,cp=2,tp=2');
    expect(expert.text).toBe('pp=1,dp_replicate=1,efsdp=2,ep=4,etp=2');
  });

  test('ep 8 with expert-tp 1; ep 3 is rejected', () => {
    const { expert, modEp, inEp } = expertFold(16, { ...sizes, ep: 8 });
    expect([modEp, inEp]).toEqual([2, 2]);
    expect(sets(expert.groups(['ep']))).toBe('{0,1,2,3,4,5,6,7}{8,9,10,11,12,13,14,15}');
    expect(expert.groups(['efsdp'])[0]).toEqual([0, 8]);
    expect(expert.text).toBe('pp=1,dp_replicate=1,efsdp=2,ep=8');
    expect(() => expertFold(16, { ...sizes, ep: 3 })).toThrow(/16 mod 3 \(ep x etp\) is 1/);
    expect(hintOf(() => expertFold(16, { ...sizes, ep: 3 }))).toBe(
      'valid values of ep: 1, 2, 4, 8, 16',
    );
    expect(expertFold(16, { ...sizes, ep: 4 }).expert.groups(['efsdp'])[0]).toEqual([0, 4, 8, 12]);
    expect(expertFold(16, { ...sizes, ep: 2 }).inEp).toBeUndefined();
  });

  test('the conditions of the fold inside dp_shard and cp', () => {
    expect(() => expertFold(16, { ...sizes, ep: 16, etp: 2 })).toThrow(/16 mod 32/);
    expect(() => expertFold(32, { dp_shard: 4, cp: 4, tp: 2, ep: 2, etp: 2 })).toThrow(
      /ep 2 mod cp 4 is 2/,
    );
    expect(() => expertFold(36, { dp_shard: 3, cp: 6, tp: 2, ep: 12, etp: 2 })).toThrow(
      /36 mod 24/,
    );
    expect(() => expertFold(24, { dp_shard: 6, cp: 2, tp: 2, ep: 8, etp: 2 })).toThrow(/mod 16/);
    expect(() => expertFold(16, { ...sizes, ep: 0 })).toThrow(/'ep' has size 0/);
    expect(hintOf(() => expertFold(32, { dp_shard: 4, cp: 4, tp: 2, ep: 2, etp: 2 }))).toBe(
      'valid values of ep: 1, 4, 8, 16',
    );
    expect(hintOf(() => expertFold(16, { ...sizes, ep: 1, etp: 3 }))).toBe(
      'no ep fits etp 3; use an etp that divides 16',
    );
  });

  test('with etp = tp the ep group runs over (dp_shard_in_ep, cp) at fixed tp, and with etp = 1 over consecutive devices', () => {
    const n = fc.constantFrom(1, 2, 3);
    fc.assert(
      fc.property(n, n, n, n, n, n, (pp, replicate, mod, within, cp, tp) => {
        const dense = { pp, dp_replicate: replicate, dp_shard: mod * within, cp, tp };
        const devices = pp * replicate * mod * within * cp * tp;
        const fold = expertFold(devices, { ...dense, ep: within * cp, etp: tp });
        // Device number by hand, with dp_shard taken apart into mod (outer) and within (inner).
        const device = (p: number, r: number, m: number, w: number, c: number, t: number): number =>
          ((((p * replicate + r) * mod + m) * within + w) * cp + c) * tp + t;
        const ep = new Set(fold.expert.groups(['ep']).map(String));
        const efsdp = new Set(fold.expert.groups(['efsdp']).map(String));
        for (let p = 0; p < pp; p++)
          for (let t = 0; t < tp; t++) {
            const group: number[] = [];
            for (let w = 0; w < within; w++)
              for (let c = 0; c < cp; c++) group.push(device(p, 0, mod - 1, w, c, t));
            expect(ep.has(String(group))).toBe(true);
            const states: number[] = [];
            for (let m = 0; m < mod; m++) states.push(device(p, replicate - 1, m, 0, cp - 1, t));
            expect(efsdp.has(String(states))).toBe(true);
          }
        expect(fold.modEp).toBe(mod);
        const flat = expertFold(devices, { ...dense, ep: within * cp * tp, etp: 1 });
        for (const group of flat.expert.groups(['ep']))
          expect(group).toEqual(group.map((_, i) => group[0] + i));
      }),
    );
  });
});

describe('sizes', () => {
  test('a dp_shard of -1 takes the remaining devices', () => {
    expect(denseMesh(16, { dp_shard: -1, tp: 2, cp: 2 }).text).toBe(
      'pp=1,dp_replicate=1,dp_shard=4,cp=2,tp=2',
    );
    expect(() => denseMesh(15, { dp_shard: -1, tp: 2, cp: 2 })).toThrow(
      /15 mod 4 \(cp 2 x tp 2\) is 3/,
    );
    expect(hintOf(() => denseMesh(15, { dp_shard: -1, tp: 2, cp: 2 }))).toBe(
      'use 12 or 16 devices',
    );
    expect(hintOf(() => denseMesh(3, { dp_shard: -1, tp: 2, cp: 2 }))).toBe('use 4 devices');
  });

  test('sizes that do not fit', () => {
    expect(() => denseMesh(16, { dp_shard: 2, tp: 2 })).toThrow(
      /dp_shard 2 x tp 2 makes 4 devices, but there are 16/,
    );
    expect(() => denseMesh(16, { dp_shard: -1, tp: -1 })).toThrow(
      /both 'dp_shard' and 'tp' are -1/,
    );
    expect(() => denseMesh(16, { tp: 0 })).toThrow(/'tp' has size 0/);
    expect(() => denseMesh(2.5, {})).toThrow(/number of devices is 2.5/);
    expect(() => denseMesh(2, {})).toThrow(/nothing else makes 1 devices/);
    expect([...fillSizes(['toString'], {}, 1)]).toEqual([['toString', 1]]);
  });

  test('derived axes of dp_replicate 2, dp_shard 4, cp 2, tp 2', () => {
    const mesh = denseMesh(32, { dp_replicate: 2, dp_shard: 4, cp: 2, tp: 2 });
    const size = (name: keyof typeof DERIVED_AXES): number =>
      mesh.groups(DERIVED_AXES[name])[0].length;
    expect([size('batch'), size('fsdp'), size('loss'), size('model')]).toEqual([8, 8, 16, 2]);
  });

  test('who talks to whom: new axes, reused ones, and a second mesh', () => {
    const found = strategyGroups(expertFold(16, { dp_shard: 4, cp: 2, tp: 2, ep: 4, etp: 2 }));
    expect(found.map((s) => `${s.strategy} ${s.use} ${s.mesh} ${s.dims.join('+')}`)).toEqual([
      'dp new dense dp_replicate+dp_shard',
      'fsdp reused dense dp_shard+cp',
      'cp new dense cp',
      'tp new dense tp',
      'sp reused dense tp',
      'loss reused dense dp_replicate+dp_shard+cp',
      'ep second mesh expert ep',
      'expert fsdp second mesh expert efsdp',
      'etp second mesh expert etp',
    ]);
    const of = (name: string): string => sets(found.find((s) => s.strategy === name)?.groups ?? []);
    expect(of('sp')).toBe(of('tp'));
    expect(of('cp').startsWith('{0,2}{1,3}{4,6}')).toBe(true);
  });
});

describe('Megatron orders', () => {
  const sizes = { dp: 2, tp: 2, pp: 2 };

  test('pp groups of the two orders', () => {
    expect(sets(megatronMeshes('tp-cp-ep-dp-pp', sizes, 8).dense.groups(['pp']))).toBe(
      '{0,4}{1,5}{2,6}{3,7}',
    );
    expect(sets(megatronMeshes('tp-cp-ep-pp-dp', sizes, 8).dense.groups(['pp']))).toBe(
      '{0,2}{1,3}{4,6}{5,7}',
    );
    expect(megatronMeshes('megatron', sizes, 8).dense.text).toBe('pp=2,dp=2,cp=1,tp=2');
    expect(megatronMeshes('megatron-dp-outer', sizes, 8).dense.text).toBe('dp=2,pp=2,cp=1,tp=2');
    expect(megatronMeshes('megatron', sizes, 8).expert).toBeUndefined();
  });

  test('16 devices, tp 2, pp 4, dp fills to 2', () => {
    const inner = megatronMeshes(MEGATRON_ORDERS.megatron, { tp: 2, pp: 4, dp: -1 }, 16).dense;
    expect(sets(inner.groups(['pp']))).toBe('{0,4,8,12}{1,5,9,13}{2,6,10,14}{3,7,11,15}');
    expect(sets(inner.groups(['dp']))).toBe('{0,2}{1,3}{4,6}{5,7}{8,10}{9,11}{12,14}{13,15}');
    const outer = megatronMeshes(
      MEGATRON_ORDERS['megatron-dp-outer'],
      { tp: 2, pp: 4, dp: -1 },
      16,
    ).dense;
    expect(sets(outer.groups(['pp']))).toBe('{0,2,4,6}{1,3,5,7}{8,10,12,14}{9,11,13,15}');
    expect(outer.groups(['dp'])[0]).toEqual([0, 8]);
  });

  test('experts fold cp and dp away, stages stay the same devices', () => {
    const { dense, expert } = megatronMeshes('megatron', { tp: 2, cp: 2, dp: 2, pp: 2, ep: 4 }, 16);
    expect(dense.text).toBe('pp=2,dp=2,cp=2,tp=2');
    expect(expert?.text).toBe('pp=2,edp=1,ep=4,etp=2');
    expect(expert?.groups(['pp'])).toEqual(dense.groups(['pp']));
    expect(() =>
      megatronMeshes('megatron-dp-outer', { tp: 2, cp: 2, dp: 2, pp: 2, ep: 4 }, 16),
    ).toThrow(/pipeline groups of .* are not the same devices/);
    expect(megatronMeshes('megatron', { tp: 2, dp: 4, ep: 8, etp: 1 }, 8).expert?.text).toBe(
      'pp=1,edp=1,ep=8,etp=1',
    );
  });

  test('orders that are none are refused', () => {
    expect(() => megatronMeshes('tp-cp-xx', sizes, 8)).toThrow(/unknown axis 'xx'/);
    expect(() => megatronMeshes('tp-tp-dp', sizes, 8)).toThrow(/lists 'tp' twice/);
    expect(() => megatronMeshes('tp-cp-dp', sizes, 8)).toThrow(/leaves out 'pp', which has size 2/);
    expect(() => megatronMeshes('megatron', sizes, 9)).toThrow(/makes 8 devices, but there are 9/);
    expect(() => megatronMeshes('megatron', { ...sizes, ep: 3 }, 8)).toThrow(
      /does not divide 8 devices/,
    );
    expect(() => megatronMeshes('constructor', sizes, 8)).toThrow(/unknown axis 'constructor'/);
    expect(megatronMeshes('tp-dp-pp', sizes, 8).dense.groups(['pp'])[0]).toEqual([0, 4]);
  });
});
