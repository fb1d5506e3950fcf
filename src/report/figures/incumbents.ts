/** Draws the best plan and the lower bound over the solving time as an SVG figure. */

import { itemAt } from '../../item-at.ts';
import { secondsText } from '../../units.ts';
import type { Incumbents } from '../analysis/incumbents.ts';
import { h, type Markup } from '../markup.ts';
import {
  bottomAxis,
  chart,
  label,
  leftAxis,
  leftTitle,
  linear,
  logarithmicFine,
  px,
} from './chart.ts';

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [760, 300, 84, 744, 40, 250];

type Step = Incumbents['steps'][number];

/**
 * The best plan and the bound while the problem was solved: two stairs that meet where the plan is
 * proven.
 */
export function incumbentsFigure(steps: readonly Step[], seconds: readonly number[]): Markup {
  const values = steps.flatMap((s) => [s.seconds, s.bound].filter((v) => v !== null));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const end = Math.max(...seconds);
  const x = linear(end, LEFT, RIGHT);
  // The axis does not start at 0: the range between plan and bound matters. First plans may be many
  // times as slow as the last.
  const y =
    least > 0
      ? logarithmicFine(0.97 * least, 1.03 * most, BOTTOM, TOP)
      : linear(1.03 * most, BOTTOM, TOP);
  const placed = (of: (step: Step) => number | null): Place[] =>
    steps.flatMap((step, k) => {
      const value = of(step);
      return value === null ? [] : [{ x: x.at(itemAt(seconds, k)), y: y.at(value), k }];
    });
  const bounds = placed((s) => s.bound);
  const plans = placed((s) => s.seconds);
  const last = steps.at(-1);
  return chart(
    {
      id: 'incumbents',
      title: 'Best plan and bound while solving',
      description:
        `${steps.length} steps in ${secondsText(end)}` +
        (typeof last?.seconds === 'number' ? `, ending at ${secondsText(last.seconds)}.` : '.'),
      width: WIDTH,
      height: HEIGHT,
    },
    leftAxis(y, LEFT, RIGHT, secondsText),
    leftTitle('sum of all costs', TOP, BOTTOM),
    bottomAxis(x, TOP, BOTTOM, tick),
    h('path', { d: stairs(bounds), class: 'bound' }),
    h('path', { d: stairs(plans), class: 'incumbent' }),
    steps.map((_, k) => [dots(bounds, k, 'bound'), dots(plans, k, 'incumbent')]),
    h('path', { d: `M${LEFT} 18h26`, class: 'incumbent' }),
    label(LEFT + 34, 22, 'best plan so far'),
    h('path', { d: `M${LEFT + 170} 18h26`, class: 'bound' }),
    label(LEFT + 204, 22, 'proven bound'),
    label((LEFT + RIGHT) / 2, HEIGHT - 8, 'time of the solver', { anchor: 'middle' }),
  );
}

/** Place of the value of a step in the picture. */
interface Place {
  readonly x: number;
  readonly y: number;
  /** The step. */
  readonly k: number;
}

/** A line that keeps each value until the next one. */
function stairs(places: readonly Place[]): string {
  const [first, ...rest] = places;
  if (first === undefined) return '';
  const steps = rest.map(({ x, y }) => `H${px(x)}V${px(y)}`);
  return `M${px(first.x)} ${px(first.y)}${steps.join('')}H${RIGHT}`;
}

function dots(places: readonly Place[], step: number, kind: 'bound' | 'incumbent'): Markup[] {
  return places
    .filter(({ k }) => k === step)
    .map(({ x, y }) => h('circle', { cx: px(x), cy: px(y), r: 3, class: `${kind} dotted` }));
}

function tick(seconds: number): string {
  if (seconds === 0) return '0';
  const [number, unit] = secondsText(seconds).split(' ');
  return `${Number(number)} ${unit}`;
}
