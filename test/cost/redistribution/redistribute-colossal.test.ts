import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { dtensorModel } from '../../../src/cost/presets/dtensor.ts';
import { collectiveModel } from '../../../src/cost/presets/presets.ts';
import { Redistributor } from '../../../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';

/**
 * Colossal-Auto's shape-consistency search on mesh (4, 4): its moves are one all-gather, all-to-all
 * or local slice of one mesh axis. A sharding is written per tensor dim, `[R,S01,R]`: dim 1 is cut
 * by axes 0 and 1.
 */
const mesh = parseMesh('x=4,y=4');
const space = new ShardingSpace(mesh);
const shape = [64, 32, 16];
const type = { shape, itemBytes: 4 };

/** Our placement of each mesh dim: `[S0,R,S1]` is S(0) on axis 0 and S(2) on axis 1. */
function id(text: string): number {
  const dims = text.slice(1, -1).split(',');
  const placement = [0, 1].map((axis) => {
    const d = dims.findIndex((t) => t.startsWith('S') && t.includes(String(axis)));
    return d < 0 ? 'R' : `S(${d})`;
  });
  return space.parse(placement.join(''));
}

const presets = [
  ['dtensor', dtensorModel(mesh, 8)],
  ['alpha-beta', collectiveModel('alpha-beta', loadCluster('dgx-h100'), mesh)],
  ['nccl', collectiveModel('nccl', loadCluster('dgx-h100'), mesh)],
] as const;

/** Bytes of the whole tensor. */
const WHOLE = shape.reduce((a, b) => a * b, 1) * 4;
type Kind = 'all_gather' | 'all_to_all' | 'slice';

describe.each(presets)('the path and the neighbours of Colossal-Auto, prices of %s', (_, model) => {
  const planner = new Redistributor(space, model);
  const ours = (from: string, to: string): number => planner.plan(type, id(from), id(to))!.seconds;
  /**
   * One move of theirs over one axis; `cuts` is into how many pieces the gathered, exchanged or
   * written tensor is cut. Pieces along `inner` dims, those that are not the first, are not
   * contiguous: a read and a write of the bytes each.
   */
  const theirs = (kind: Kind, axis: number, cuts: number, inner: number): number => {
    const bytes = WHOLE / cuts;
    if (kind === 'slice')
      return inner === 0 ? 0 : (model.sliceSeconds?.(bytes) ?? model.copySeconds(2 * bytes));
    return (
      model.seconds(kind, bytes, [axis]) + (inner > 0 ? model.copySeconds(2 * inner * bytes) : 0)
    );
  };
  /** Prices are rounded to less than this. */
  const ROUNDING_SECONDS = 1e-15;

  test('[R,S01,R] to [S01,R,R]: never more expensive than AG(dim 1, axis 1), A2A(axis 0), local slice, nor than our own way along it', () => {
    const path = ['[R,S01,R]', '[R,S0,R]', '[S0,R,R]', '[S01,R,R]'];
    const price =
      theirs('all_gather', 1, 4, 1) + theirs('all_to_all', 0, 4, 1) + theirs('slice', 1, 16, 0);
    const direct = ours(path[0], path[3]);
    expect(direct).toBeGreaterThan(0);
    expect(direct).toBeLessThanOrEqual(price + ROUNDING_SECONDS);
    const along = path.slice(1).map((to, i) => ours(path[i], to));
    expect(direct).toBeLessThanOrEqual(along[0] + along[1] + along[2] + ROUNDING_SECONDS);
    expect(along[0]).toBeLessThanOrEqual(theirs('all_gather', 1, 4, 1) + ROUNDING_SECONDS);
    expect(along[1]).toBeLessThanOrEqual(theirs('all_to_all', 0, 4, 1) + ROUNDING_SECONDS);
    expect(along[2]).toBe(0);
  });

  test.each([
    ['[S0,S1,R]', 'all_gather', '[R,S1,R]', 0, 0],
    ['[S0,S1,R]', 'all_gather', '[S0,R,R]', 1, 1],
    ['[S0,S1,R]', 'all_to_all', '[S01,R,R]', 1, 1],
    ['[S0,S1,R]', 'all_to_all', '[R,S1,S0]', 0, 1],
    ['[S0,S1,R]', 'all_to_all', '[S0,R,S1]', 1, 2],
    ['[S0,R,R]', 'slice', '[S01,R,R]', 1, 0],
    ['[S0,R,R]', 'slice', '[S0,S1,R]', 1, 1],
    ['[S0,R,R]', 'slice', '[S0,R,S1]', 1, 1],
  ] as const)('%s by one %s to %s', (from, kind, to, axis, inner) => {
    expect(ours(from, to)).toBeLessThanOrEqual(
      theirs(kind, axis, kind === 'all_gather' ? 4 : 16, inner) + ROUNDING_SECONDS,
    );
    if (kind !== 'all_to_all')
      expect(
        planner.plan(type, id(from), id(to))!.steps.map((s) => [s.kind, ...s.meshDims]),
      ).toEqual([[kind, axis]]);
  });
});
