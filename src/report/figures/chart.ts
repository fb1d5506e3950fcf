/** Frame, scales and ticks that every figure of a report uses, as SVG elements. */

import { defined } from '../../defined.ts';
import { type Child, h, type Markup } from '../markup.ts';

/**
 * Shared by the drawings of a report: a frame with title and description for screen readers,
 * scales, ticks. Elements are made by `h`, so that no name from a file can become markup. Colours
 * are those of the page, by class, in light and dark.
 */
interface Frame {
  /** Unique in the page. */
  readonly id: string;
  readonly title: string;
  /** A description of the drawing, in one or two sentences. */
  readonly description: string;
  readonly width: number;
  readonly height: number;
  /**
   * True if parts of it can be chosen: then it is not an image, because screen readers hide the
   * parts of an image.
   */
  readonly isChosenFrom?: boolean;
  /** True if it is as narrow as a phone, and never scrolls. */
  readonly isFluid?: boolean;
}

export function chart(
  { id, title, description, width, height, isChosenFrom, isFluid }: Frame,
  ...body: readonly Child[]
): Markup {
  return h(
    'svg',
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      class: isFluid === true ? 'chart fluid' : 'chart',
      role: isChosenFrom === true ? 'group' : 'img',
      'aria-labelledby': `${id}-title ${id}-text`,
    },
    h('title', { id: `${id}-title` }, title),
    h('desc', { id: `${id}-text` }, description),
    body,
  );
}

/** A mapping of numbers to pixels. */
export interface Scale {
  readonly at: (value: number) => number;
  readonly ticks: readonly number[];
}

/**
 * From 0 to at least `most`, with round ticks. `unit`: ticks are round in this unit, such as 2^30
 * for GiB.
 */
export function linear(most: number, from: number, to: number, unit = 1, wanted = 5): Scale {
  const top = most > 0 ? most : unit;
  const step = roundStep(top / unit / wanted);
  const ticks: number[] = [];
  for (let k = 0; k * step * unit <= top * 1.0001; k++) ticks.push(k * step * unit);
  return { at: (value) => from + (value / top) * (to - from), ticks };
}

/** Powers of ten from `least` to `most`. */
export function logarithmic(least: number, most: number, from: number, to: number): Scale {
  const [low, high] = [Math.log10(least), Math.log10(most)];
  const ticks: number[] = [];
  for (let k = Math.ceil(low - 1e-9); k <= high + 1e-9; k++) ticks.push(10 ** k);
  const span = high > low ? high - low : 1;
  return { at: (value) => from + ((Math.log10(value) - low) / span) * (to - from), ticks };
}

/**
 * Logarithmic, with ticks at 1, 2 and 5 of every power of ten that is between; round steps where
 * that is less than a decade.
 */
export function logarithmicFine(least: number, most: number, from: number, to: number): Scale {
  const { at } = logarithmic(least, most, from, to);
  const ticks: number[] = [];
  if (most < 4 * least) {
    const step = roundStep((most - least) / 5);
    for (let k = Math.ceil(least / step); k * step <= most; k++)
      ticks.push(Number((k * step).toPrecision(12)));
    return { at, ticks };
  }
  for (let k = Math.floor(Math.log10(least)); k <= Math.ceil(Math.log10(most)); k++)
    for (const m of [1, 2, 5]) {
      const tick = Number(`${m}e${k}`);
      if (tick >= least && tick <= most) ticks.push(tick);
    }
  return { at, ticks };
}

/** The next of 1, 2, 5, 10 times a power of ten. */
function roundStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? 10 * power;
}

/** A dot that gets a number. */
interface Dot {
  readonly x: number;
  readonly y: number;
  readonly r: number;
}

/**
 * Places the numbers of dots as near as there is space, so that no number covers a dot or another
 * number; where a number is not next to its dot, a line leads there.
 */
export function placeNumbers(
  dots: readonly Dot[],
  box: {
    readonly left: number;
    readonly right: number;
    readonly top: number;
    readonly bottom: number;
  },
): Markup[] {
  const placed: { x: number; y: number }[] = [];
  return dots.flatMap(({ x, y, r }, k) => {
    const free = (nx: number, ny: number): boolean =>
      nx > box.left + 6 &&
      nx < box.right - 6 &&
      ny > box.top + 6 &&
      ny < box.bottom - 6 &&
      placed.every((p) => Math.abs(p.x - nx) > 17 || Math.abs(p.y - ny) > 14) &&
      dots.every((d) => Math.hypot(d.x - nx, d.y - ny) > d.r + 8);
    let at = { x: x + r + 10, y };
    search: for (let far = r + 10; far < r + 120; far += 9)
      for (const angle of ANGLES) {
        const [nx, ny] = [x + far * Math.cos(angle), y + far * Math.sin(angle)];
        if (!free(nx, ny)) continue;
        at = { x: nx, y: ny };
        break search;
      }
    placed.push(at);
    const far = Math.hypot(at.x - x, at.y - y) > r + 14;
    return [
      ...(far ? [line(x, y, at.x, at.y, 'lead')] : []),
      label(at.x, at.y + 4.5, String(k + 1), { anchor: 'middle', class: 'number' }),
    ];
  });
}

/** Down and up first, then aslant, then sideways. */
const ANGLES = [90, -90, 50, 130, -50, -130, 0, 180, 20, 160].map(
  (degrees) => (degrees * Math.PI) / 180,
);

/**
 * Pixels with at most one digit behind the point: what a reader can see, and the same in every run.
 */
export function px(value: number): number {
  return Number(value.toFixed(1));
}

interface TextStyle {
  readonly anchor?: 'start' | 'middle' | 'end';
  /** A CSS class in addition to the default ink. */
  readonly class?: string;
}

export function label(x: number, y: number, text: string, style: TextStyle = {}): Markup {
  return h(
    'text',
    {
      x: px(x),
      y: px(y),
      ...defined({ 'text-anchor': style.anchor, class: style.class }),
    },
    text,
  );
}

export function line(x1: number, y1: number, x2: number, y2: number, name: string): Markup {
  return h('line', { x1: px(x1), y1: px(y1), x2: px(x2), y2: px(y2), class: name });
}

export function rect(
  x: number,
  y: number,
  width: number,
  height: number,
  name: string,
  title?: string,
): Markup {
  const attributes = {
    x: px(x),
    y: px(y),
    width: px(Math.max(0, width)),
    height: px(Math.max(0, height)),
    class: name,
  };
  return title === undefined ? h('rect', attributes) : h('rect', attributes, h('title', {}, title));
}

/** Grid lines and numbers of a vertical axis. */
export function leftAxis(
  scale: Scale,
  left: number,
  right: number,
  text: (value: number) => string,
): Markup[] {
  return scale.ticks.flatMap((tick) => [
    line(left, scale.at(tick), right, scale.at(tick), 'grid'),
    label(left - 8, scale.at(tick) + 4, text(tick), { anchor: 'end', class: 'soft' }),
  ]);
}

/** The name of a vertical axis, beside it, read from below. */
export function leftTitle(text: string, top: number, bottom: number): Markup {
  const y = px((top + bottom) / 2);
  return h('text', { x: 14, y, transform: `rotate(-90 14 ${y})`, 'text-anchor': 'middle' }, text);
}

/** Grid lines and numbers of a horizontal axis. */
export function bottomAxis(
  scale: Scale,
  top: number,
  bottom: number,
  text: (value: number) => string,
): Markup[] {
  return scale.ticks.flatMap((tick) => [
    line(scale.at(tick), top, scale.at(tick), bottom, 'grid'),
    label(scale.at(tick), bottom + 17, text(tick), { anchor: 'middle', class: 'soft' }),
  ]);
}

/** A text cut to a number of characters. */
export function clip(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1))}…`;
}

/** A text cut to what fits into so many pixels at 12 px; empty where not three letters do. */
export function clipTo(text: string, pixels: number): string {
  if (widthOf(text) <= pixels) return text;
  let width = widthOf('…');
  let end = 0;
  while (end < text.length && width + widthOf(text.charAt(end)) <= pixels)
    width += widthOf(text.charAt(end++));
  return end < 3 ? '' : `${text.slice(0, end)}…`;
}

/** Pixels at 12 px in a wide sans-serif type: an estimate from above. */
function widthOf(text: string): number {
  let sum = 0;
  for (const c of text) sum += /[mwMW…@%]/.test(c) ? 12 : /[ijlI.,:;|' ]/.test(c) ? 4.5 : 7.8;
  return sum;
}
