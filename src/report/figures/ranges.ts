/** Draws options as bars with their ranges, the recommended one marked, as an SVG figure. */

import { h, type Markup } from '../markup.ts';
import {
  bottomAxis,
  chart,
  clipTo,
  label,
  leftTitle,
  line,
  linear,
  px,
  rect,
  type Scale,
} from './chart.ts';

/** A bar: its value, and the range around it where measured runs tell. */
export interface RangeBar {
  readonly name: string;
  readonly value: number;
  readonly band: readonly [low: number, high: number] | null;
  readonly isRecommended: boolean;
}

const [WIDTH, LEFT, RIGHT, TOP, STEP] = [460, 40, 436, 14, 50];
/** Pixels of the word beside the name of the recommended option. */
const MARK = 100;

/** One bar below another, from zero, each below its name; `what` names the axis. */
export function rangeFigure(
  bars: readonly RangeBar[],
  what: string,
  text: (value: number) => string,
): Markup {
  const most = Math.max(...bars.flatMap(({ value, band }) => [value, band?.[1] ?? 0]));
  const x = linear(most * 1.05, LEFT, RIGHT, 1, 4);
  const bottom = TOP + STEP * bars.length;
  return chart(
    {
      id: 'ranges',
      title: `Options by ${what}`,
      description: bars.map((bar) => words(bar, text)).join('; '),
      width: WIDTH,
      height: bottom + 56,
      isFluid: true,
    },
    bottomAxis(x, TOP, bottom, text),
    leftTitle('option', TOP, bottom),
    bars.map((bar, k) => barOf(bar, TOP + STEP * k, x, text)),
    label((LEFT + RIGHT) / 2, bottom + 44, what, { anchor: 'middle' }),
  );
}

function barOf(bar: RangeBar, top: number, x: Scale, text: (value: number) => string): Markup[] {
  const { name, value, band, isRecommended } = bar;
  const room = (RIGHT - LEFT - (isRecommended ? MARK : 0)) / 1.15;
  const [y, height] = [top + 20, STEP - 30];
  return [
    label(LEFT + 4, top + 14, clipTo(name, room), isRecommended ? { class: 'strong' } : {}),
    ...(isRecommended
      ? [label(RIGHT, top + 14, 'recommended', { anchor: 'end', class: 'strong' })]
      : []),
    rect(
      LEFT,
      y,
      x.at(value) - LEFT,
      height,
      `range ${isRecommended ? 'chosen' : ''}`,
      words(bar, text),
    ),
    ...(band === null ? [] : whisker(x.at(band[0]), x.at(band[1]), y + height / 2)),
  ];
}

function words({ name, value, band }: RangeBar, text: (value: number) => string): string {
  const range = band === null ? '' : ` (${text(band[0])} to ${text(band[1])})`;
  return `${name}: ${text(value)}${range}`;
}

/** A line from the low to the high end, closed by a stroke at each. */
function whisker(low: number, high: number, y: number): Markup[] {
  return [
    h('path', {
      d: `M${px(low)} ${px(y - 6)}V${px(y + 6)}M${px(high)} ${px(y - 6)}V${px(y + 6)}`,
      class: 'whisker',
    }),
    line(low, y, high, y, 'whisker'),
  ];
}
