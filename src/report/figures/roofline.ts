/** Draws the FLOP rate of each layer group over its arithmetic intensity as an SVG figure. */

import { itemAt } from '../../item-at.ts';
import { percentText, secondsText, shareOf } from '../../units.ts';
import type { Roofline } from '../analysis/layers.ts';
import { h, type Markup } from '../markup.ts';
import {
  bottomAxis,
  chart,
  label,
  leftAxis,
  leftTitle,
  line,
  logarithmic,
  placeNumbers,
  px,
  type Scale,
} from './chart.ts';

const [WIDTH, HEIGHT] = [760, 380];
const [LEFT, RIGHT, TOP, BOTTOM] = [112, 724, 34, 326];
const NUMBERED = 10;

/** The layer groups that the picture numbers, largest first; the table has the same numbers. */
export function numberedGroups(roofline: Roofline): Roofline['groups'] {
  return roofline.groups
    .filter((g) => g.flops > 0 && g.bytes > 0 && g.computeSeconds > 0)
    .slice(0, NUMBERED);
}

/** A layer group in the picture. */
interface Dot {
  /** FLOPs per byte, and FLOP/s. */
  readonly x: number;
  readonly y: number;
  readonly seconds: number;
  readonly bound: string;
  readonly name: string;
}

/**
 * FLOP/s that each layer group reaches over its FLOPs per byte, under the two roofs: what the
 * memory feeds, and what the matrix units do. The area of a dot is its compute time.
 */
export function rooflineFigure(roofline: Roofline): Markup {
  const dots = numberedGroups(roofline).map((g): Dot => ({
    x: g.flops / g.bytes,
    y: g.flops / g.computeSeconds,
    seconds: g.computeSeconds,
    bound: g.bound,
    name: g.name,
  }));
  const { flopsPerSecond: peak, bytesPerSecond: rate } = roofline;
  const ridge = peak / rate;
  const { x, y } = scalesOf(dots, ridge, peak);
  const [least, most] = [itemAt(x.ticks, 0), itemAt(x.ticks, x.ticks.length - 1)];
  const start = Math.max(least, itemAt(y.ticks, 0) / rate);
  const longest = Math.max(...dots.map((d) => d.seconds));
  const circles = dots.map((d) => ({
    x: x.at(d.x),
    y: y.at(d.y),
    r: 5 + 9 * Math.sqrt(d.seconds / longest),
  }));
  const total = roofline.groups.reduce((sum, g) => sum + g.computeSeconds, 0);
  return chart(
    {
      id: 'roofline',
      title: 'Roofline of the layer groups',
      description: describe(roofline, dots),
      width: WIDTH,
      height: HEIGHT,
    },
    bottomAxis(x, TOP, BOTTOM, plainNumber),
    leftAxis(y, LEFT, RIGHT, rateText),
    leftTitle('FLOPS reached', TOP, BOTTOM),
    line(x.at(start), y.at(start * rate), x.at(ridge), y.at(peak), 'roof'),
    line(x.at(ridge), y.at(peak), x.at(most), y.at(peak), 'roof'),
    label(RIGHT, TOP - 12, `roof: ${rateText(peak)} (${roofline.unit})`, {
      anchor: 'end',
      class: 'soft',
    }),
    label(LEFT, TOP - 12, `slope: ${(rate / 1e9).toFixed(0)} GB/s of memory`, { class: 'soft' }),
    // Large dots first, so that small ones are not hidden.
    dots
      .map((dot, k) => ({ dot, k }))
      .sort((a, b) => b.dot.seconds - a.dot.seconds)
      .map(({ dot, k }) => drawnDot(dot, k + 1, itemAt(circles, k), total)),
    placeNumbers(circles, { left: LEFT, right: RIGHT, top: TOP, bottom: BOTTOM }),
    label((LEFT + RIGHT) / 2, HEIGHT - 14, 'FLOPs per byte read or written', { anchor: 'middle' }),
  );
}

/** Whole decades that hold the dots and the ridge. */
function scalesOf(dots: readonly Dot[], ridge: number, peak: number): { x: Scale; y: Scale } {
  const xs = [...dots.map((d) => d.x), ridge];
  const ys = [...dots.map((d) => d.y), peak];
  return {
    x: logarithmic(decade(Math.min(...xs), -1), decade(Math.max(...xs), 1), LEFT, RIGHT),
    y: logarithmic(decade(Math.min(...ys), -1), decade(Math.max(...ys) * 1.01, 1), BOTTOM, TOP),
  };
}

function describe(roofline: Roofline, dots: readonly Dot[]): string {
  const { flopsPerSecond: peak, bytesPerSecond: rate, unit } = roofline;
  const groups = dots.map((d, k) => `${k + 1}: ${d.name}, ${secondsText(d.seconds)}`);
  return (
    `FLOP/s reached over FLOPs per byte, both logarithmic. Roofs: ${rateText(peak)} of the ` +
    `matrix units (${unit}) and ${(rate / 1e9).toFixed(0)} GB/s of memory, which ` +
    `meet at ${(peak / rate).toFixed(0)} FLOPs per byte. ${groups.join('; ')}.`
  );
}

function drawnDot(
  dot: Dot,
  number: number,
  { x, y, r }: { readonly x: number; readonly y: number; readonly r: number },
  totalSeconds: number,
): Markup {
  const words =
    `${number}: ${dot.name}: ${secondsText(dot.seconds)} of compute ` +
    `(${percentText(shareOf(dot.seconds, totalSeconds))}), ${rateText(dot.y)} at ` +
    `${dot.x.toPrecision(3)} FLOPs per byte, ${dot.bound}-bound`;
  return h(
    'circle',
    { cx: px(x), cy: px(y), r: px(r), class: `dot ${dot.bound}` },
    h('title', {}, words),
  );
}

/** The power of ten below (-1) or above (1). */
function decade(value: number, side: -1 | 1): number {
  const log = Math.log10(value);
  return 10 ** (side < 0 ? Math.floor(log) : Math.ceil(log));
}

function plainNumber(value: number): string {
  return value >= 1 ? String(Math.round(value)) : value.toPrecision(1);
}

/** FLOP/s as people read them. */
export function rateText(flopsPerSecond: number): string {
  const units: readonly (readonly [number, string])[] = [
    [1e15, 'P'],
    [1e12, 'T'],
    [1e9, 'G'],
    [1e6, 'M'],
  ];
  const found = units.find(([u]) => flopsPerSecond >= u * 0.9995);
  if (found === undefined) return `${flopsPerSecond.toPrecision(3)} FLOPS`;
  return `${Number((flopsPerSecond / found[0]).toPrecision(3))} ${found[1]}FLOPS`;
}
