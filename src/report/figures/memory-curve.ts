/**
 * Draws the bytes alive over the steps of the program as an SVG figure, with the peak and the
 * budget.
 */

import { itemAt } from '../../item-at.ts';
import { bytesText } from '../../units.ts';
import type { MemoryCurve } from '../analysis/memory.ts';
import { h, type Markup } from '../markup.ts';
import { chart, clip, label, leftAxis, leftTitle, line, linear, px } from './chart.ts';

const [WIDTH, HEIGHT] = [760, 330];
const [LEFT, RIGHT, TOP, BOTTOM] = [98, 744, 46, 276];

/** Classes of the layers, as the bars of the page have them. */
const CLASS: Readonly<Record<MemoryCurve['kinds'][number], string>> = {
  parameters: 'm1',
  optimizer: 'm3',
  gradients: 'm2',
  activations: 'm4',
  'copies in flight': 'm5',
};

/** Live bytes at every program point, stacked by kind, with the peak named and the budget. */
export function memoryFigure(curve: MemoryCurve, budgetBytes: number): Markup {
  // A budget far above everything would flatten the curve: it is then written and not drawn.
  const isFar = budgetBytes > 2.5 * curve.peakBytes;
  const top = isFar ? curve.peakBytes : Math.max(curve.peakBytes, budgetBytes);
  const y = linear(1.06 * top, BOTTOM, TOP, unitOf(top));
  const { points } = curve;
  const x = (k: number): number => LEFT + (k / points.length) * (RIGHT - LEFT);
  const at = (point: number): number => LEFT + (point / curve.moments) * (RIGHT - LEFT);
  let below = points.map(() => 0);
  const layers = curve.kinds.flatMap((kind, k): Markup[] => {
    const above = points.map((p, i) => itemAt(below, i) + itemAt(p, k));
    const path = areaPath(below, above, x, y.at);
    const empty = points.every((p) => p[k] === 0);
    below = above;
    return empty
      ? []
      : [h('path', { d: path, class: `area ${CLASS[kind]}` }, h('title', {}, kind))];
  });
  const peakX = at(curve.peakMoment + 0.5);
  const peakNode = clip(curve.peakNode, 44);
  const named = `peak ${bytesText(curve.peakBytes)} at ${peakNode} (${curve.phase})`;
  // A bold letter is about 8 pixels wide.
  const left = peakX + 8 * named.length > WIDTH && peakX - 8 * named.length > 0;
  const middle = !left && peakX + 8 * named.length > WIDTH;
  return chart(
    {
      id: 'memory-curve',
      title: 'Memory over the program',
      description:
        `Live bytes on the fullest device at every program point: ${named}; the budget is ` +
        `${bytesText(budgetBytes)}.`,
      width: WIDTH,
      height: HEIGHT,
    },
    leftAxis(y, LEFT, RIGHT, bytesText),
    leftTitle('memory of a device', TOP, BOTTOM),
    layers,
    budgetMark(budgetBytes, isFar ? undefined : y.at(budgetBytes)),
    curve.backwardAt === null || curve.backwardAt === 0
      ? []
      : [
          line(at(curve.backwardAt), TOP, at(curve.backwardAt), BOTTOM + 8, 'mark'),
          label(at(curve.backwardAt) - 6, BOTTOM + 20, 'forward', { anchor: 'end', class: 'soft' }),
          label(at(curve.backwardAt) + 6, BOTTOM + 20, 'backward', { class: 'soft' }),
        ],
    line(peakX, TOP - 16, peakX, y.at(curve.peakBytes), 'mark'),
    h('circle', { cx: px(peakX), cy: px(y.at(curve.peakBytes)), r: 4, class: 'point' }),
    label(middle ? WIDTH / 2 : left ? peakX - 6 : peakX + 6, TOP - (middle ? 22 : 10), named, {
      anchor: middle ? 'middle' : left ? 'end' : 'start',
      class: 'strong',
    }),
    label(LEFT, HEIGHT - 12, `program points (${curve.moments})`),
  );
}

/** The budget as a line at its height; in words where it lies above the drawing. */
function budgetMark(budgetBytes: number, height: number | undefined): Markup | Markup[] {
  const budget = `budget ${bytesText(budgetBytes)}`;
  return height === undefined
    ? label(RIGHT, HEIGHT - 12, `${budget}, above the drawing`, { anchor: 'end' })
    : [line(LEFT, height, RIGHT, height, 'limit'), label(LEFT + 6, height - 6, budget)];
}

/**
 * Steps, one for each point: a point of the drawing is the most of its program points, and nothing
 * lies between two of them.
 */
function areaPath(
  below: readonly number[],
  above: readonly number[],
  x: (k: number) => number,
  y: (bytes: number) => number,
): string {
  const steps = (values: readonly number[]): string[] =>
    values.map((v, k) => `${px(x(k))} ${px(y(v))}H${px(x(k + 1))}`);
  const back = [...below].reverse().map((v, k) => {
    const from = below.length - k;
    return `${px(x(from))} ${px(y(v))}H${px(x(from - 1))}`;
  });
  return `M${steps(above).join('L')}L${back.join('L')}Z`;
}

/** The unit that ticks are round in. */
export function unitOf(bytes: number): number {
  return [2 ** 40, 2 ** 30, 2 ** 20, 2 ** 10].find((u) => bytes >= u) ?? 1;
}
