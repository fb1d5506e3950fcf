/** Writes the report of several comparisons: title, answer, the table of points, the curves. */

import { allocationText } from '../../cost/hardware/topology.ts';
import { itemAt } from '../../item-at.ts';
import type { Curve, Planning, PlanningPoint } from '../../sweep/planning/planning.ts';
import { countedText, countText, percentText, secondsText } from '../../units.ts';
import { scalingFigure } from '../figures/scaling.ts';
import type { Block, Section } from '../model/blocks.ts';
import { curveTable, fastestText, pointTable } from '../text/planning.ts';

/** Heading of the report. */
export function planningTitle({ points }: Planning): string {
  const [models, clusters] = [
    [...new Set(points.map((p) => p.model))],
    [...new Set(points.map((p) => p.cluster))],
  ];
  return (
    `${models.length > 2 ? countedText(models.length, 'model') : models.join(' and ')} on ` +
    `${clusters.length > 2 ? countedText(clusters.length, 'cluster') : clusters.join(' and ')}`
  );
}

export function planningAnswer({
  points,
  curves,
}: Planning): { readonly label: string; readonly text: string }[] {
  const done = points.filter((p) => p.best !== null).length;
  const fastest = fastestText(points);
  return [
    ...(fastest === undefined ? [] : [{ label: 'Answer', text: fastest }]),
    {
      label: 'Asked',
      text:
        `${countedText(points.length, 'question')}, ${countText(done)} with a plan; each at ` +
        'its best',
    },
    ...curves.map((curve) => ({
      label: curve.scaling === undefined ? 'Curve' : `${curve.scaling} scaling`,
      text: curveText(curve, points),
    })),
  ];
}

function curveText(
  { of, axis, points: order, efficiency }: Curve,
  points: readonly PlanningPoint[],
): string {
  const parts = order.map(
    (i, k) => `${countText(itemAt(points, i)[axis])}: ${percentOr(itemAt(efficiency, k))}`,
  );
  return `${of}; efficiency ${parts.join(', ')}`;
}

function percentOr(share: number | null): string {
  return share === null ? 'no plan' : percentText(share);
}

const WHAT = {
  devices: 'devices',
  sequence: 'tokens of a sequence',
  globalBatch: 'sequences of a step',
} as const;

export function planningSections({ points, curves }: Planning): Section[] {
  return [pointsSection(points), ...curvesSection(curves, points), ...notesSection(points)];
}

function pointsSection(points: readonly PlanningPoint[]): Section {
  return {
    id: 'points',
    title: 'Side by side',
    blocks: [
      {
        kind: 'table',
        caption: 'Each question at its best plan',
        ...pointTable(points),
        // With money and days no page is as wide as the table.
        ...(points.some((p) => p.run !== undefined) ? { isStacked: true } : {}),
      },
    ],
  };
}

function curvesSection(curves: readonly Curve[], points: readonly PlanningPoint[]): Section[] {
  const [first, ...others] = curves;
  if (first === undefined) return [];
  const { axis } = first;
  const drawn = curves.map((curve) => ({
    name: curve.of,
    points: curve.points.flatMap((i) => {
      const { best, [axis]: x } = itemAt(points, i);
      if (best === null) return [];
      const words =
        `${countText(x)}: ${best.plan} on ${best.mesh}, ${secondsText(best.seconds)}, ` +
        `${countText(Math.round(best.tokensPerSecond))} tokens/s`;
      return [
        {
          x,
          tokensPerSecond: best.tokensPerSecond,
          words,
          changes: curve.changes.some((c) => c.at === i),
        },
      ];
    }),
  }));
  const blocks: Block[] = [];
  if (drawn.every((c) => c.points.length > 0))
    blocks.push({
      kind: 'figure',
      caption:
        `Tokens a second over ${WHAT[axis]}. ` +
        `${axis === 'devices' ? 'Dotted: ideal scaling. ' : ''}` +
        'Larger dots: another plan is best than before.',
      svg: scalingFigure(drawn, WHAT[axis], 'scaling', axis === 'devices'),
    });
  blocks.push({
    kind: 'table',
    caption: 'Efficiency: tokens a second of a device over those at the first point of the curve',
    ...curveTable([first, ...others], points),
  });
  return [{ id: 'curves', title: 'Curves', blocks }];
}

function notesSection(points: readonly PlanningPoint[]): Section[] {
  const idle = points.flatMap((p) => {
    const text = p.held === undefined ? undefined : allocationText(p.held);
    return text === undefined ? [] : [`${p.cluster}, ${countText(p.devices)} devices: ${text}`];
  });
  const assumed = [...new Set(points.flatMap(({ run }) => run?.assumptions ?? []))].map(
    (text) => `Assumed: ${text}.`,
  );
  const warnings = points.flatMap((p) =>
    (p.warnings ?? []).map(
      (text) => `Warning: ${p.cluster}, ${countText(p.devices)} devices: ${text}`,
    ),
  );
  const items = [...warnings, ...idle, ...assumed];
  return items.length === 0
    ? []
    : [
        {
          id: 'assumptions',
          title: 'How the figures were made',
          blocks: [{ kind: 'list', items }],
        },
      ];
}
