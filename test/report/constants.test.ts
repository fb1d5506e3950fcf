/** The table of constants states every number of a cluster to six significant digits. */

import { expect, test } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { constantsOf } from '../../src/report/model/constants.ts';

test('constants keep six significant digits and drop the noise of binary fractions', () => {
  const cluster = {
    ...loadCluster('dgx-h100'),
    matmulCap: 0.123456789,
    memoryBytesPerSecond: 3_352_321_987_654,
    launchSeconds: 0.1e-6 + 0.2e-6,
  };
  const values = new Map(
    constantsOf(cluster).map(({ name, value, unit }) => [name, [value, unit]]),
  );
  expect(values.get('largest share of the peak of a matmul')).toEqual(['0.123457', '']);
  expect(values.get('memory bandwidth')).toEqual(['3352.32', 'GB/s']);
  expect(values.get('start of a kernel')).toEqual(['0.3', 'µs']);
});
