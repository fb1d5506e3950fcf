import { describe, expect, test } from 'vitest';

import { init_device_mesh, make_mesh } from '../../../src/mesh/devices/aliases.ts';

describe('names that users of DTensor and JAX know', () => {
  test('init_device_mesh takes what DTensor takes', () => {
    expect(init_device_mesh('cuda', [2, 4], { mesh_dim_names: ['dp', 'tp'] }).toString()).toBe(
      'DeviceMesh((dp=2, tp=4), stride=(4, 1))',
    );
    expect(init_device_mesh('cpu', [8]).text).toBe('dim_0=8');
    expect(() => init_device_mesh('cuda', [2, 4], { mesh_dim_names: ['dp'] })).toThrow(
      '2 mesh sizes but 1 names',
    );
    expect(() => init_device_mesh('cuda:0', [2])).toThrow("device type 'cuda:0'");
    expect(() => init_device_mesh('cuda', [2, 2], { mesh_dim_names: ['a', 'a'] })).toThrow(/'a'/);
  });

  test('make_mesh takes what JAX takes', () => {
    expect(make_mesh([2, 2], ['x', 'y']).text).toBe('x=2,y=2');
    expect(() => make_mesh([2], ['x', 'y'])).toThrow('1 mesh sizes but 2 names');
  });
});
