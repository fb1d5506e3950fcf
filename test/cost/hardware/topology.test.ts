import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import {
  allocationOf,
  allocationText,
  clusterOfGroup,
  hostSize,
  innerProducts,
  usedPerHost,
} from '../../../src/cost/hardware/topology.ts';
import { collectiveModel } from '../../../src/cost/presets/presets.ts';
import { DeviceMesh, parseMesh } from '../../../src/mesh/devices/mesh.ts';

const RACK = { devicesPerHost: 72, devicesPerTray: 4 };
const HOST = { devicesPerHost: 8 };
const used = (hosts: typeof HOST, ...sizes: number[]): number | undefined =>
  usedPerHost(hosts, innerProducts(sizes));

describe('parts of hosts and racks', () => {
  it('a rack of 72 is used as 72 or 64, whichever the mesh fits; a host of 8 is used whole', () => {
    expect(used(RACK, 32, 8)).toBe(64);
    expect(used(RACK, 64)).toBe(72); // one rack holds them all
    expect(used(RACK, 72, 8)).toBe(72);
    expect(used(RACK, 9, 64)).toBe(64);
    expect(used(RACK, 125, 8)).toBe(40);
    expect(used(HOST, 3, 8)).toBe(8);
    expect(used(HOST, 8, 3)).toBeUndefined(); // 3 of 6 would need a fourth host
    expect(used(HOST, 4, 3)).toBe(6); // 12 devices need two hosts either way
    expect(used(HOST, 5)).toBe(8);
    expect(usedPerHost({ ...RACK, usedPerHost: 36 }, innerProducts([8, 9]))).toBe(36);
    expect(usedPerHost({ ...RACK, usedPerHost: 36 }, innerProducts([5, 16]))).toBeUndefined();
  });

  it('by brute force: no group of inner dims is torn, and no larger part would do', () => {
    for (const host of [4, 6, 8, 9, 12])
      for (const sizes of [
        [2, 3],
        [3, 4],
        [2, 2, 3],
        [6, 4],
        [4, 6],
        [5, 4],
        [2, 9],
        [3, 2, 6],
      ]) {
        const mesh = new DeviceMesh(sizes.map((size, d) => ({ name: `d${d}`, size })));
        const devices = mesh.sizeOf(sizes.map((_, d) => d));
        const isWhole = (part: number): boolean =>
          innerProducts(sizes).every((inner) =>
            Array.from({ length: devices / inner }, (_, k) => [
              Math.floor((k * inner) / part),
              Math.floor((k * inner + inner - 1) / part),
            ]).every(([first, last]) => first === last || inner % part === 0),
          );
        const hosts = Math.ceil(devices / host);
        const parts =
          devices <= host
            ? [host]
            : Array.from({ length: host }, (_, i) => host - i).filter(
                (n) => devices % n === 0 && devices / n === hosts && isWhole(n),
              );
        expect([host, sizes, used({ devicesPerHost: host }, ...sizes)]).toEqual([
          host,
          sizes,
          parts[0],
        ]);
      }
  });

  it('what stays idle, and what is paid for', () => {
    expect(allocationOf(RACK, 256, 64)).toEqual({
      hosts: 4,
      usedPerHost: 64,
      devicesPerHost: 72,
      idleDevices: 32,
      heldDevices: 256,
    });
    expect(allocationText(allocationOf(RACK, 256, 64))).toBe(
      '64 of the 72 devices of each of 4 hosts, 32 idle',
    );
    expect(allocationOf(HOST, 12, 6)).toMatchObject({ hosts: 2, idleDevices: 4, heldDevices: 16 });
    expect(allocationText(allocationOf(RACK, 6))).toBe('6 of the 72 devices of one host, 66 idle');
    expect(allocationOf(RACK, 6).heldDevices).toBe(8);
    // Two trays of a rack, and a slice of a TPU pod, are rented by themselves.
    expect(allocationText(allocationOf(RACK, 8))).toBeUndefined();
    const pod = allocationOf(loadCluster('tpu-v5p-pod'), 256);
    expect([pod.heldDevices, allocationText(pod)]).toEqual([256, undefined]);
    expect(allocationText(allocationOf(HOST, 64))).toBeUndefined();
  });

  it('a mesh of 256 on racks of 72 is priced as one on racks of 64', () => {
    const rack = loadCluster('gb200-nvl72');
    const mesh = parseMesh('dp=32,tp=8');
    expect([hostSize(rack, mesh), rack.devicesPerTray]).toEqual([64, 4]);
    for (const preset of ['nccl', 'alpha-beta']) {
      const own = collectiveModel(preset, rack, mesh);
      const whole = collectiveModel(preset, { ...rack, devicesPerHost: 64 }, mesh);
      for (const dims of [[0], [1], [0, 1]])
        expect(own.seconds('all_gather', 1e8, dims)).toBe(whole.seconds('all_gather', 1e8, dims));
    }
  });
});

describe('levels above the host', () => {
  const LINK = { latencySeconds: 1e-6, efficiency: 1 };
  const cluster = loadCluster(
    JSON.stringify({
      base: 'dgx-h100',
      levels: [
        { name: 'tray', devices: 2, bytesPerSecond: 4e11, scaleUp: true, ...LINK },
        { name: 'rack', devices: 4, bytesPerSecond: 4e11, scaleUp: true, ...LINK },
        { name: 'pod', devices: 16, bytesPerSecond: 5e10, ...LINK },
        {
          name: 'site',
          devices: 64,
          bytesPerSecond: 5e10,
          oversubscription: 4,
          ...LINK,
          latencySeconds: 9e-6,
        },
      ],
    }),
  );

  it('a list of levels from the tray outward gives hosts, trays and links', () => {
    expect([
      cluster.devicesPerTray,
      cluster.devicesPerHost,
      cluster.intra.bytesPerSecond,
      cluster.inter.bytesPerSecond,
    ]).toEqual([2, 4, 4e11, 5e10]);
    expect(cluster.levels?.map((l) => [l.name, l.devices, l.oversubscription])).toEqual([
      ['pod', 16, 1],
      ['site', 64, 4],
    ]);
    expect(loadCluster(JSON.stringify(cluster)).levels).toEqual(cluster.levels);
  });

  it('the rate of a ring is what its share of the links of a unit leaves, counted link by link', () => {
    for (const text of ['a=4,b=16', 'a=16,b=4', 'a=64', 'a=4,b=4,c=4', 'a=2,b=8,c=4', 'a=8,b=8']) {
      const mesh = parseMesh(text);
      for (let d = 0; d < mesh.rank; d++) {
        const groups = mesh.groups([d]);
        const perHost = (group: readonly number[], id: number): number =>
          group.filter((other) => Math.floor(other / 4) === Math.floor(id / 4)).length;
        let rate = Infinity;
        for (const unit of [0, 1, 2, 3]) {
          // Every group with members inside and outside a pod leaves it once for each of its
          // members on a host.
          const leaving = groups.filter(
            (g) =>
              new Set(g.map((id) => Math.floor(id / 16))).size > 1 &&
              g.some((id) => Math.floor(id / 16) === unit),
          );
          const links = leaving.reduce((sum, g) => sum + perHost(g, g[0]), 0);
          if (links > 0) rate = Math.min(rate, (16 / 4 / links) * 5e10);
        }
        const seen = clusterOfGroup(cluster, mesh, [d], 'all_gather');
        const crosses = groups.some((g) => new Set(g.map((id) => Math.floor(id / 16))).size > 1);
        expect([text, d, seen.inter.bytesPerSecond]).toEqual([text, d, Math.min(5e10, rate)]);
        expect(seen.inter.latencySeconds).toBe(crosses ? 9e-6 : 1e-6);
      }
    }
  });

  it('oversubscription makes what crosses it slower, and rails do not pass it', () => {
    const mesh = parseMesh('a=4,b=4,c=4');
    const flat = {
      ...cluster,
      levels:
        cluster.levels?.map((l) => ({ ...l, oversubscription: 1, latencySeconds: 1e-6 })) ?? [],
    };
    const rails = {
      ...cluster,
      levels: cluster.levels?.map((l) => ({ ...l, rails: true, latencySeconds: 1e-6 })) ?? [],
    };
    for (const preset of ['nccl', 'alpha-beta']) {
      const [own, even, wired] = [cluster, flat, rails].map((c) =>
        collectiveModel(preset, c, mesh),
      );
      for (const kind of [
        'all_gather',
        'all_reduce',
        'all_to_all',
        'collective_permute',
      ] as const) {
        expect(own.seconds(kind, 1e9, [0])).toBeGreaterThan(2 * even.seconds(kind, 1e9, [0]));
        expect(own.seconds(kind, 1e9, [1])).toBe(even.seconds(kind, 1e9, [1]));
        expect(wired.seconds(kind, 1e9, [0])).toBe(even.seconds(kind, 1e9, [0]));
      }
    }
  });

  it('levels that are not nested are refused with the level', () => {
    const levels = [{ name: 'pod', devices: 12, bytesPerSecond: 1e9, ...LINK }];
    expect(() => loadCluster(JSON.stringify({ base: 'dgx-h100', levels }))).toThrow(
      /levels: pod: 12 devices are not whole units of 8/,
    );
  });

  it('a price without a currency is refused', () => {
    expect(() => loadCluster('{"base":"dgx-h100","operation":{"pricePerDeviceHour":2.5}}')).toThrow(
      /found 2.5, wanted an amount with its currency.*"2.5USD"/,
    );
    expect(
      loadCluster('{"base":"dgx-h100","operation":{"pricePerDeviceHour":"2.5USD"}}').operation,
    ).toEqual({
      pricePerDeviceHour: { amount: 2.5, currency: 'USD' },
      deviceWatts: 700,
      hostWatts: 4600,
    });
  });
});
