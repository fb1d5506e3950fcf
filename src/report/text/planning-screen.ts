/** Prints the first screen of comparisons side by side: what to take in words, and a row each. */

import { allocationText } from '../../cost/hardware/topology.ts';
import { stepTime } from '../../recipes/compare/best-plan.ts';
import type { PlanningGoals } from '../../sweep/planning/goals.ts';
import type { Planning, PlanningPoint } from '../../sweep/planning/planning.ts';
import {
  bytesText,
  countedText,
  countText,
  durationText,
  probabilityText,
  secondsText,
} from '../../units.ts';
import { fitsWithText, riskierText } from '../model/certainty.ts';
import type { ScreenRow } from '../model/first-screen.ts';
import { screenText } from './first-screen.ts';
import { goalTexts } from './goals.ts';
import { narrowTable } from './narrow-table.ts';
import { bestText, curveLines, fastestText } from './planning.ts';
import { energyText, moneyRangeText, moneyText, tokensText, wallText } from './run-cost.ts';

/** The curves that a first screen draws. */
const CURVES = 2;

export function planningScreenText({ points, curves, goals }: Planning, isWhole = false): string {
  const models = [...new Set(points.map((p) => p.model))];
  const rows: ScreenRow[] = [
    {
      label: 'question',
      texts: [
        `${models.join(', ')}: ${countedText(points.length, 'question')}, the best plan of each`,
      ],
    },
    ...answerRows(points, goals),
    ...cautionRows(points),
  ];
  const more = isWhole
    ? []
    : [
        screenText([
          { label: 'more', texts: ['-v prints ranges, rates, MFU, meshes, and what is assumed'] },
        ]),
      ];
  return [
    screenText(rows),
    pointRows(points, models.length > 1),
    ...curves.slice(0, CURVES).map((curve) => curveLines(curve, points).join('\n')),
    ...more,
  ].join('\n\n');
}

/** The fastest and the cheapest of all, and what a run takes on each cluster. */
function answerRows(points: readonly PlanningPoint[], goals: PlanningGoals = {}): ScreenRow[] {
  const texts = [...goalTexts(points, goals), ...(fastestText(points)?.split('; ') ?? [])];
  const runs = points.flatMap((p) =>
    p.best === null || p.run === undefined
      ? []
      : [
          [
            `${countText(p.devices)} of ${p.cluster}: ${tokensText(p.run.tokens)} tokens in ` +
              wallText(p.run),
            ...(p.run.price === undefined ? [] : [moneyRangeText(p.run)]),
            energyText(p.run) ?? [],
          ]
            .flat()
            .join(', '),
        ],
  );
  return [
    ...(texts.length === 0 ? [] : [{ label: 'answer', texts }]),
    ...(runs.length === 0 || runs.length > CURVES * 2 ? [] : [{ label: 'runs', texts: runs }]),
  ];
}

/** Idle devices, plans that do not fit surely, and riskier ones: what asks for a decision. */
function cautionRows(points: readonly PlanningPoint[]): ScreenRow[] {
  const texts = points.flatMap((p) => {
    const at = `${countText(p.devices)} devices of ${p.cluster}: `;
    const idle = p.held === undefined ? undefined : allocationText(p.held);
    const { safest, riskier } = p;
    return [
      ...(idle === undefined ? [] : [`${at}${idle}`]),
      ...(safest === undefined
        ? []
        : [
            `${at}the safest is ${safest.plan} on ${safest.mesh}, and ` +
              fitsWithText(safest.fitProbability ?? 0),
          ]),
      ...(riskier === undefined ? [] : [at + riskierText(riskier)]),
    ];
  });
  return texts.length === 0 ? [] : [{ label: 'note', texts }];
}

/** Batches of as many sequences a device: the number of devices says them. */
function growsWithDevices(points: readonly PlanningPoint[]): boolean {
  return new Set(points.map((p) => p.globalBatch / p.devices)).size === 1;
}

function pointRows(points: readonly PlanningPoint[], isManyModels: boolean): string {
  const differs = (key: 'sequence' | 'globalBatch'): boolean =>
    new Set(points.map((p) => p[key])).size > 1;
  const runs = points.some((p) => p.run !== undefined);
  const priced = points.some((p) => p.run?.price !== undefined);
  const columns: readonly (readonly [
    head: string,
    isNumber: boolean,
    cell: (p: PlanningPoint) => string,
  ])[] = [
    ...(isManyModels ? [['model', false, (p: PlanningPoint) => p.model] as const] : []),
    ['cluster', false, (p) => p.cluster],
    ['devices', true, (p) => countText(p.devices)],
    ...(differs('sequence')
      ? [['sequence', true, (p: PlanningPoint) => countText(p.sequence)] as const]
      : []),
    ...(differs('globalBatch') && !growsWithDevices(points)
      ? [['batch', true, (p: PlanningPoint) => countText(p.globalBatch)] as const]
      : []),
    ['best plan', false, bestText],
    ['step', true, ({ best }) => (best === null ? '' : secondsText(stepTime(best)))],
    ['memory', true, ({ best }) => (best === null ? '' : bytesText(best.peakBytes))],
    [
      'fits',
      true,
      ({ best }) =>
        typeof best?.fitProbability === 'number' ? probabilityText(best.fitProbability) : '',
    ],
    ...(runs
      ? [
          [
            'run',
            true,
            ({ run }: PlanningPoint) => (run === undefined ? '' : durationText(run.wallSeconds)),
          ] as const,
        ]
      : []),
    ...(priced
      ? [
          [
            'money',
            true,
            ({ run }: PlanningPoint) =>
              run?.price === undefined ? '' : moneyText(run.price.amount, run.price.currency),
          ] as const,
        ]
      : []),
  ];
  const right = columns.flatMap(([, isNumber], i) => (isNumber ? [i] : []));
  return narrowTable(
    [columns.map(([head]) => head), ...points.map((p) => columns.map(([, , cell]) => cell(p)))],
    right,
  );
}
