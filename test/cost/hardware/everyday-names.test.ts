import { expect, it } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { parsePrice } from '../../../src/cost/hardware/operation.ts';
import { clusterTopology, hostSize } from '../../../src/cost/hardware/topology.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { refusalText } from '../../support/thrown.ts';

it.each([
  ['h100', 'dgx-h100'],
  ['nvidia H100', 'dgx-h100'],
  ['H100-SXM5-80GB', 'dgx-h100'],
  ['A100', 'dgx-a100-80gb'],
  ['a100-40gb', 'aws-p4d-24xlarge'],
  ['L40S', 'aws-g6e-48xlarge'],
  ['MI300X', 'mi300x-platform'],
  ['H800', 'hgx-h800'],
  ['rtx4090', 'rtx4090-host'],
  ['RTX 4090', 'rtx4090-host'],
  ['NVIDIA GeForce RTX 3090', 'rtx3090-host'],
  ['5090', 'rtx5090-host'],
  ['RTX A6000', 'a6000-host'],
  ['rtx-6000-ada', 'rtx6000-ada-host'],
  ['L4', 'aws-g6-48xlarge'],
  ['v5e', 'tpu-v5e-pod'],
  ['tpu-v5p', 'tpu-v5p-pod'],
  ['trillium', 'tpu-v6e-pod'],
])('%s is the node design %s, and the assumptions say so', (name, id) => {
  const cluster = loadCluster(name);
  expect(cluster.id).toBe(id);
  expect(cluster.assumptions.at(-1)).toContain(`'${name}' is taken as ${id}`);
});

it.each([
  ['tpu-v5e-16', 'tpu-v5e-pod', 16],
  ['v5litepod-8', 'tpu-v5e-pod', 8],
  ['v6e-4x4', 'tpu-v6e-pod', 16],
  // Named by TensorCores: two a chip.
  ['v4-32', 'tpu-v4-pod', 16],
  ['v5p-2x2x4', 'tpu-v5p-pod', 16],
])(
  '%s is a slice of %s with %i chips: more of them are joined by the network',
  (name, id, chips) => {
    const cluster = loadCluster(name);
    expect(cluster.id).toBe(id);
    expect(cluster.assumptions.at(-1)).toBe(`'${name}' is a slice of ${chips} chips of ${id}`);
    expect(hostSize(cluster, parseMesh(`data=${chips}`))).toBe(chips);
    expect(clusterTopology(cluster, parseMesh(`data=${chips}`), [0]).hosts).toBe(1);
    expect(clusterTopology(cluster, parseMesh(`data=${2 * chips}`), [0]).hosts).toBe(2);
  },
);

it.each(['v5e-512', 'v4-1', 'v5e-32x32'])(
  '%s is not a slice, and the hint says how large one is',
  (name) => {
    expect(refusalText(() => loadCluster(name))).toContain(`'${name}' is not a slice of tpu-`);
  },
);

it('a node design in other case of letters is that design, and nothing is assumed', () => {
  expect(loadCluster('DGX-H100')).toEqual(loadCluster('dgx-h100'));
});

it.each(['h100-pcie', 'rtx4070', '2080', '80gb', 'dgx', 'tpu', ''])(
  '%j is not an accelerator of a known node design',
  (name) => {
    expect(refusalText(() => loadCluster(name))).toContain(`E_CLUSTER: unknown cluster '${name}'`);
  },
);

it('a price in dollars may have the sign', () => {
  expect(parsePrice('$2.5')).toEqual(parsePrice('2.5USD'));
  expect(parsePrice('$')).toBeUndefined();
  expect(parsePrice('$2.5USD')).toBeUndefined();
});

it('an unknown name of any length is named by its beginning', () => {
  const said = refusalText(() => loadCluster('['.repeat(1_000_000)));
  expect(said).toContain(`E_CLUSTER: unknown cluster '${'['.repeat(117)}...'`);
  expect(said.length).toBeLessThan(2_000);
});

it('the assumptions of a design that nobody sells say what no source states', () => {
  const { assumptions } = loadCluster('rtx4090');
  expect(assumptions.join('\n')).toContain('staged through the host');
  expect(loadCluster('hgx-h20').assumptions.join('\n')).toContain('no source for the network');
});
