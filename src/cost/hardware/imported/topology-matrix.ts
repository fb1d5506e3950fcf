/**
 * Reads the matrix of `nvidia-smi topo -m`: devices of a host, how each pair is joined, and the
 * network cards that are nearest to each device.
 */

import { ShardwrightError } from '../../../errors.ts';

/** How close two things are, the closest first; `NV#` is a bonded set of NVLinks. */
const DISTANCES = ['PIX', 'PXB', 'PHB', 'NODE', 'SYS'] as const;
const CARD = /^(?:NIC\d+|mlx\d\w*|hfi\d\w*|bnxt\w*|irdma\w*|rdma\w*)$/;

/** The links in a matrix of `nvidia-smi topo -m`. */
interface TopologyMatrix {
  readonly devices: number;
  /** Least number of NVLinks between two devices; 0 where some pair has none. */
  readonly nvlinks: number;
  /** The worst way between two devices without NVLink, `SYS`. */
  readonly worst: string | undefined;
  /** Network cards of the host. */
  readonly cards: number;
  /**
   * Nearest cards per device, each card divided among the devices that it is nearest to; the least
   * over the devices.
   */
  readonly cardsPerDevice: number;
}

/** Tells whether a text is such a matrix. */
export function isTopologyMatrix(text: string): boolean {
  return text.split('\n').some((line) => /^\s*GPU0\s+(?:X|GPU1)\b/.test(line));
}

/** @throws E_CLUSTER with its line for a row that does not fit the header */
export function readTopologyMatrix(text: string, file: string): TopologyMatrix {
  // Terminals underline the header.
  const lines = text.replace(/\u001b\[[\d;]*m/g, '').split(/\r?\n/);
  const top = lines.findIndex(
    (line) => /^\s*GPU0\b(?!\s+X\b)/.test(line) || /^\s*GPU0\s+GPU1/.test(line),
  );
  const header = top < 0 ? [] : lines[top].trim().split(/\s+/);
  const names = header.slice(
    0,
    header.findIndex((word) => word === 'CPU') < 0
      ? header.length
      : header.findIndex((word) => word === 'CPU'),
  );
  const devices = names.filter((name) => /^GPU\d+$/.test(name)).length;
  const cards = names.filter((name) => CARD.test(name)).length;
  const rows = new Map<string, readonly string[]>();
  lines.forEach((line, at) => {
    const words = line.trim().split(/\s+/);
    if (at <= top || !/^GPU\d+$/.test(words[0] ?? '') || rows.has(words[0])) return;
    // What a device is to itself shows that no column is missing.
    if (words[names.indexOf(words[0]) + 1] !== 'X')
      throw new ShardwrightError(
        'E_CLUSTER',
        `${words[0]} has no X in its own column: ${words.length - 1} entries, and the header ` +
          `names ${names.length} devices and cards`,
        {
          file,
          position: { line: at + 1, column: 1 },
          hint: 'keep the matrix as nvidia-smi topo -m prints it.',
        },
      );
    rows.set(words[0], words.slice(1, names.length + 1));
  });
  if (devices === 0 || rows.size !== devices)
    throw new ShardwrightError(
      'E_CLUSTER',
      `the matrix has ${rows.size} rows of GPUs and ${devices} columns`,
      { file, hint: 'keep the matrix as nvidia-smi topo -m prints it.' },
    );
  return { devices, cards, ...pairs(names, rows), cardsPerDevice: nearest(names, rows) };
}

function pairs(
  names: readonly string[],
  rows: ReadonlyMap<string, readonly string[]>,
): Pick<TopologyMatrix, 'nvlinks' | 'worst'> {
  let nvlinks = Infinity;
  let worst = -1;
  for (const [name, row] of rows)
    names.forEach((other, k) => {
      if (other === name || !/^GPU\d+$/.test(other)) return;
      const links = /^NV(\d+)$/.exec(row[k]);
      nvlinks = Math.min(nvlinks, links === null ? 0 : Number(links[1]));
      if (links === null) worst = Math.max(worst, (DISTANCES as readonly string[]).indexOf(row[k]));
    });
  return {
    nvlinks: Number.isFinite(nvlinks) ? nvlinks : 0,
    worst: worst < 0 ? undefined : DISTANCES[worst],
  };
}

/**
 * Nearest cards per device, each card divided among the devices that have it as a nearest one; the
 * least over the devices.
 */
function nearest(names: readonly string[], rows: ReadonlyMap<string, readonly string[]>): number {
  const distance = (row: readonly string[], k: number): number => {
    const at = (DISTANCES as readonly string[]).indexOf(row[k]);
    return at < 0 ? DISTANCES.length : at;
  };
  const cards = names.flatMap((name, k) => (CARD.test(name) ? [k] : []));
  const least = new Map<string, number>();
  for (const [name, row] of rows)
    least.set(name, Math.min(Infinity, ...cards.map((k) => distance(row, k))));
  const shares = [...rows].map(([name, row]) =>
    cards
      .filter((k) => distance(row, k) === least.get(name))
      .reduce((sum, k) => {
        const users = [...rows].filter(([other, own]) => distance(own, k) === least.get(other));
        return sum + 1 / users.length;
      }, 0),
  );
  return Math.min(...shares);
}
