/**
 * Takes a collective model and the measured table of a cluster and gives a model that prefers the
 * table's times.
 */

import { COLLECTIVE_KINDS, type CollectiveKind } from '../../mesh/collective-kinds.ts';
import { countedText } from '../../units.ts';
import { byMeshDims, type CollectiveModel, recordOnCurve } from '../collective-model.ts';
import type { Cluster } from '../hardware/cluster.ts';
import { type CollectiveRow, collectiveRowKey } from '../hardware/collective-table.ts';
import { clusterTopology } from '../hardware/topology.ts';

/**
 * One row as a price: the first time below the first size, linear between, at the rate of the last
 * above it.
 */
class TableLine {
  /** Times, each at least the one before: prices rise with bytes. */
  private readonly rising: readonly number[];
  /** Times that were below one of a smaller size. */
  readonly raised: number;

  /** @param blocks where nothing overlaps: what a collective adds to compute is its price */
  constructor(
    private readonly row: CollectiveRow,
    blocks: boolean,
  ) {
    let most = 0;
    const { besideSeconds } = row;
    const own = row.seconds.map((t, i) => (blocks ? Math.max(t, besideSeconds?.[i] ?? 0) : t));
    this.rising = own.map((t) => (most = Math.max(most, t)));
    this.raised = own.filter((t, i) => t < this.rising[i]).length;
  }

  get source(): string | undefined {
    return this.row.source;
  }

  /** @param bytes of the collective, as everywhere: of an all_gather what comes out */
  seconds(bytes: number): number {
    const { bytes: x, devices, collective } = this.row;
    const y = this.rising;
    const input = collective === 'all_gather' ? bytes / devices : bytes;
    const last = x.length - 1;
    if (input <= x[0]) return y[0];
    if (input >= x[last]) return (y[last] * input) / x[last];
    let i = 1;
    while (x[i] < input) i++;
    return y[i - 1] + ((y[i] - y[i - 1]) * (input - x[i - 1])) / (x[i] - x[i - 1]);
  }
}

/**
 * A collective model with the times of the cluster's table where it has a row for the group, its
 * number of devices and the collective, and the model's own everywhere else; the note says which
 * rows the mesh uses and which it does not.
 */
export function withCollectiveTable(model: CollectiveModel, cluster: Cluster): CollectiveModel {
  const rows = cluster.collectiveTable ?? [];
  const { mesh } = model;
  const blocks = cluster.calibration?.synchronous === true;
  const lines = new Map(rows.map((row) => [collectiveRowKey(row), new TableLine(row, blocks)]));
  const byLevel = keysByLevel(rows);
  const keyFor = (kind: CollectiveKind, meshDims: readonly number[]): string | undefined => {
    const devices = mesh.sizeOf(meshDims);
    if (devices === 1) return undefined;
    const sorted = [...meshDims].sort((a, b) => a - b);
    const own = collectiveRowKey({
      group: sorted.map((d) => mesh.names[d]).join(','),
      devices,
      collective: kind,
    });
    if (lines.has(own)) return own;
    const { hosts } = clusterTopology(cluster, mesh, meshDims);
    const level = collectiveRowKey({
      group: hosts === 1 ? 'intra' : 'inter',
      devices,
      collective: kind,
    });
    return lines.has(level) ? level : byLevel.get(level);
  };
  const linesOf = byMeshDims((meshDims) => {
    const group: Partial<Record<CollectiveKind, TableLine>> = {};
    for (const each of COLLECTIVE_KINDS) {
      const line = lines.get(keyFor(each, meshDims) ?? '');
      if (line !== undefined) group[each] = line;
    }
    return group;
  });
  const lineFor = (kind: CollectiveKind, meshDims: readonly number[]): TableLine | undefined =>
    linesOf(meshDims)[kind];
  return {
    ...model,
    note: [
      ...(model.note === undefined ? [] : [model.note]),
      tableNote(rows, lines, mesh.rank, keyFor),
    ].join(' '),
    seconds: (kind, bytes, meshDims) =>
      lineFor(kind, meshDims)?.seconds(bytes) ?? model.seconds(kind, bytes, meshDims),
    record(kind, bytes, meshDims) {
      const line = lineFor(kind, meshDims);
      if (line === undefined) return model.record(kind, bytes, meshDims);
      return {
        ...recordOnCurve(kind, line, bytes),
        source:
          line.source ?? `table of collectives ${cluster.sources.collectiveTable ?? ''}`.trimEnd(),
      };
    },
  };
}

/** Keys of the first rows that stand for other groups of their level, by the key of those. */
function keysByLevel(rows: readonly CollectiveRow[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const row of rows) {
    if (row.level === undefined) continue;
    const key = collectiveRowKey({ ...row, group: row.level });
    if (!found.has(key)) found.set(key, collectiveRowKey(row));
  }
  return found;
}

function tableNote(
  rows: readonly CollectiveRow[],
  lines: ReadonlyMap<string, TableLine>,
  rank: number,
  keyFor: (kind: CollectiveKind, meshDims: readonly number[]) => string | undefined,
): string {
  const used = new Set<string>();
  for (let mask = 1; mask < 2 ** rank; mask++) {
    const dims = Array.from({ length: rank }, (_, d) => d).filter((d) => (mask & (1 << d)) !== 0);
    for (const kind of COLLECTIVE_KINDS) {
      const key = keyFor(kind, dims);
      if (key !== undefined) used.add(key);
    }
  }
  const idle = rows.map(collectiveRowKey).filter((key) => !used.has(key));
  const raised = [...used].reduce((sum, key) => sum + (lines.get(key)?.raised ?? 0), 0);
  const named = idle.slice(0, 3).join(', ');
  return [
    `Collectives of the mesh that the table has take its times: ${used.size} of its ` +
      `${countedText(rows.length, 'row')}; all others are the preset's.`,
    ...(idle.length > 0
      ? [`No group of the mesh has the rows ${named}${idle.length > 3 ? ' ...' : ''}.`]
      : []),
    ...(raised > 0
      ? [
          `${countedText(raised, 'time')} below one of fewer bytes ` +
            `${raised === 1 ? 'was' : 'were'} raised to it.`,
        ]
      : []),
  ].join(' ');
}
