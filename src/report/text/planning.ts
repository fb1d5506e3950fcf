/**
 * Prints comparisons side by side: a table of points, the curves with their efficiency, where the
 * best plan changes.
 */

import { allocationText } from '../../cost/hardware/topology.ts';
import type { Curve, Planning, PlanningPoint } from '../../sweep/planning/planning.ts';
import {
  bytesText,
  countText,
  durationText,
  percentText,
  secondsText,
  tableText,
} from '../../units.ts';
import { amountText, moneyText } from './run-cost.ts';

/** Columns of a point; those of a run only where one is asked for. */
export const POINT_HEAD = [
  'cluster',
  'devices',
  'sequence',
  'batch',
  'best plan',
  'mesh',
  'step',
  'tokens/s',
  'each',
  'MFU',
  'memory',
] as const;
export const RUN_HEAD = ['run', 'money', 'MWh'] as const;
const RIGHT = [1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13];

export function planningText({ points, curves }: Planning): string {
  const runs = points.some((p) => p.run !== undefined);
  const models = [...new Set(points.map((p) => p.model))];
  const many = models.length > 1;
  const rows = points.map((p) => [...(many ? [p.model] : []), ...pointRow(p, runs)]);
  const head = [...(many ? ['model'] : []), ...POINT_HEAD, ...(runs ? RUN_HEAD : [])];
  const lines = [
    ...(many ? [] : [`model     ${models.join()}`, '']),
    tableText([head, ...rows], many ? RIGHT.map((k) => k + 1) : RIGHT),
    ...runNotes(points),
  ];
  for (const p of points) {
    const idle = p.held === undefined ? undefined : allocationText(p.held);
    if (idle !== undefined)
      lines.push(`note      ${p.cluster}, ${countText(p.devices)} devices: ${idle}`);
  }
  const faster = fastestText(points);
  if (faster !== undefined) lines.push('', faster);
  for (const curve of curves) lines.push('', ...curveLines(curve, points));
  return lines.join('\n');
}

/** The cells of a point. */
export function pointRow(p: PlanningPoint, runs: boolean): string[] {
  const asked = [p.cluster, countText(p.devices), countText(p.sequence), countText(p.globalBatch)];
  const { best, run } = p;
  if (best === null) {
    const why = p.stopped === undefined ? 'no plan fits' : `${p.stopped}: none priced`;
    return [
      ...asked,
      why,
      ...Array.from({ length: POINT_HEAD.length - 5 + (runs ? RUN_HEAD.length : 0) }, () => ''),
    ];
  }
  const stopped = p.stopped === undefined ? '' : ' (so far)';
  return [
    ...asked,
    `${best.plan}${stopped}`,
    best.mesh,
    secondsText(best.seconds),
    countText(Math.round(best.tokensPerSecond)),
    countText(Math.round(best.tokensPerSecondPerDevice)),
    percentText(best.mfu),
    bytesText(best.peakBytes),
    ...(runs
      ? [
          run === undefined ? '' : durationText(run.wallSeconds),
          run?.price === undefined ? '' : moneyText(run.price.amount, run.price.currency),
          run?.energyMegawattHours === undefined ? '' : amountText(run.energyMegawattHours),
        ]
      : []),
  ];
}

function runNotes(points: readonly PlanningPoint[]): string[] {
  return [...new Set(points.flatMap(({ run }) => run?.assumptions ?? []))].map(
    (text) => `assumed   ${text}`,
  );
}

/** The fastest of all points, and the cheapest where prices of one currency are known. */
export function fastestText(points: readonly PlanningPoint[]): string | undefined {
  const priced = points.flatMap((p) =>
    p.best === null ? [] : [{ p, rate: p.best.tokensPerSecond }],
  );
  if (priced.length < 2) return undefined;
  const words = ({ cluster, devices, sequence, globalBatch, model }: PlanningPoint): string => {
    const differs = (key: 'model' | 'devices' | 'sequence' | 'globalBatch'): boolean =>
      new Set(points.map((q) => q[key])).size > 1;
    return [
      ...(differs('model') ? [model] : []),
      `${countText(devices)} devices of ${cluster}`,
      ...(differs('sequence') ? [`sequences of ${countText(sequence)}`] : []),
      ...(differs('globalBatch') && !differs('devices')
        ? [`${countText(globalBatch)} a step`]
        : []),
    ].join(', ');
  };
  const first = priced.reduce((most, x) => (x.rate > most.rate ? x : most));
  const out = [`most tokens a second: ${words(first.p)}`];
  const money = points.flatMap((p) => (p.run?.price === undefined ? [] : [{ p, ...p.run.price }]));
  if (money.length > 1 && new Set(money.map((m) => m.currency)).size === 1) {
    const least = money.reduce((l, x) => (x.amount < l.amount ? x : l));
    out.push(`cheapest: ${words(least.p)}, ${moneyText(least.amount, least.currency)}`);
  }
  return out.join('; ');
}

const AXIS = { devices: 'devices', sequence: 'sequences of', globalBatch: 'batch' } as const;

function curveLines(
  { of, axis, scaling, points: order, efficiency, changes }: Curve,
  points: readonly PlanningPoint[],
): string[] {
  const rows = order.map((i, k) => {
    const share = efficiency[k];
    const change = changes.find((c) => c.at === i);
    return [
      countText(points[i][axis]),
      share === null ? '' : percentText(share),
      share === null ? '' : '#'.repeat(Math.max(1, Math.min(40, Math.round(share * 30)))),
      change === undefined ? '' : `${change.from} -> ${change.to}`,
    ];
  });
  return [
    `${scaling === undefined ? 'curve' : `${scaling} scaling`}: ${of}`,
    tableText([[AXIS[axis], 'efficiency', '', 'best plan changes'], ...rows], [0, 1]),
  ];
}
