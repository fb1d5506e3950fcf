/**
 * Prints comparisons side by side: a table of points, the curves with their efficiency, where the
 * best plan changes.
 */

import { allocationText } from '../../cost/hardware/topology.ts';
import { itemAt } from '../../item-at.ts';
import { stepTime } from '../../recipes/compare/best-plan.ts';
import type { Curve, Planning, PlanningPoint } from '../../sweep/planning/planning.ts';
import { countText, percentText, probabilityText, secondsText } from '../../units.ts';
import { bytes, type Cell, count, type TableBlock } from '../model/blocks.ts';
import { fitsWithText, riskierText } from '../model/certainty.ts';
import { type ColumnOf, tableOf, terminalTable } from '../model/table.ts';
import { amountText, moneyRangeText, moneyText, wallText, withRange } from './run-cost.ts';

type Best = NonNullable<PlanningPoint['best']>;
type Run = NonNullable<PlanningPoint['run']>;
type PointColumn = ColumnOf<PlanningPoint>;

const named = (head: string, cell: (p: PlanningPoint) => string): PointColumn => ({
  column: { head, kind: 'keep' },
  cell,
});
const asked = (head: string, amount: (p: PlanningPoint) => number): PointColumn => ({
  column: { head, kind: 'number' },
  cell: (p) => count(amount(p)),
});
/** A column of the best plan, empty where there is none. */
const ofBest = (head: string, cell: (best: Best) => Cell): PointColumn => ({
  column: { head, kind: 'number' },
  cell: ({ best }) => (best === null ? '' : cell(best)),
});
const ofRun = (head: string, cell: (run: Run) => Cell | string): PointColumn => ({
  column: { head, kind: 'number' },
  cell: ({ best, run }) => (best === null || run === undefined ? '' : cell(run)),
});
const rate = (value: number): Cell => ({ text: countText(Math.round(value)), value });

const POINT: readonly PointColumn[] = [
  named('cluster', (p) => p.cluster),
  asked('devices', (p) => p.devices),
  asked('sequence', (p) => p.sequence),
  asked('batch', (p) => p.globalBatch),
  named('best plan', bestText),
  named('mesh', ({ best }) => best?.mesh ?? ''),
  ofBest('step', (best) => ({
    text: withRange(stepTime(best), best.stepBand, secondsText),
    value: stepTime(best),
  })),
  ofBest('tokens/s', (best) => rate(best.tokensPerSecond)),
  ofBest('each', (best) => rate(best.tokensPerSecondPerDevice)),
  ofBest('MFU', ({ mfu }) => ({ text: percentText(mfu), value: mfu })),
  ofBest('memory', (best) => bytes(best.peakBytes)),
  ofBest('fits', ({ fitProbability: value }) =>
    typeof value === 'number' ? { text: probabilityText(value), value } : { text: '', value: 0 },
  ),
];
/** Columns of a run, where one is asked for. */
const RUN: readonly PointColumn[] = [
  ofRun('run', (run) => ({ text: wallText(run), value: run.wallSeconds })),
  ofRun('money', (run) =>
    run.price === undefined ? '' : { text: moneyRangeText(run), value: run.price.amount },
  ),
  ofRun('MWh', ({ energyMegawattHours: value }) =>
    value === undefined ? '' : { text: amountText(value), value },
  ),
];

/** The best plan of a point, or why there is none. */
export function bestText({ best, stopped, safest, risk = 0 }: PlanningPoint): string {
  if (best !== null) return `${best.plan}${stopped === undefined ? '' : ' (so far)'}`;
  if (stopped !== undefined) return `${stopped}: none priced`;
  return safest === undefined ? 'no plan fits' : `none fits with ${probabilityText(risk)}`;
}

/** The points side by side, a row each. */
export function pointTable(points: readonly PlanningPoint[]): Pick<TableBlock, 'columns' | 'rows'> {
  const many = new Set(points.map((p) => p.model)).size > 1;
  const runs = points.some((p) => p.run !== undefined);
  return tableOf(points, [
    ...(many ? [named('model', (p) => p.model)] : []),
    ...POINT,
    ...(runs ? RUN : []),
  ]);
}

export function planningText({ points, curves }: Planning): string {
  const models = [...new Set(points.map((p) => p.model))];
  const lines = [
    ...(models.length > 1 ? [] : [`model     ${models.join()}`, '']),
    terminalTable(pointTable(points)),
    ...runNotes(points),
  ];
  for (const p of points) {
    const idle = p.held === undefined ? undefined : allocationText(p.held);
    if (idle !== undefined)
      lines.push(`note      ${p.cluster}, ${countText(p.devices)} devices: ${idle}`);
  }
  lines.push(...riskNotes(points));
  const faster = fastestText(points);
  if (faster !== undefined) lines.push('', faster);
  for (const curve of curves) lines.push('', ...curveLines(curve, points));
  return lines.join('\n');
}

/** Where no plan fits so surely, and where a riskier one is faster. */
function riskNotes(points: readonly PlanningPoint[]): string[] {
  return points.flatMap((p) => {
    const at = `note      ${p.cluster}, ${countText(p.devices)} devices: `;
    const { safest, riskier } = p;
    return [
      ...(safest === undefined
        ? []
        : [
            `${at}the safest is ${safest.plan} on ${safest.mesh}, and ` +
              fitsWithText(safest.fitProbability ?? 0),
          ]),
      ...(riskier === undefined ? [] : [at + riskierText(riskier)]),
    ];
  });
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

const AXIS: Readonly<Record<Curve['axis'], { readonly head: string; readonly short: string }>> = {
  devices: { head: 'devices', short: 'devices' },
  sequence: { head: 'tokens of a sequence', short: 'sequences of' },
  globalBatch: { head: 'sequences of a step', short: 'batch' },
};

/** A point of a curve: where it is on the axis, its efficiency, and a change of the best plan. */
interface CurvePoint {
  readonly of: string;
  readonly at: number;
  /** Null where no plan fits. */
  readonly share: number | null;
  readonly change: string;
}

function pointsOf(
  { of, axis, points: order, efficiency, changes }: Curve,
  points: readonly PlanningPoint[],
): CurvePoint[] {
  return order.map((i, k) => {
    const change = changes.find((c) => c.at === i);
    return {
      of,
      at: itemAt(points, i)[axis],
      share: itemAt(efficiency, k),
      change: change === undefined ? '' : `${change.from} -> ${change.to}`,
    };
  });
}

/** The efficiency of curves along one axis, and where the best plan changes. */
export function curveTable(
  curves: readonly [Curve, ...Curve[]],
  points: readonly PlanningPoint[],
  isDrawn = false,
): Pick<TableBlock, 'columns' | 'rows'> {
  const bar: ColumnOf<CurvePoint> = {
    column: { head: '' },
    cell: ({ share }) =>
      share === null ? '' : '#'.repeat(Math.max(1, Math.min(30, Math.round(share * 24)))),
  };
  const curve: ColumnOf<CurvePoint> = {
    column: { head: 'Curve', kind: 'name' },
    cell: ({ of }) => of,
  };
  return tableOf(
    curves.flatMap((one) => pointsOf(one, points)),
    [
      ...(isDrawn ? [] : [curve]),
      { column: { ...AXIS[curves[0].axis], kind: 'number' }, cell: ({ at }) => count(at) },
      {
        column: { head: 'Efficiency', short: 'efficiency', kind: 'number' },
        cell: ({ share }) =>
          share === null ? 'no plan' : { text: percentText(share), value: share },
      },
      ...(isDrawn ? [bar] : []),
      {
        column: { head: 'The best plan changes', short: 'best plan changes', kind: 'name' },
        cell: ({ change }) => change,
      },
    ],
  );
}

/** A curve with its bars, under its name. */
export function curveLines(curve: Curve, points: readonly PlanningPoint[]): string[] {
  const { scaling, of } = curve;
  return [
    `${scaling === undefined ? 'curve' : `${scaling} scaling`}: ${of}`,
    terminalTable(curveTable([curve], points, true)),
  ];
}
