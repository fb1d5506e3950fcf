import { expect, it } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { parsePrice } from '../../../src/cost/hardware/operation.ts';
import { refusalText } from '../../support/thrown.ts';

it.each([
  ['h100', 'dgx-h100'],
  ['nvidia H100', 'dgx-h100'],
  ['H100-SXM5-80GB', 'dgx-h100'],
  ['A100', 'dgx-a100-80gb'],
  ['a100-40gb', 'aws-p4d-24xlarge'],
  ['L40S', 'aws-g6e-48xlarge'],
  ['MI300X', 'mi300x-platform'],
  ['v5e', 'tpu-v5e-pod'],
  ['tpu-v5p', 'tpu-v5p-pod'],
  ['trillium', 'tpu-v6e-pod'],
])('%s is the node design %s, and the assumptions say so', (name, id) => {
  const cluster = loadCluster(name);
  expect(cluster.id).toBe(id);
  expect(cluster.assumptions.at(-1)).toContain(`'${name}' is taken as ${id}`);
});

it('a node design in other case of letters is that design, and nothing is assumed', () => {
  expect(loadCluster('DGX-H100')).toEqual(loadCluster('dgx-h100'));
});

it.each(['h100-pcie', 'rtx4090', '80gb', 'dgx', 'tpu', ''])(
  '%j is no accelerator of a known node design',
  (name) => {
    expect(refusalText(() => loadCluster(name))).toContain(`E_CLUSTER: unknown cluster '${name}'`);
  },
);

it('a price in dollars may have the sign', () => {
  expect(parsePrice('$2.5')).toEqual(parsePrice('2.5USD'));
  expect(parsePrice('$')).toBeUndefined();
  expect(parsePrice('$2.5USD')).toBeUndefined();
});
