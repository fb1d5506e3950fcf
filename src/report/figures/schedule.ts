/** Draws a pipeline schedule as an SVG figure; a long one as its beginning and its end. */

import { itemAt } from '../../item-at.ts';
import { type PassSpan, playPipeline, type StageSeconds } from '../../simulate/pipeline/play.ts';
import {
  type PassKind,
  type PipelineSchedule,
  splitsBackward,
} from '../../simulate/pipeline/schedules.ts';
import { countedText, secondsText } from '../../units.ts';
import type { Markup } from '../markup.ts';
import { bottomAxis, chart, label, linear, rect } from './chart.ts';

const [WIDTH, LEFT, RIGHT, TOP] = [860, 84, 848, 40];
/**
 * Passes of a device in one drawing; of longer schedules the beginning and the end are drawn, where
 * the bubbles are.
 */
const MOST_PASSES = 150;
const PASSES_OF_AN_END = 80;
/** Devices in one drawing. */
const MOST_DEVICES = 64;

/** A schedule to draw. */
interface DrawnSchedule {
  readonly schedule: PipelineSchedule;
  readonly devices: number;
  readonly microbatches: number;
  readonly chunks: number;
  /** By chunk * devices + device. */
  readonly stages: readonly StageSeconds[];
  readonly hopSeconds: readonly number[];
  /** By device: what follows its last pass. */
  readonly afterSeconds: readonly number[];
}

interface Box {
  readonly device: number;
  readonly kind: PassKind | 'sum';
  readonly microbatch: number;
  readonly chunk: number;
  readonly start: number;
  readonly end: number;
}

/**
 * Who works on what when: one drawing, or the beginning and the end of a long schedule, each with
 * its caption.
 */
export function scheduleFigures(
  drawn: DrawnSchedule,
): { readonly caption: string; readonly svg: Markup }[] {
  const { schedule, devices, microbatches, chunks, stages, hopSeconds, afterSeconds } = drawn;
  const run = playPipeline(
    schedule,
    { devices, microbatches, ...(chunks > 1 ? { chunks } : {}) },
    { stages, hopSeconds },
  );
  const boxes = run.devices.flatMap(({ spans }, device) => {
    const seconds = itemAt(afterSeconds, device);
    return [
      ...spans.map((span: PassSpan): Box => ({ ...span, device })),
      ...(seconds > 0 ? [after(spans, device, seconds)] : []),
    ];
  });
  const end = Math.max(...boxes.map((b) => b.end));
  const shown = boxes.filter((b) => b.device < MOST_DEVICES);
  const some = devices > MOST_DEVICES ? `The first ${MOST_DEVICES} of ${devices} devices. ` : '';
  const shades = chunks > 1 ? ' Lighter: every second chunk of a device.' : '';
  const what = `${some}Empty space between the passes is the bubble.${shades}`;
  if (itemAt(run.devices, 0).spans.length <= MOST_PASSES)
    return [
      {
        caption: `The schedule of one step. ${what}`,
        svg: figure(drawn, shown, 0, end, 'schedule'),
      },
    ];
  const span = windowOf(shown, end, Math.min(devices, MOST_DEVICES) * PASSES_OF_AN_END);
  const first = shown.filter((b) => b.start < span);
  const last = shown.filter((b) => b.end > end - span);
  return [
    {
      caption:
        `How the step begins: its first ${secondsText(span)} of ${secondsText(end)}. ` + what,
      svg: figure(drawn, first, 0, span, 'schedule-begin'),
    },
    {
      caption: `How it ends: the last ${secondsText(span)}.`,
      svg: figure(drawn, last, end - span, end, 'schedule-end'),
    },
  ];
}

function after(spans: readonly PassSpan[], device: number, seconds: number): Box {
  const start = spans.at(-1)?.end ?? 0;
  return { device, kind: 'sum', microbatch: 0, chunk: 0, start, end: start + seconds };
}

/** The longest beginning, and as long an end, with few enough passes. */
function windowOf(boxes: readonly Box[], end: number, passes: number): number {
  const starts = boxes.map((b) => b.start).sort((a, b) => a - b);
  const ends = boxes.map((b) => end - b.end).sort((a, b) => a - b);
  return Math.min(itemAt(starts, passes), itemAt(ends, passes), end);
}

const NAMES: Readonly<Record<Box['kind'], string>> = {
  F: 'forward',
  B: 'backward',
  W: 'weight gradients',
  sum: 'sums of gradients',
};

function figure(
  drawn: DrawnSchedule,
  boxes: readonly Box[],
  from: number,
  to: number,
  id: string,
): Markup {
  const devices = Math.min(drawn.devices, MOST_DEVICES);
  const lane = devices <= 16 ? 30 : 18;
  const bottom = TOP + devices * lane;
  const scale = linear(to - from, LEFT, RIGHT);
  const x = (time: number): number => scale.at(Math.min(to, Math.max(from, time)) - from);
  const chunks = drawn.chunks > 1 ? ` of ${drawn.chunks} chunks each` : '';
  return chart(
    {
      id,
      title: 'The pipeline schedule',
      description:
        `${drawn.schedule}: ${countedText(drawn.microbatches, 'microbatch', 'microbatches')} ` +
        `on ${drawn.devices} devices${chunks}, from ` +
        `${secondsText(from)} to ${secondsText(to)}.`,
      width: WIDTH,
      height: bottom + 40,
    },
    bottomAxis(scale, TOP, bottom, tickText),
    passKey(drawn, boxes),
    Array.from({ length: devices }, (_, i) =>
      label(LEFT - 10, TOP + i * lane + lane / 2 + 4, `device ${i}`, { anchor: 'end' }),
    ),
    boxes.map((box) => drawnPass(box, drawn.chunks > 1, lane, x)),
    label(
      (LEFT + RIGHT) / 2,
      bottom + 34,
      from === 0 ? 'time in the step' : `time since ${secondsText(from)}`,
      { anchor: 'middle' },
    ),
  );
}

/** The colours of the kinds of passes that are drawn. */
function passKey({ schedule }: DrawnSchedule, boxes: readonly Box[]): Markup[][] {
  const kinds = (['F', 'B', 'W', 'sum'] as const).filter((kind) =>
    boxes.some((b) => b.kind === kind),
  );
  return kinds.map((kind, k) => [
    rect(LEFT + k * 165, 8, 14, 14, `pass ${kind.toLowerCase()}`),
    label(
      LEFT + k * 165 + 20,
      20,
      splitsBackward(schedule) && kind === 'B' ? 'gradients of inputs' : NAMES[kind],
    ),
  ]);
}

/** A pass in the lane of its device, with the number of its microbatch where that has room. */
function drawnPass(
  box: Box,
  hasChunks: boolean,
  lane: number,
  x: (time: number) => number,
): Markup[] {
  const [left, right] = [x(box.start), x(box.end)];
  const top = TOP + box.device * lane + 2;
  const number = String(box.microbatch);
  const chunk = hasChunks ? `, chunk ${box.chunk}` : '';
  const name =
    box.kind === 'sum' ? NAMES.sum : `${NAMES[box.kind]}, microbatch ${box.microbatch}${chunk}`;
  const shade = hasChunks && box.chunk % 2 === 1 ? ' odd' : '';
  const pass = rect(
    left,
    top,
    Math.max(0.6, right - left - 0.6),
    lane - 4,
    `pass ${box.kind.toLowerCase()}${shade}`,
    `${name}: ${secondsText(box.end - box.start)}`,
  );
  if (box.kind === 'sum' || right - left < 6 + 7 * number.length) return [pass];
  const place = { anchor: 'middle', class: 'ontask' } as const;
  return [pass, label((left + right) / 2, top + lane / 2 + 2.5, number, place)];
}

function tickText(seconds: number): string {
  if (seconds === 0) return '0';
  const [number, unit] = secondsText(seconds).split(' ');
  return `${Number(number)} ${unit}`;
}
