/** Lists the constants of a cluster with their units and sources. */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { itemAt } from '../../item-at.ts';

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
  return [
    ...deviceRows(cluster),
    ...linkRows(cluster),
    ...operationRows(cluster),
    ...latencyRows(cluster),
  ].map(([name, value, unit, key = name]) => ({
    name,
    value: String(value),
    unit,
    source: sources[key] ?? sources[itemAt(key.split('.'), 0)] ?? sources['*'] ?? 'not stated',
  }));
}

/** A constant, with the key of its source where that is not the name. */
type Row = readonly [name: string, value: number | string, unit: string, key?: string];

/** The row of a number that a cluster may not have. */
function stated(
  name: string,
  value: number | string | undefined,
  unit: string,
  key: string,
): Row[] {
  return value === undefined ? [] : [[name, value, unit, key]];
}

function deviceRows(cluster: Cluster): Row[] {
  const peaks = Object.entries(cluster.peakFlopsPerSecond).map(
    ([unit, flops]) => `${unit} ${round(flops / 1e12)}`,
  );
  const bandwidth = round(cluster.memoryBytesPerSecond / 1e9);
  const reached = 'share of the memory bandwidth that kernels reach';
  return [
    ['accelerator', cluster.accelerator, '', 'peakFlopsPerSecond'],
    ['dense peaks', peaks.join(', '), 'TFLOPS', 'peakFlopsPerSecond'],
    ['largest share of the peak of a matmul', round(cluster.matmulCap), '', 'matmulCap'],
    ['memory', cluster.memoryBytes, 'bytes', 'memoryBytes'],
    ['memory held back', cluster.reservedBytes, 'bytes', 'reservedBytes'],
    ['memory bandwidth', bandwidth, 'GB/s', 'memoryBytesPerSecond'],
    [reached, round(cluster.memoryEfficiency), '', 'memoryEfficiency'],
    ['devices in a host', cluster.devicesPerHost, '', 'devicesPerHost'],
    ...stated('devices in a tray', cluster.devicesPerTray, '', 'devicesPerTray'),
  ];
}

function linkRows(cluster: Cluster): Row[] {
  const named = [
    ['intra', 'inside a host'],
    ['inter', 'between hosts'],
  ] as const;
  const links = named.flatMap(([name, level]): Row[] => {
    const { bytesPerSecond, efficiency, latencySeconds } = cluster[name];
    return [
      [`link ${level}`, round(bytesPerSecond / 1e9), 'GB/s', `${name}.bytesPerSecond`],
      [`share of the link ${level}`, round(efficiency), '', `${name}.efficiency`],
      [`hop ${level}`, round(latencySeconds * 1e6), 'µs', `${name}.latencySeconds`],
    ];
  });
  const levels = (cluster.levels ?? []).flatMap((level): Row[] => {
    const { name, devices, bytesPerSecond, oversubscription, rails } = level;
    const over = `oversubscription inside a ${name}${rails ? ', but for rails' : ''}`;
    return [
      [`devices in a ${name}`, devices, '', 'levels'],
      [`link inside a ${name}`, round(bytesPerSecond / 1e9), 'GB/s', 'levels'],
      ...stated(over, oversubscription > 1 ? round(oversubscription) : undefined, '', 'levels'),
    ];
  });
  return [...links, ...levels];
}

/** Money, power and failures. */
function operationRows({ operation = {} }: Cluster): Row[] {
  const { pricePerDeviceHour: price, deviceWatts, hostWatts, pue } = operation;
  const hours = operation.deviceHoursBetweenFailures;
  return [
    ...stated('price of a device', price?.amount, `${price?.currency ?? ''}/h`, 'operation'),
    ...stated('power of a device', deviceWatts, 'W', 'operation'),
    ...stated('power of a host besides', hostWatts, 'W', 'operation.hostWatts'),
    ...stated('power of the site over that of its hosts', pue, '', 'operation'),
    ...stated('hours of a device between failures', hours, 'h', 'operation'),
  ];
}

function latencyRows(cluster: Cluster): Row[] {
  const { torus, collectiveTable } = cluster;
  return [
    ...stated('torus', torus?.longestAxes.join(' x '), 'chips', 'intra.latencySeconds'),
    ['start of a collective', round(cluster.baseLatencySeconds * 1e6), 'µs', 'baseLatencySeconds'],
    ['start of a kernel', round(cluster.launchSeconds * 1e6), 'µs', 'launchSeconds'],
    ['start of a matmul', round(cluster.matmulLaunchSeconds * 1e6), 'µs', 'matmulLaunchSeconds'],
    ...stated('table of collectives', collectiveTable?.length, 'rows', 'collectiveTable'),
  ];
}

/** Six significant digits: enough for any constant, and no noise of binary fractions. */
function round(value: number): number {
  return Number(value.toPrecision(6));
}
