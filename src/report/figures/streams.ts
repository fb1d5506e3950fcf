/** Draws the use of compute and communication streams over the step as an SVG figure. */

import { itemAt } from '../../item-at.ts';
import { percentText, secondsText, shareOf } from '../../units.ts';
import type { CloseUp, Streams } from '../analysis/streams.ts';
import { h, type Markup } from '../markup.ts';
import { bottomAxis, chart, clipTo, label, line, linear, px, rect } from './chart.ts';

const WIDTH = 760;
const [LEFT, RIGHT, TOP] = [128, 744, 30];
const LANE = 54;

/**
 * The step, a lane for each stream: the height is the share of each interval in which the stream
 * works.
 */
export function streamsFigure(streams: Streams): Markup {
  const x = linear(streams.seconds, LEFT, RIGHT);
  const bottom = TOP + streams.streams.length * LANE;
  const lanes = streams.streams.map(({ name, busy, busySeconds }, s) => {
    const base = TOP + (s + 1) * LANE - 10;
    return [
      label(LEFT - 10, base - 20, name, { anchor: 'end' }),
      label(LEFT - 10, base - 4, percentText(shareOf(busySeconds, streams.seconds)), {
        anchor: 'end',
        class: 'soft',
      }),
      h(
        'path',
        { d: busyPath(busy, base), class: `area ${s === 0 ? 'compute' : 'communication'}` },
        h(
          'title',
          {},
          `${name}: busy ${secondsText(busySeconds)} of ${secondsText(streams.seconds)}`,
        ),
      ),
      line(LEFT, base, RIGHT, base, 'grid'),
    ];
  });
  const { backwardAt } = streams;
  return chart(
    {
      id: 'streams',
      title: 'The step on its streams',
      description:
        streams.streams.map((s) => `${s.name} busy ${secondsText(s.busySeconds)}`).join(', ') +
        ` of a step of ${secondsText(streams.seconds)}.`,
      width: WIDTH,
      height: bottom + 40,
    },
    bottomAxis(x, TOP, bottom, timeTick),
    lanes,
    backwardAt === null
      ? []
      : [
          line(x.at(backwardAt), TOP - 14, x.at(backwardAt), bottom, 'mark'),
          label(x.at(backwardAt) + 6, TOP - 6, 'backward', { class: 'soft' }),
          label(x.at(backwardAt) - 6, TOP - 6, 'forward', { anchor: 'end', class: 'soft' }),
        ],
    label((LEFT + RIGHT) / 2, bottom + 34, 'time in the step', { anchor: 'middle' }),
  );
}

function busyPath(busy: readonly number[], base: number): string {
  const width = (RIGHT - LEFT) / busy.length;
  const height = LANE - 20;
  const parts: string[] = [`M${LEFT} ${px(base)}`];
  // Equal neighbours are one step, which keeps the path short.
  for (let k = 0; k < busy.length; k++) {
    if (k === 0 || busy[k] !== busy[k - 1]) parts.push(`V${px(base - itemAt(busy, k) * height)}`);
    if (k === busy.length - 1 || busy[k + 1] !== busy[k])
      parts.push(`H${px(LEFT + (k + 1) * width)}`);
  }
  return `${parts.join('')}V${px(base)}Z`;
}

/** A stretch of the step task by task; a task that is wide enough shows its name. */
export function closeUpFigure(streams: Streams, closeUp: CloseUp): Markup {
  const span = closeUp.to - closeUp.from;
  const scale = linear(span, LEFT, RIGHT);
  const x = (time: number): number => scale.at(time - closeUp.from);
  const bottom = TOP + streams.streams.length * LANE;
  return chart(
    {
      id: 'close-up',
      title: 'A stretch of the forward pass',
      description:
        `From ${secondsText(closeUp.from)} to ${secondsText(closeUp.to)}: ` +
        `${closeUp.tasks.length} tasks.`,
      width: WIDTH,
      height: bottom + 40,
    },
    bottomAxis(scale, TOP, bottom, timeTick),
    streams.streams.map(({ name }, s) =>
      label(LEFT - 10, TOP + (s + 1) * LANE - 26, name, { anchor: 'end' }),
    ),
    closeUp.tasks.map(({ stream, name, start, end }) => {
      const top = TOP + stream * LANE + 10;
      const width = x(end) - x(start);
      const shown = clipTo(name, width - 6);
      return [
        rect(
          x(start),
          top,
          Math.max(1, width - 0.6),
          LANE - 22,
          `task ${stream === 0 ? 'compute' : 'communication'}`,
          `${name}: ${secondsText(end - start)}`,
        ),
        ...(shown === '' ? [] : [label(x(start) + 4, top + 20, shown, { class: 'ontask' })]),
      ];
    }),
    label((LEFT + RIGHT) / 2, bottom + 34, `time since ${secondsText(closeUp.from)}`, {
      anchor: 'middle',
    }),
  );
}

function timeTick(seconds: number): string {
  if (seconds === 0) return '0';
  const [number, unit] = secondsText(seconds).split(' ');
  return `${Number(number)} ${unit}`;
}
