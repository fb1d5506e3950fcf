/**
 * Draws curves of tokens a second over devices, sequences or batches as an SVG figure; ideal
 * scaling is dotted.
 */

import { countText } from '../../units.ts';
import { h, type Markup } from '../markup.ts';
import { bottomAxis, chart, label, leftAxis, logarithmicFine, px, type Scale } from './chart.ts';

/** A curve of a figure. */
export interface DrawnCurve {
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
  const all = curves.flatMap((c) => c.points);
  const xs = all.map((p) => p.x);
  const rates = all.map((p) => p.tokensPerSecond);
  const [least, most] = [Math.min(...xs), Math.max(...xs)];
  const first = curves.flatMap((c) => c.points.slice(0, 1));
  const ideals = ideal ? first.map((p) => (p.tokensPerSecond * most) / p.x) : [];
  const x = logarithmicFine(least / 1.1, most * 1.1, LEFT, RIGHT);
  const asked: Scale = { at: x.at, ticks: [...new Set(xs)].sort((a, b) => a - b) };
  const y = logarithmicFine(
    Math.min(...rates) / 1.2,
    Math.max(...rates, ...ideals) * 1.2,
    BOTTOM,
    TOP,
  );
  const path = (points: DrawnCurve['points']): string =>
    points
      .map((p, k) => `${k === 0 ? 'M' : 'L'}${px(x.at(p.x))} ${px(y.at(p.tokensPerSecond))}`)
      .join('');
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
    bottomAxis(asked, TOP, BOTTOM, countText),
    leftAxis(y, LEFT, RIGHT, countText),
    curves.map(({ points }, k) => [
      ...(ideal && points.length > 1
        ? [
            h('path', {
              d:
                `M${px(x.at(points[0].x))} ` +
                `${px(y.at(points[0].tokensPerSecond))}L${px(x.at(most))} ` +
                `${px(y.at(ideals[k]))}`,
              class: 'front',
              'stroke-dasharray': '2 4',
            }),
          ]
        : []),
      h('path', { d: path(points), class: 'front' }),
      ...points.map((p) =>
        h(
          'circle',
          {
            cx: px(x.at(p.x)),
            cy: px(y.at(p.tokensPerSecond)),
            r: p.changes ? 8 : 5,
            class: `dot ${p.changes ? 'chosen' : 'fits'}`,
          },
          h('title', {}, p.words),
        ),
      ),
      ...points
        .slice(-1)
        .map((p) =>
          label(x.at(p.x) + 12, y.at(p.tokensPerSecond) + 4, String(k + 1), { class: 'strong' }),
        ),
    ]),
    label((LEFT + RIGHT) / 2, HEIGHT - 14, what, { anchor: 'middle' }),
  );
}
