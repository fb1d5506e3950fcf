/**
 * Writes the table of docs/costs.md that says how far each cost preset is off measured collectives
 * (data/nccl_measured.json), by machine and kind. Every point is left out of the curves of `nccl`
 * before it is predicted. Run: npx tsx scripts/preset-errors.ts
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { format } from 'prettier';

import { MeasuredCurve, measuredPoints } from '../src/cost/collectives/measured.ts';
import { loadCluster } from '../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../src/cost/presets/presets.ts';
import { median } from '../src/fidelity/metrics.ts';
import { DeviceMesh } from '../src/mesh/devices/mesh.ts';

const FILE = fileURLToPath(new URL('../docs/costs.md', import.meta.url));
const [START, END] = ['<!-- preset-errors -->', '<!-- /preset-errors -->'];
/**
 * Measured machine and the node design that stands for it; host-staged L40S and the B300, which has
 * no design, are left out.
 */
const MACHINES = {
  'A100-SXM4-80GB': 'dgx-a100-80gb',
  'H100-SXM': 'dgx-h100',
  B200: 'dgx-b200',
  GB200: 'gb200-nvl72',
};
const KINDS = {
  all_gather: 'all_gather',
  reduce_scatter: 'reduce_scatter',
  all_reduce: 'all_reduce',
  alltoall: 'all_to_all',
} as const;
const OTHERS = ['alpha-beta', 'autoparallel', 'dtensor'] as const;
/** Below this, latency decides; noise of single measurements with it. */
const LEAST_BYTES = 2 ** 20;

interface Errors {
  readonly machine: string;
  readonly kind: string;
  readonly points: number;
  readonly byPreset: Readonly<Record<string, readonly number[]>>;
}

/** Relative errors of each preset on the measured points of at least 1 MiB. */
export function presetErrors(): Errors[] {
  const all = measuredPoints();
  return Object.entries(MACHINES).flatMap(([machine, node]) =>
    Object.entries(KINDS).map(([name, kind]): Errors => {
      const byPreset: Record<string, number[]> = {
        nccl: [],
        ...Object.fromEntries(OTHERS.map((p) => [p, []])),
      };
      const cluster = loadCluster(node);
      for (const [size, points] of Object.entries(all[machine][name as keyof typeof KINDS])) {
        const mesh = new DeviceMesh([{ name: 'd', size: Number(size) }]);
        const models = OTHERS.map(
          (preset) => [preset, collectiveModel(preset, cluster, mesh)] as const,
        );
        for (const [bytes, micros] of points) {
          if (bytes < LEAST_BYTES) continue;
          const rest = points
            .filter(([b]) => b !== bytes)
            .map(([b, us]) => [b, us * 1e-6] as const);
          const measured = micros * 1e-6;
          byPreset.nccl.push(new MeasuredCurve(rest).seconds(bytes) / measured - 1);
          for (const [preset, model] of models)
            byPreset[preset].push(model.seconds(kind, bytes, [0]) / measured - 1);
        }
      }
      return { machine, kind, points: byPreset.nccl.length, byPreset };
    }),
  );
}

/** The table, in the form that the docs have. */
export function presetErrorTable(): string {
  const presets = ['nccl', ...OTHERS];
  const percent = (x: number): string => `${x < 0 ? '−' : ''}${Math.abs(100 * x).toFixed(0)} %`;
  const rows = presetErrors().map(({ machine, kind, points, byPreset }) => {
    const cells = presets.map((preset) => {
      const sorted = byPreset[preset].map(Math.abs).sort((a, b) => a - b);
      return (
        `${percent(median(byPreset[preset]) ?? 0)} ` +
        `(${percent(sorted[Math.floor(0.95 * (sorted.length - 1))])})`
      );
    });
    return `| ${[machine, kind, points, ...cells].join(' | ')} |`;
  });
  const head = ['machine', 'collective', 'points', ...presets.map((p) => `\`${p}\``)];
  return [`| ${head.join(' | ')} |`, `| ${head.map(() => '---').join(' | ')} |`, ...rows].join(
    '\n',
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = readFileSync(FILE, 'utf8');
  const [before, rest] = text.split(START);
  const after = rest.split(END)[1];
  writeFileSync(
    FILE,
    await format(`${before}${START}\n\n${presetErrorTable()}\n\n${END}${after}`, {
      parser: 'markdown',
      printWidth: 120,
    }),
  );
}
