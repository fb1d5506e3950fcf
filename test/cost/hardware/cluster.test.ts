import { describe, expect, test } from 'vitest';

import { usableMemoryBytes } from '../../../src/cost/hardware/cluster.ts';
import { hardware } from '../../../src/cost/hardware/hardware.ts';
import { clusterNames, loadCluster } from '../../../src/cost/hardware/load-cluster.ts';

describe('loadCluster', () => {
  test('dgx-h100: data-sheet figures with their sources', () => {
    const c = loadCluster('dgx-h100');
    expect(c.devicesPerHost).toBe(8);
    // nvidia-smi of an H100, and 5 % of it for context, allocator and buffers.
    expect(c.memoryBytes).toBe(81_559 * 2 ** 20);
    expect(c.reservedBytes).toBe(Math.round(0.05 * 81_559 * 2 ** 20));
    expect(usableMemoryBytes(c)).toBe(c.memoryBytes - c.reservedBytes);
    expect(c.peakFlopsPerSecond.bf16).toBe(989.4e12);
    expect(c.memoryBytesPerSecond).toBe(3350e9);
    expect(c.intra.bytesPerSecond).toBe(450e9);
    expect(c.intra.efficiency).toBeCloseTo(335.2 / 450, 6);
    expect(c.inter.bytesPerSecond).toBe(50e9);
    expect(c.baseLatencySeconds).toBeCloseTo(6.6e-6, 12);
    expect(c.assumptions.join()).toContain('5 % of memory is held back');
    for (const key of [
      'memoryBytes',
      'intra.bytesPerSecond',
      'inter.bytesPerSecond',
      'matmulCap',
      'launchSeconds',
    ])
      expect(c.sources[key], key).toBeTruthy();
  });

  test('every node design loads, with finite figures', () => {
    expect(clusterNames().length).toBe(hardware().nodes.length);
    for (const name of clusterNames()) {
      const c = loadCluster(name);
      expect(c.intra.bytesPerSecond * c.intra.efficiency).toBeGreaterThan(
        c.inter.bytesPerSecond * c.inter.efficiency,
      );
      expect(c.matmulCap).toBeGreaterThan(0.5);
      expect(c.matmulCap).toBeLessThan(1);
      expect(usableMemoryBytes(c)).toBeGreaterThan(0.95 * c.memoryBytes - 1);
    }
  });

  test('every record is a cluster file of itself', () => {
    for (const name of clusterNames())
      expect(loadCluster(JSON.stringify(loadCluster(name)))).toEqual(loadCluster(name));
  });

  test('a name on several lines is refused', () => {
    expect(() => loadCluster('{"base": "dgx-h100", "id": "a\\nproof  optimal"}')).toThrow(
      /a name is one line/,
    );
  });

  test('a rack is one scale-up domain; driver-tool capacity wins over the marketed one', () => {
    expect(loadCluster('gb200-nvl72').devicesPerHost).toBe(72);
    expect(loadCluster('gcp-a4x').devicesPerHost).toBe(72);
    expect(loadCluster('gb200-nvl72').memoryBytes).toBe(189471 * 2 ** 20);
  });

  test('unknown names list the known ones', () => {
    const details = (name: string): string => {
      try {
        loadCluster(name);
      } catch (error) {
        const e = error as { code: string; message: string; details: { hint?: string } };
        return `${e.code} ${e.message}: ${e.details.hint ?? ''}`;
      }
      throw new Error('nothing was thrown');
    };
    expect(details('dgx-h10')).toContain("did you mean 'dgx-h100'");
    // A mistyped accelerator has the nearest accelerators, not every cluster.
    expect(details('h1000')).toContain("did you mean 'h100'?");
    expect(details('mi330x')).toContain("did you mean 'mi300x' or 'mi325x' or 'mi355x'?");
    expect(details('v5x')).toContain("did you mean 'v5e' or 'v5p'");
    expect(details('nowhere-at-all')).toContain('known clusters: a6000-host, aws-g4dn-metal');
    expect(details('a100-pcie-80gb')).toContain('pass a JSON file');
    expect(details('tpu-v5x-pod')).toContain('tpu-v5p-pod');
    expect(details('{"base": "dgx-h100", "memory": 1}')).toMatch(/E_CLUSTER.*memory/s);
    expect(details('{oops')).toContain('not JSON');
  });

  test("a user's file: complete, or the fields that differ from a node design", () => {
    const own = loadCluster(
      JSON.stringify({
        id: 'lab',
        peakFlopsPerSecond: { bf16: 1e14 },
        memoryBytes: 24e9,
        reservedBytes: 0,
        memoryBytesPerSecond: 1e12,
        devicesPerHost: 4,
        intra: { bytesPerSecond: 25e9, latencySeconds: 1e-6 },
        inter: { bytesPerSecond: 5e9, latencySeconds: 5e-6 },
      }),
    );
    expect([own.id, own.devicesPerHost, own.intra.efficiency, usableMemoryBytes(own)]).toEqual([
      'lab',
      4,
      0.7,
      24e9,
    ]);
    expect(own.inter.efficiency).toBe(0.9);
    expect(own.assumptions.join('; ')).toContain(
      'the file states no efficiency of a link inside a host: 70.0 % of its rate is taken',
    );
    const base = loadCluster('dgx-h100');
    const derived = loadCluster(
      '{"base": "dgx-h100", "devicesPerHost": 4, "inter": {"bytesPerSecond": 25e9}}',
    );
    expect(derived.devicesPerHost).toBe(4);
    expect(derived.inter).toEqual({ ...base.inter, bytesPerSecond: 25e9 });
    expect(derived.intra).toEqual(base.intra);
    expect(derived.memoryBytes).toBe(base.memoryBytes);
    expect(derived.sources.devicesPerHost).toBe("user's file");
  });
});
