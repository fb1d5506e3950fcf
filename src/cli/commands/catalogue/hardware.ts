/**
 * `hardware list` and `hardware show NAME`: prints node designs and their constants with sources.
 */

import type { Cluster } from '../../../cost/hardware/cluster.ts';
import { hardware } from '../../../cost/hardware/hardware.ts';
import { clusterNames, loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { getOwn } from '../../../graph/value.ts';
import { constantsOf } from '../../../report/model/constants.ts';
import { tableText } from '../../../units.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import type { HardwareOptions } from './flags.ts';

/** `hardware list`: the node designs that `--cluster` takes. */
export function hardwareListCommand(options: HardwareOptions, io: CliIo): number {
  const clusters = clusterNames().map((name) => loadCluster(name));
  if (options.json === true) {
    const { _about: about, nodes } = hardware();
    const sources = (id: string): string[] =>
      (nodes.find((n) => n.id === id)?.sources ?? []).map((code) => about.sources[code] ?? code);
    const facts = clusters.map((c) => ({ ...factsOf(c), sources: sources(c.id) }));
    io.stdout(`${JSON.stringify({ clusters: facts })}\n`);
    return EXIT.ok;
  }
  const rows = clusters.map((c) => [
    c.id,
    c.accelerator,
    String(c.devicesPerHost),
    gigabytes(c.memoryBytes),
    tera(c.peakFlopsPerSecond),
    rate(c.memoryBytesPerSecond),
    rate(c.intra.bytesPerSecond),
    rate(c.inter.bytesPerSecond),
  ]);
  const head = [
    'name',
    'accelerator',
    'in a host',
    'GB',
    'TFLOPS',
    'memory GB/s',
    'link GB/s',
    'network GB/s',
  ];
  io.stdout(`${tableText([head, ...rows], [2, 3, 4, 5, 6, 7])}\n`);
  io.stdout(
    '\nrates: one way, one device; TFLOPS: dense, bf16 where there is one. Sources: ' +
      'shardwright hardware show NAME\n',
  );
  return EXIT.ok;
}

/**
 * `hardware show NAME`: every constant with its unit and source. @throws E_CLUSTER for an unknown
 * name
 */
export function hardwareShowCommand(name: string, options: HardwareOptions, io: CliIo): number {
  const cluster = loadCluster(clusterText(name));
  if (options.json === true) {
    io.stdout(`${JSON.stringify(cluster)}\n`);
    return EXIT.ok;
  }
  io.stdout(`${cluster.id}  ${cluster.name}\n\n`);
  const constants = constantsOf(cluster);
  const sources = [...new Set(constants.map((c) => c.source))];
  const rows = constants.flatMap((c) => {
    // Several peaks in one value: one a line.
    const source = `[${sources.indexOf(c.source) + 1}]`;
    return c.value
      .split(', ')
      .map((part, i) => (i === 0 ? [c.name, part, c.unit, source] : ['', part, c.unit, '']));
  });
  io.stdout(`${tableText([['constant', 'value', 'unit', 'source'], ...rows], [1])}\n\n`);
  for (const [k, source] of sources.entries()) io.stdout(hanging(`[${k + 1}]`.padEnd(6), source));
  if (cluster.assumptions.length > 0) io.stdout('\n');
  for (const assumption of cluster.assumptions) io.stdout(hanging('note  ', assumption));
  return EXIT.ok;
}

const WIDTH = 100;

/** A text behind its label, wrapped under itself. */
function hanging(label: string, text: string): string {
  const lines = [];
  let line = label;
  for (const word of text.split(' ')) {
    if (line.trim() !== label.trim() && line.trim() !== '' && line.length + word.length > WIDTH) {
      lines.push(line);
      line = ' '.repeat(label.length);
    }
    line += `${word} `;
  }
  return [...lines, line].map((full) => `${full.trimEnd()}\n`).join('');
}

/** The row of a design; rates in bytes per second, memory in bytes. */
function factsOf(c: Cluster): object {
  return {
    id: c.id,
    name: c.name,
    accelerator: c.accelerator,
    devicesPerHost: c.devicesPerHost,
    memoryBytes: c.memoryBytes,
    peakFlopsPerSecond: c.peakFlopsPerSecond,
    memoryBytesPerSecond: c.memoryBytesPerSecond,
    intraBytesPerSecond: c.intra.bytesPerSecond,
    interBytesPerSecond: c.inter.bytesPerSecond,
  };
}

function gigabytes(bytes: number): string {
  return (bytes / 1e9).toFixed(1);
}

function rate(bytesPerSecond: number): string {
  return String(Number((bytesPerSecond / 1e9).toPrecision(4)));
}

function tera(peaks: Cluster['peakFlopsPerSecond']): string {
  const [peak] = ['bf16', 'fp16', 'fp32'].flatMap((unit) => getOwn(peaks, unit) ?? []);
  return peak === undefined ? '-' : String(Number((peak / 1e12).toPrecision(4)));
}
