/** Draws options as bars with their ranges, the recommended one marked, as an SVG figure. */

import { h, type Markup } from '../markup.ts';
import { bottomAxis, chart, clipTo, label, line, linear, px, rect, type Scale } from './chart.ts';

/** A bar: its value, and the range around it where measured runs tell. */
export interface RangeBar {
  readonly name: string;
  readonly value: number;
  readonly band: readonly [low: number, high: number] | null;
  readonly isRecommended: boolean;
}

const [WIDTH, LEFT, RIGHT, TOP, STEP] = [560, 230, 530, 14, 34];
/** Pixels of a name: the type of this figure is larger than that of others. */
const NAME = (LEFT - 16) / 1.15;

/** One bar below another, from zero; `what` names the axis. */
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
    bars.map((bar, k) => {
      const y = TOP + STEP * k + 7;
      const { name, value, band, isRecommended } = bar;
      const kind = `range ${isRecommended ? 'chosen' : ''}`;
      return [
        label(LEFT - 10, y + 14, clipTo(name, NAME), {
          anchor: 'end',
          ...(isRecommended ? { class: 'strong' } : {}),
        }),
        rect(LEFT, y, x.at(value) - LEFT, STEP - 14, kind, words(bar, text)),
        ...(isRecommended ? [recommendedMark(bar, x, y + 15)] : []),
        ...(band === null ? [] : whisker(x.at(band[0]), x.at(band[1]), y + (STEP - 14) / 2)),
      ];
    }),
    label((LEFT + RIGHT) / 2, bottom + 44, what, { anchor: 'middle' }),
  );
}

/** Pixels of the word beside the recommended bar. */
const MARK = 100;

/** In the bar where the range leaves room for the word, else behind bar and range. */
function recommendedMark({ value, band }: RangeBar, x: Scale, y: number): Markup {
  const free = x.at(Math.min(value, band?.[0] ?? value)) - LEFT;
  const end = x.at(Math.max(value, band?.[1] ?? value));
  return free >= MARK || end + MARK > WIDTH
    ? label(LEFT + 8, y, 'recommended', { class: 'ontask' })
    : label(end + 10, y, 'recommended', { class: 'strong' });
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
