/** Draws the best plan and the lower bound over the solving time as an SVG figure. */

import { secondsText } from '../../units.ts';
import type { Incumbents } from '../analysis/incumbents.ts';
import { h, type Markup } from '../markup.ts';
import { bottomAxis, chart, label, leftAxis, linear, logarithmicFine, px } from './chart.ts';

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [760, 300, 84, 744, 40, 250];

/**
 * The best plan and the bound while the problem was solved: two stairs that meet where the plan is
 * proven.
 */
export function incumbentsFigure(steps: Incumbents['steps'], seconds: readonly number[]): Markup {
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
  const { at } = y;
  const stairs = (of: (step: Incumbents['steps'][number]) => number | null): string => {
    const parts: string[] = [];
    steps.forEach((step, k) => {
      const value = of(step);
      if (value === null) return;
      const left = px(x.at(seconds[k]));
      parts.push(parts.length === 0 ? `M${left} ${px(at(value))}` : `H${left}V${px(at(value))}`);
    });
    return parts.length === 0 ? '' : `${parts.join('')}H${RIGHT}`;
  };
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
    bottomAxis(x, TOP, BOTTOM, tick),
    h('path', { d: stairs((s) => s.bound), class: 'bound' }),
    h('path', { d: stairs((s) => s.seconds), class: 'incumbent' }),
    steps.map((s, k) => [
      ...(s.bound === null
        ? []
        : [
            h('circle', {
              cx: px(x.at(seconds[k])),
              cy: px(at(s.bound)),
              r: 3,
              class: 'bound dotted',
            }),
          ]),
      ...(s.seconds === null
        ? []
        : [
            h('circle', {
              cx: px(x.at(seconds[k])),
              cy: px(at(s.seconds)),
              r: 3,
              class: 'incumbent dotted',
            }),
          ]),
    ]),
    h('path', { d: `M${LEFT} 18h26`, class: 'incumbent' }),
    label(LEFT + 34, 22, 'best plan so far'),
    h('path', { d: `M${LEFT + 170} 18h26`, class: 'bound' }),
    label(LEFT + 204, 22, 'proven bound'),
    label((LEFT + RIGHT) / 2, HEIGHT - 8, 'time of the solver', { anchor: 'middle' }),
  );
}

function tick(seconds: number): string {
  if (seconds === 0) return '0';
  const [number, unit] = secondsText(seconds).split(' ');
  return `${Number(number)} ${unit}`;
}
