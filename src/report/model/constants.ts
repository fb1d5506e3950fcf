/** Lists the constants of a cluster with their units and sources. */

import type { Cluster } from '../../cost/hardware/cluster.ts';

/** One number that a plan rests on. */
export interface Constant {
  readonly name: string;
  readonly value: string;
  readonly unit: string;
  readonly source: string;
}

/** Every constant of a cluster with its unit and where it comes from. */
export function constantsOf(cluster: Cluster): Constant[] {
  const { sources } = cluster;
  const source = (key: string): string =>
    sources[key] ?? sources[key.split('.')[0]] ?? sources['*'] ?? 'not stated';
  const out: Constant[] = [];
  const add = (name: string, value: number | string, unit: string, key = name): void =>
    void out.push({ name, value: String(value), unit, source: source(key) });
  add('accelerator', cluster.accelerator, '', 'peakFlopsPerSecond');
  const peaks = Object.entries(cluster.peakFlopsPerSecond).map(
    ([unit, flops]) => `${unit} ${round(flops / 1e12)}`,
  );
  add('dense peaks', peaks.join(', '), 'TFLOPS', 'peakFlopsPerSecond');
  add('largest share of the peak of a matmul', round(cluster.matmulCap), '', 'matmulCap');
  add('memory', cluster.memoryBytes, 'bytes', 'memoryBytes');
  add('memory held back', cluster.reservedBytes, 'bytes', 'reservedBytes');
  add(
    'memory bandwidth',
    round(cluster.memoryBytesPerSecond / 1e9),
    'GB/s',
    'memoryBytesPerSecond',
  );
  add(
    'share of the memory bandwidth that kernels reach',
    round(cluster.memoryEfficiency),
    '',
    'memoryEfficiency',
  );
  add('devices in a host', cluster.devicesPerHost, '', 'devicesPerHost');
  if (cluster.devicesPerTray !== undefined)
    add('devices in a tray', cluster.devicesPerTray, '', 'devicesPerTray');
  for (const [name, level] of [
    ['intra', 'inside a host'],
    ['inter', 'between hosts'],
  ] as const) {
    const link = cluster[name];
    add(`link ${level}`, round(link.bytesPerSecond / 1e9), 'GB/s', `${name}.bytesPerSecond`);
    add(`share of the link ${level}`, round(link.efficiency), '', `${name}.efficiency`);
    add(`hop ${level}`, round(link.latencySeconds * 1e6), 'µs', `${name}.latencySeconds`);
  }
  for (const level of cluster.levels ?? []) {
    const { name, devices, bytesPerSecond, oversubscription, rails } = level;
    add(`devices in a ${name}`, devices, '', 'levels');
    add(`link inside a ${name}`, round(bytesPerSecond / 1e9), 'GB/s', 'levels');
    if (oversubscription > 1)
      add(
        `oversubscription inside a ${name}${rails ? ', but for rails' : ''}`,
        round(oversubscription),
        '',
        'levels',
      );
  }
  const { operation = {} } = cluster;
  const price = operation.pricePerDeviceHour;
  if (price !== undefined)
    add('price of a device', price.amount, `${price.currency}/h`, 'operation');
  if (operation.deviceWatts !== undefined)
    add('power of a device', operation.deviceWatts, 'W', 'operation');
  if (operation.hostWatts !== undefined)
    add('power of a host besides', operation.hostWatts, 'W', 'operation.hostWatts');
  if (operation.pue !== undefined)
    add('power of the site over that of its hosts', operation.pue, '', 'operation');
  if (operation.deviceHoursBetweenFailures !== undefined)
    add(
      'hours of a device between failures',
      operation.deviceHoursBetweenFailures,
      'h',
      'operation',
    );
  if (cluster.torus !== undefined)
    add('torus', cluster.torus.longestAxes.join(' x '), 'chips', 'intra.latencySeconds');
  add('start of a collective', round(cluster.baseLatencySeconds * 1e6), 'µs', 'baseLatencySeconds');
  add('start of a kernel', round(cluster.launchSeconds * 1e6), 'µs', 'launchSeconds');
  add('start of a matmul', round(cluster.matmulLaunchSeconds * 1e6), 'µs', 'matmulLaunchSeconds');
  if (cluster.collectiveTable !== undefined)
    add('table of collectives', cluster.collectiveTable.length, 'rows', 'collectiveTable');
  return out;
}

/** Six significant digits: enough for any constant, and no noise of binary fractions. */
function round(value: number): number {
  return Number(value.toPrecision(6));
}
