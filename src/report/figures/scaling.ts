/**
 * Draws curves of tokens a second over devices, sequences or batches as an SVG figure; ideal
 * scaling is dotted.
 */

import { itemAt } from '../../item-at.ts';
import { countText } from '../../units.ts';
import { h, type Markup } from '../markup.ts';
import {
  bottomAxis,
  chart,
  clipTo,
  label,
  leftAxis,
  leftTitle,
  logarithmicFine,
  px,
  type Scale,
} from './chart.ts';

/** A curve of a figure. */
interface DrawnCurve {
  readonly name: string;
  readonly points: readonly {
    readonly x: number;
    readonly tokensPerSecond: number;
    readonly words: string;
    readonly changes: boolean;
  }[];
}

const [WIDTH, HEIGHT] = [760, 370];
const [LEFT, RIGHT, TOP, BOTTOM] = [92, 720, 24, 310];
/** Colours of curves in the style sheet; names at their ends tell them apart as well. */
const COLOURS = 4;
/** Pixels of a name. */
const NAME = 360;

/** The two axes of a figure of curves. */
interface Axes {
  readonly x: Scale;
  readonly y: Scale;
  /** The right end of a line of ideal scaling. */
  readonly most: number;
}

/**
 * Both axes logarithmic, so that ideal scaling is a straight line; larger dots: where the best plan
 * is another than before.
 *
 * @param ideal whether twice the devices should do twice the tokens
 */
export function scalingFigure(
  curves: readonly DrawnCurve[],
  what: string,
  id: string,
  ideal: boolean,
): Markup {
  const axes = axesOf(curves, ideal);
  const names = shortNames(curves.map(({ name }) => name));
  return chart(
    {
      id,
      title: `Tokens a second over ${what}`,
      description: curves
        .map((c, k) => `${k + 1}: ${c.name}: ${c.points.map((p) => p.words).join('; ')}`)
        .join('. '),
      width: WIDTH,
      height: HEIGHT,
    },
    bottomAxis(axes.x, TOP, BOTTOM, countText),
    leftAxis(axes.y, LEFT, RIGHT, countText),
    leftTitle('tokens a second', TOP, BOTTOM),
    curves.map(({ points }, k) => [
      ...(ideal && points.length > 1 ? [idealLine(itemAt(points, 0), axes)] : []),
      curveLine(points, axes, k),
      ...points.map((p) => curveDot(p, axes)),
    ]),
    curves.map(({ points }, k) =>
      points.slice(-1).map((p) => curveName(p, itemAt(names, k), k, { axes, curves })),
    ),
    label((LEFT + RIGHT) / 2, HEIGHT - 14, what, { anchor: 'middle' }),
  );
}

type Point = DrawnCurve['points'][number];

function axesOf(curves: readonly DrawnCurve[], ideal: boolean): Axes {
  const all = curves.flatMap((c) => c.points);
  const xs = all.map((p) => p.x);
  const rates = all.map((p) => p.tokensPerSecond);
  const [least, most] = [Math.min(...xs), Math.max(...xs)];
  const firsts = curves.flatMap((c) => c.points.slice(0, 1));
  const ideals = ideal ? firsts.map((p) => idealRate(p, most)) : [];
  const x = logarithmicFine(least / 1.1, most * 1.1, LEFT, RIGHT);
  const y = logarithmicFine(
    Math.min(...rates) / 1.2,
    Math.max(...rates, ...ideals) * 1.2,
    BOTTOM,
    TOP,
  );
  return { x: { at: x.at, ticks: [...new Set(xs)].sort((a, b) => a - b) }, y, most };
}

/** Tokens a second at another place of the axis, in proportion to it. */
function idealRate({ x, tokensPerSecond }: Point, at: number): number {
  return (tokensPerSecond * at) / x;
}

function idealLine(first: Point, { x, y, most }: Axes): Markup {
  const from = `M${px(x.at(first.x))} ${px(y.at(first.tokensPerSecond))}`;
  const to = `L${px(x.at(most))} ${px(y.at(idealRate(first, most)))}`;
  return h('path', { d: from + to, class: 'front', 'stroke-dasharray': '2 4' });
}

function curveLine(points: readonly Point[], { x, y }: Axes, k: number): Markup {
  const steps = points.map(
    (p, k) => `${k === 0 ? 'M' : 'L'}${px(x.at(p.x))} ${px(y.at(p.tokensPerSecond))}`,
  );
  return h('path', { d: steps.join(''), class: `curve c${k % COLOURS}` });
}

function curveDot(point: Point, { x, y }: Axes): Markup {
  const { tokensPerSecond, words, changes } = point;
  return h(
    'circle',
    {
      cx: px(x.at(point.x)),
      cy: px(y.at(tokensPerSecond)),
      r: changes ? 8 : 5,
      class: `dot ${changes ? 'chosen' : 'fits'}`,
    },
    h('title', {}, words),
  );
}

/** Names without the parts that all of them have. */
function shortNames(names: readonly string[]): string[] {
  const parts = names.map((name) => name.split(', '));
  return parts.map((own, k) => {
    const left = own.filter((part) => !parts.every((other) => other.includes(part)));
    return left.length === 0 ? itemAt(names, k) : left.join(', ');
  });
}

/** Pixels between the names of two curves that end side by side. */
const LINE = 15;

/**
 * The name of a curve at its right end; names of curves that end side by side stand below one
 * another, in the order of the curves.
 */
function curveName(
  last: Point,
  name: string,
  k: number,
  { axes: { x, y }, curves }: { readonly axes: Axes; readonly curves: readonly DrawnCurve[] },
): Markup {
  const ends = curves.map(({ points }) => points.at(-1)?.tokensPerSecond ?? 0);
  const order = ends.map((_, i) => i).sort((a, b) => itemAt(ends, b) - itemAt(ends, a));
  let at = -Infinity;
  let own = 0;
  for (const i of order) {
    at = Math.max(at + LINE, y.at(itemAt(ends, i)) - 12);
    if (i === k) own = at;
  }
  return label(x.at(last.x) - 8, own, clipTo(name, NAME), {
    anchor: 'end',
    class: `strong n${k % COLOURS}`,
  });
}
