import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { groupTopology } from '../../src/cost/collective-model.ts';
import { alphaBeta } from '../../src/cost/collectives/alpha-beta.ts';
import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { COST_PRESETS } from '../../src/cost/presets/names.ts';
import { collectiveModel } from '../../src/cost/presets/presets.ts';
import { COLLECTIVE_KINDS } from '../../src/mesh/collective-kinds.ts';
import { groupLevels, hostLevel } from '../../src/mesh/devices/levels.ts';
import { DeviceMesh, parseMesh } from '../../src/mesh/devices/mesh.ts';

const mesh = (...sizes: number[]) => parseMesh(sizes.map((n, i) => `m${i}=${n}`).join(','));

describe('topology', () => {
  test.each<[number[], number[], number, number, number]>([
    [[8, 8], [0], 8, 8, 1],
    [[8, 8], [1], 8, 1, 8],
    [[64], [0], 8, 8, 8],
    [[4, 4], [0], 8, 2, 2],
    [[2, 4], [1], 8, 1, 4],
    [[16, 4], [0], 8, 8, 2],
    [[24], [0], 8, 3, 8],
    [[144], [0], 72, 2, 72],
    [[8, 8], [0, 1], 8, 8, 8],
    [[2, 4, 2], [0, 2], 8, 2, 2],
    [[4, 1], [1], 8, 1, 1],
  ])('%j dims %j on %i a host: %i hosts, %i on each', (sizes, dims, perHost, hosts, each) => {
    expect(groupTopology(mesh(...sizes), perHost, dims)).toMatchObject({ hosts, perHost: each });
  });
});

test('a permuted table is read as it stands: device ids say which host a rank is on', () => {
  const ids = [0, 8, 1, 9, 2, 10, 3, 11];
  const table = new DeviceMesh(
    [
      { name: 'a', size: 4 },
      { name: 'b', size: 2 },
    ],
    ids,
  );
  expect(groupTopology(table, 8, [0])).toEqual({ devices: 4, hosts: 1, perHost: 4 });
  expect(groupTopology(table, 8, [1])).toEqual({ devices: 2, hosts: 2, perHost: 1 });
});

describe('alpha-beta', () => {
  const cluster = loadCluster('dgx-h100');
  const intra = cluster.intra.bytesPerSecond * cluster.intra.efficiency;
  const inter = cluster.inter.bytesPerSecond * cluster.inter.efficiency;
  const MiB = 2 ** 20;

  test('ring formulas inside a host', () => {
    const model = alphaBeta(cluster, mesh(8));
    const gather = 6.6e-6 + 7 * 0.6e-6 + (64 * MiB * 7) / 8 / intra;
    expect(model.seconds('all_gather', 64 * MiB, [0])).toBeCloseTo(gather, 12);
    expect(model.seconds('reduce_scatter', 64 * MiB, [0])).toBeCloseTo(gather, 12);
    const reduce = 6.6e-6 + 14 * 0.6e-6 + (2 * 64 * MiB * 7) / 8 / intra;
    expect(model.seconds('all_reduce', 64 * MiB, [0])).toBeCloseTo(reduce, 12);
    expect(model.seconds('all_to_all', 64 * MiB, [0])).toBeCloseTo(gather, 12);
    expect(model.seconds('collective_permute', MiB, [0])).toBeCloseTo(7.2e-6 + MiB / intra, 12);
    const { seconds, terms, source } = model.record('all_gather', 64 * MiB, [0]);
    expect((terms.latencySeconds ?? 0) + (terms.bandwidthSeconds ?? 0)).toBe(seconds);
    expect(source).toContain('dgx-h100');
  });

  test('a ring over hosts is limited by the network cards of the group on one host', () => {
    const model = alphaBeta(cluster, mesh(4, 8));
    // Dim 0: one device a host, one network card each.
    expect(model.seconds('all_gather', 1e9, [0])).toBeCloseTo(
      6.6e-6 + 3 * 2.7e-6 + (1e9 * 3) / 4 / inter,
      9,
    );
    // Both dims: eight cards, faster than the link inside.
    const flat = 6.6e-6 + 3 * 2.7e-6 + 28 * 0.6e-6 + (1e9 * 31) / 32 / Math.min(intra, 8 * inter);
    expect(model.seconds('all_gather', 1e9, [0, 1])).toBeCloseTo(flat, 9);
    expect(model.seconds('all_gather', 1e9, [1, 0])).toBe(model.seconds('all_gather', 1e9, [0, 1]));
  });

  test('groups of one device cost nothing', () => {
    const model = alphaBeta(cluster, mesh(4, 1));
    for (const kind of COLLECTIVE_KINDS) expect(model.seconds(kind, 1e9, [1])).toBe(0);
  });

  test('times rise with bytes', () => {
    const model = alphaBeta(cluster, mesh(4, 2, 8));
    fc.assert(
      fc.property(
        fc.constantFrom(...COLLECTIVE_KINDS),
        fc.constantFrom([0], [1], [2], [0, 1], [1, 2], [0, 1, 2]),
        fc.integer({ min: 0, max: 2 ** 32 }),
        fc.integer({ min: 0, max: 2 ** 20 }),
        (kind, dims, bytes, more) => {
          expect(model.seconds(kind, bytes + more, dims)).toBeGreaterThanOrEqual(
            model.seconds(kind, bytes, dims),
          );
        },
      ),
    );
  });
});

describe('presets', () => {
  test('by name; an unknown one is a clear error', () => {
    const cluster = loadCluster('dgx-h100');
    expect(COST_PRESETS).toEqual(['alpha-beta', 'autoparallel', 'dtensor', 'nccl']);
    for (const name of COST_PRESETS)
      expect(collectiveModel(name, cluster, mesh(2, 2)).preset).toBe(name);
    expect(() => collectiveModel('alpa', cluster, mesh(2))).toThrow(/no cost preset 'alpa'/);
    expect(() => collectiveModel('toString', cluster, mesh(2))).toThrow(/no cost preset/);
  });

  test('presets and meshes do not mix', () => {
    const cluster = loadCluster('dgx-h100');
    const before = collectiveModel('dtensor', cluster, mesh(8)).seconds('all_gather', 2 ** 22, [0]);
    collectiveModel('alpha-beta', cluster, mesh(8)).seconds('all_gather', 2 ** 22, [0]);
    collectiveModel('dtensor', cluster, mesh(2, 8)).seconds('all_gather', 2 ** 22, [0]);
    expect(collectiveModel('dtensor', cluster, mesh(8)).seconds('all_gather', 2 ** 22, [0])).toBe(
      before,
    );
    expect(before * 1e6).toBeCloseTo(49.7734, 4);
  });
});

test('groups that lie alike have the topology that looking at every device finds', () => {
  let shapes = 0;
  for (const perHost of [1, 2, 3, 4, 6, 8, 12, 64, 72])
    for (const sizes of [
      [2, 4, 8],
      [3, 4, 2],
      [4, 1, 6],
      [16, 2, 2, 2],
      [5, 8],
      [2, 3, 3],
      [6, 12],
      [9, 8],
    ]) {
      const dims = mesh(...sizes);
      for (let mask = 1; mask < 2 ** sizes.length; mask++) {
        const chosen = [...sizes.keys()].filter((d) => (mask >> d) & 1);
        const { devices, spans } = groupLevels(dims, chosen, hostLevel(perHost));
        const [{ units: hosts, members }] = spans;
        expect(
          groupTopology(dims, perHost, chosen),
          `${sizes.join()} on ${perHost}, ${chosen.join()}`,
        ).toEqual({ devices, hosts, perHost: devices === 1 ? 1 : members });
        shapes++;
      }
    }
  expect(shapes).toBe(9 * (7 + 7 + 7 + 15 + 3 + 7 + 3 + 3));
});
