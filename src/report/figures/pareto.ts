/** Draws plans as points of memory and step time as an SVG figure. */

import { itemAt } from '../../item-at.ts';
import { bytesText, secondsText } from '../../units.ts';
import { h, type Markup } from '../markup.ts';
import {
  bottomAxis,
  chart,
  label,
  leftAxis,
  leftTitle,
  line,
  linear,
  logarithmicFine,
  placeNumbers,
  px,
  type Scale,
} from './chart.ts';
import { unitOf } from './memory-curve.ts';

/** A plan as a point: memory across, step time up. */
export interface PlanPoint {
  readonly name: string;
  readonly seconds: number;
  readonly bytes: number;
  readonly fits: boolean;
  /** The plan that the report is about, or the best of a comparison. */
  readonly chosen?: boolean;
  /** True where no other fitting plan is better in both. */
  readonly front: boolean;
}

const [WIDTH, HEIGHT] = [760, 390];
const [LEFT, RIGHT, TOP, BOTTOM] = [84, 724, 34, 330];
/** Times the largest plan, from which on a budget is not drawn. */
const FAR = 4;
/**
 * The multiple of the fastest plan from which on a plan is drawn at the upper edge: one slow plan
 * would press all others together.
 */
const SLOW = 3;
/** Times the smallest plan, from which on the axis of memory is logarithmic. */
const WIDE = 6;

/** The numbers that an axis shows: the positive ones, or where there are none, about one `unit`. */
function positiveOf(numbers: readonly number[], unit: number): readonly number[] {
  const positive = numbers.filter((n) => n > 0);
  return positive.length > 0 ? positive : [unit];
}

function pointText({ name, seconds, bytes, fits }: PlanPoint, k: number): string {
  const words = `${k + 1}: ${name}, ${secondsText(seconds)}, ${bytesText(bytes)}`;
  return fits ? words : `${words}, does not fit`;
}

/** The part of the plane that is drawn; slower plans are at its edge. */
interface Plane {
  readonly x: Scale;
  readonly y: Scale;
  readonly fastest: number;
  readonly slowest: number;
  readonly leastBytes: number;
  /** The budget is in the plane. */
  readonly isNear: boolean;
}

function planeOf(points: readonly PlanPoint[], budgetBytes: number): Plane {
  const times = positiveOf(
    points.map((p) => p.seconds),
    1e-6,
  );
  const fastest = Math.min(...times);
  const slowest = Math.max(...times.filter((s) => s <= SLOW * fastest));
  const bytes = positiveOf(
    points.map((p) => p.bytes),
    1,
  );
  const [least, widest] = [Math.min(...bytes), Math.max(...bytes)];
  // A budget that is far from all plans would press them together.
  const isNear = budgetBytes <= FAR * widest;
  const most = isNear ? Math.max(budgetBytes, widest) : widest;
  const room = (slowest / fastest) ** 0.12;
  const x =
    most > WIDE * least
      ? logarithmicBytes(least / 1.3, 1.15 * most, LEFT, RIGHT)
      : linear(1.05 * most, LEFT, RIGHT, unitOf(most));
  const y = logarithmicFine(fastest / room / 1.01, slowest * room * 1.02, BOTTOM, TOP + 14);
  return { x, y, fastest, slowest, leastBytes: least, isNear };
}

/**
 * Seconds (logarithmic) over memory, as the two are called; numbers are those of the table.
 */
export function paretoFigure(
  points: readonly PlanPoint[],
  budgetBytes: number,
  [what, seconds]: readonly [memory: string, seconds: string],
): Markup {
  const plane = planeOf(points, budgetBytes);
  const { x, y, slowest, isNear } = plane;
  const isSlow = (p: PlanPoint): boolean => p.seconds > slowest;
  const front = points.filter((p) => p.front).sort((a, b) => a.bytes - b.bytes);
  const dots = points.map((p) => ({
    x: x.at(Math.max(p.bytes, plane.leastBytes)),
    y: isSlow(p) ? TOP : y.at(Math.max(p.seconds, plane.fastest)),
    r: p.chosen === true ? 8 : 6,
  }));
  const clipped = { ...y, at: (s: number) => (s > slowest ? TOP : y.at(s)) };
  return chart(
    {
      id: 'pareto',
      title: 'Step time against memory',
      description: `${points.map(pointText).join('; ')}. Budget ${bytesText(budgetBytes)}.`,
      width: WIDTH,
      height: HEIGHT,
    },
    bottomAxis(x, TOP, BOTTOM, bytesText),
    leftAxis(y, LEFT, RIGHT, secondsText),
    leftTitle(seconds, TOP, BOTTOM),
    points.some(isSlow) ? edgeMark(slowest, isNear && x.at(budgetBytes) < (LEFT + RIGHT) / 2) : [],
    budgetMark(budgetBytes, isNear ? x.at(budgetBytes) : undefined),
    front.length > 1 ? [h('path', { d: stairs(front, x, clipped), class: 'front' })] : [],
    points.map((p, k) => drawnPoint(p, k, itemAt(dots, k))),
    points.flatMap((p, k) => (p.chosen === true ? [chosenMark(itemAt(dots, k))] : [])),
    placeNumbers(dots, { left: LEFT, right: WIDTH, top: TOP, bottom: BOTTOM }),
    label((LEFT + RIGHT) / 2, HEIGHT - 14, what, { anchor: 'middle' }),
  );
}

function drawnPoint(
  point: PlanPoint,
  k: number,
  { x, y, r }: { readonly x: number; readonly y: number; readonly r: number },
): Markup {
  const kind = point.chosen === true ? 'chosen' : point.fits ? 'fits' : 'over';
  const words =
    `${k + 1}: ${point.name}: ${secondsText(point.seconds)}, ` +
    `${bytesText(point.bytes)}${point.fits ? '' : ', does not fit'}`;
  return h('circle', { cx: px(x), cy: px(y), r, class: `dot ${kind}` }, h('title', {}, words));
}

/** The word beside the dot of the recommended plan. */
function chosenMark({ x, y }: { readonly x: number; readonly y: number }): Markup {
  const isRight = x > (LEFT + RIGHT) / 2;
  return label(x + (isRight ? -18 : 18), y + 22, 'recommended', {
    anchor: isRight ? 'end' : 'start',
    class: 'strong',
  });
}

/**
 * Logarithmic, with ticks at powers of two: every one, or every second, fourth ... where they would
 * touch.
 */
function logarithmicBytes(least: number, most: number, from: number, to: number): Scale {
  const { at } = logarithmicFine(least, most, from, to);
  const [low, high] = [Math.ceil(Math.log2(least)), Math.floor(Math.log2(most))];
  const step = Math.max(1, Math.ceil((high - low) / 9));
  return {
    at,
    ticks: Array.from(
      { length: Math.floor((high - low) / step) + 1 },
      (_, k) => 2 ** (low + k * step),
    ),
  };
}

/**
 * The upper edge, at which slower plans are drawn; its words are on the other side than those of
 * the budget.
 */
function edgeMark(slowest: number, isRight: boolean): Markup[] {
  const text = `at this edge: slower than ${secondsText(slowest)}`;
  return [
    line(LEFT, TOP, RIGHT, TOP, 'mark'),
    label(isRight ? RIGHT : LEFT, TOP - 12, text, {
      class: 'soft',
      ...(isRight ? { anchor: 'end' } : {}),
    }),
  ];
}

/** The budget as a line; only said where it is to the right of the drawing. */
function budgetMark(budgetBytes: number, at: number | undefined): Markup[] {
  const text = `budget ${bytesText(budgetBytes)}`;
  if (at === undefined)
    return [label(RIGHT, TOP - 8, `${text}, to the right of the drawing`, { anchor: 'end' })];
  const isRight = at > (LEFT + RIGHT) / 2;
  return [
    line(at, TOP - 6, at, BOTTOM, 'limit'),
    label(at + (isRight ? -6 : 6), TOP - 8, text, { anchor: isRight ? 'end' : 'start' }),
  ];
}

/** Everything above and to the right of these steps is worse than some plan on them. */
function stairs(front: readonly PlanPoint[], x: Scale, y: Scale): string {
  const at = (p: PlanPoint): string => px(y.at(p.seconds)).toString();
  const [first, ...rest] = front;
  if (first === undefined) return '';
  return (
    `M${px(x.at(first.bytes))} ` +
    `${at(first)}${rest.map((p) => `H${px(x.at(p.bytes))}V${at(p)}`).join('')}`
  );
}
