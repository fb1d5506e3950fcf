/** Turns a drawing into a self-contained SVG, without scripts, fonts or outside references. */

import { ShardwrightError } from '../../errors.ts';
import { type Drawing, type Gap, isHorizontal } from './matrix.ts';
import { DARK, FILL_INK, FILLS, LIGHT, OVERLAYS, themeRules } from './palette.ts';

interface SvgOptions {
  /** Heading, also read out by screen readers. */
  readonly title: string;
  /** One sentence on the contents of a cell: caption and part of the description. */
  readonly caption?: string;
  /**
   * Devices that hold each element (by row-major number), as text: cells of one text get one
   * colour.
   */
  readonly holders?: readonly string[];
}

/** Cells of one picture. */
const MAX_SVG_CELLS = 1 << 14;
const MAX_GROUPS_READ_OUT = 32;

const FONT = 14;
// Widths of a character on average in the widest of the fonts named below; a text never sticks out
// of the picture.
const CHARACTER = 8.5;
const HEADING_CHARACTER = 10;
const NOTE_CHARACTER = 7;
const LINE = 18;
const MARGIN = 20;
/** How far a cut reaches beyond the cells. */
const REACH = 5;
const WRAP = 16;

/**
 * A drawing as one self-contained SVG: no scripts, fonts or references outside itself; light and
 * dark by the reader's preference; title and description for screen readers. Sizes are in CSS
 * pixels. Colours repeat, with an overlay, after 8 groups of devices, and repeat wholly after 32:
 * the text in the cell is what tells.
 *
 * @throws E_LIMIT above 16,384 cells
 */
export function drawSvg(drawing: Drawing, options: SvgOptions): string {
  const { rows, columns } = drawing;
  if (rows * columns > MAX_SVG_CELLS)
    throw new ShardwrightError(
      'E_LIMIT',
      `an SVG of ${rows * columns} cells is more than ${MAX_SVG_CELLS}`,
      {
        hint: 'draw a smaller shape that is cut in the same way, or as text.',
      },
    );
  const layout = layoutOf(drawing, options);
  const { width, height } = layout;
  const groups = new Map<string, number>();
  options.holders?.forEach((text) => groups.has(text) || groups.set(text, groups.size));
  const content = bodyOf(drawing, options, layout, groups).join('\n');
  const id = `draw-${hash(options.title + content)}`;
  const overlays = groups.size > FILLS.length ? patterns(id, groups.size) : [];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" id="${id}" role="img" ` +
      `aria-labelledby="${id}-title ${id}-desc" viewBox="0 0 ${width} ${height}" ` +
      `width="${width}" height="${height}">`,
    `<title id="${id}-title">${escape(options.title)}</title>`,
    `<desc id="${id}-desc">${escape(description(drawing, options, groups))}</desc>`,
    `<style>${style(`#${id}`)}</style>`,
    ...overlays,
    content.replaceAll('url(#', `url(#${id}-`),
    '</svg>',
    '',
  ].join('\n');
}

/** Where the parts of a picture lie, and the lines of its texts. */
interface Layout {
  /** Lines of the text of each cell. */
  readonly labels: readonly (readonly (readonly string[])[])[];
  readonly right: Places;
  readonly down: Places;
  readonly heading: readonly string[];
  readonly notes: readonly string[];
  /** Where the cells begin. */
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

function layoutOf(
  { rows, columns, cells, shape, rowGaps, columnGaps }: Drawing,
  options: SvgOptions,
): Layout {
  const labels = cells.map((row) => row.map((cell) => wrap(cell.text, WRAP, DEVICES)));
  let longest = 0;
  let tallest = 1;
  for (const label of labels.flat()) {
    tallest = Math.max(tallest, label.length);
    for (const line of label) longest = Math.max(longest, line.length);
  }
  const right = places(columns, columnGaps, Math.max(36, Math.ceil(longest * CHARACTER) + 16));
  const down = places(rows, rowGaps, tallest * LINE + 12);
  const room = Math.max(
    right.end,
    Math.min(480, Math.ceil(options.title.length * HEADING_CHARACTER)),
    300,
  );
  const heading = wrap(options.title, Math.floor(room / HEADING_CHARACTER), WORDS);
  const captions = [options.caption ?? '', directions(shape)].filter((line) => line !== '');
  const notes = captions.flatMap((line) => wrap(line, Math.floor(room / NOTE_CHARACTER), WORDS));
  const top = MARGIN + heading.length * 22 + 8;
  return {
    labels,
    right,
    down,
    heading,
    notes,
    top,
    width: MARGIN * 2 + room,
    height: top + down.end + 14 + notes.length * 17 + MARGIN - 4,
  };
}

/** Heading, cells, the lines of the cuts, and notes. */
function bodyOf(
  { cells, rowGaps, columnGaps }: Drawing,
  { holders }: SvgOptions,
  { labels, right, down, heading, notes, top, width, height }: Layout,
  groups: ReadonlyMap<string, number>,
): string[] {
  return [
    `<rect class="page" width="${width}" height="${height}"/>`,
    ...heading.map(
      (line, i) =>
        `<text class="ink heading" x="${MARGIN}" y="${MARGIN + 14 + i * 22}">` +
        `${escape(line)}</text>`,
    ),
    `<g transform="translate(${MARGIN} ${top})">`,
    ...cells.flatMap((row, r) =>
      row.flatMap((cell, c) => {
        const group = groups.get(holders?.[cell.element] ?? '');
        const [x, y] = [right.starts[c], down.starts[r]];
        return cellParts(x, y, right.size, down.size, labels[r][c], group);
      }),
    ),
    ...lines(columnGaps, rowGaps, right, down, true),
    ...lines(rowGaps, columnGaps, down, right, false),
    '</g>',
    ...notes.map(
      (line, i) =>
        `<text class="soft note" x="${MARGIN}" ` +
        `y="${top + down.end + 30 + i * 17}">${escape(line)}</text>`,
    ),
  ];
}

/** Start of every row or column, and where the last one ends. */
interface Places {
  readonly starts: readonly number[];
  readonly size: number;
  readonly end: number;
}

function places(count: number, gaps: readonly Gap[], size: number): Places {
  const starts: number[] = [];
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (i > 0) at += gapSize(gaps[i - 1]);
    starts.push(at);
    at += size;
  }
  return { starts, size, end: at };
}

function gapSize({ level, cut }: Gap): number {
  if (level === 0) return cut ? 14 : 3;
  return 24 + (level - 1) * 8;
}

function cellParts(
  x: number,
  y: number,
  width: number,
  height: number,
  label: readonly string[],
  group: number | undefined,
): string[] {
  const box = `x="${x}" y="${y}" width="${width}" height="${height}" rx="3"`;
  const parts: string[] = [];
  if (group === undefined) parts.push(`<rect class="cell" ${box}/>`);
  else {
    parts.push(`<rect class="held c${group % FILLS.length}" ${box}/>`);
    const overlay = OVERLAYS[Math.floor(group / FILLS.length) % OVERLAYS.length];
    if (overlay !== '') parts.push(`<rect fill="url(#${overlay})" ${box}/>`);
  }
  const first = y + height / 2 - ((label.length - 1) * LINE) / 2 + FONT * 0.36;
  const kind = group === undefined ? 'label' : group < FILLS.length ? 'label on' : 'label on busy';
  label.forEach((line, i) =>
    parts.push(
      `<text class="${kind}" x="${x + width / 2}" ` +
        `y="${round(first + i * LINE)}">${escape(line)}</text>`,
    ),
  );
  return parts;
}

/**
 * Cut lines and dotted separators of one direction. A line is interrupted where a gap of the other
 * direction has a higher level, as in the text.
 */
function lines(
  gaps: readonly Gap[],
  others: readonly Gap[],
  along: Places,
  across: Places,
  upright: boolean,
): string[] {
  const out: string[] = [];
  gaps.forEach((gap, i) => {
    const count = gap.level >= 2 ? gap.level - 1 : gap.cut ? 1 : 0;
    if (count === 0) return;
    const middle = along.starts[i + 1] - gapSize(gap) / 2;
    for (const [from, to] of runs(others, across, gap.level)) {
      for (let k = 0; k < count; k++) {
        const at = round(middle + (k - (count - 1) / 2) * 8);
        const [a, b] = [from - REACH, to + REACH];
        const ends = upright
          ? `x1="${at}" y1="${a}" x2="${at}" y2="${b}"`
          : `x1="${a}" y1="${at}" x2="${b}" y2="${at}"`;
        out.push(`<line class="${gap.cut ? 'cut' : 'apart'}" ${ends}/>`);
      }
    }
  });
  return out;
}

/** Stretches that no gap above `level` interrupts. */
function runs(gaps: readonly Gap[], places: Places, level: number): [number, number][] {
  const out: [number, number][] = [];
  let from = 0;
  gaps.forEach((gap, i) => {
    if (gap.level <= level) return;
    out.push([from, places.starts[i] + places.size]);
    from = places.starts[i + 1];
  });
  out.push([from, places.end]);
  return out;
}

/** Which dims run which way, outermost first. */
function directions(shape: readonly number[]): string {
  const rank = shape.length;
  if (rank === 0) return '';
  const named = (horizontal: boolean): string => {
    const dims = shape.map((_, d) => d).filter((d) => isHorizontal(d, rank) === horizontal);
    return dims.length === 0 ? '' : `${dims.length === 1 ? 'Dim' : 'Dims'} ${dims.join(', ')}`;
  };
  const right = `${named(true)} to the right`;
  const down = named(false);
  const both = down === '' ? right : `${right}, ${down.toLowerCase()} downwards`;
  return rank > 2 ? `${both}, outermost first.` : `${both}.`;
}

function description(
  drawing: Drawing,
  options: SvgOptions,
  groups: ReadonlyMap<string, number>,
): string {
  const { shape, rows, columns } = drawing;
  const parts = [
    `A tensor of shape (${shape.join(', ')}) drawn as ${rows} ${rows === 1 ? 'row' : 'rows'} ` +
      `and ${columns} ${columns === 1 ? 'column' : 'columns'}.`,
    options.caption ?? '',
    directions(shape),
  ];
  if (groups.size > 0) {
    const elements = new Map<string, number[]>();
    options.holders?.forEach((text, i) => {
      const list = elements.get(text);
      if (list === undefined) elements.set(text, [i]);
      else list.push(i);
    });
    const told = [...elements].slice(0, MAX_GROUPS_READ_OUT).map(([text, list]) => {
      const isOne = !/[,+(]/.test(text);
      const who =
        text === '' ? 'No device' : `${isOne ? 'Device' : 'Devices'} ${text.replaceAll(',', ', ')}`;
      const hold = isOne ? 'holds' : 'hold';
      return `${who} ${hold} ${list.length} of ${options.holders?.length ?? 0} elements.`;
    });
    parts.push(...told);
    if (elements.size > told.length)
      parts.push(`${elements.size - told.length} further groups of devices follow.`);
  }
  return parts.filter((part) => part !== '').join(' ');
}

function style(scope: string): string {
  const mono = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace";
  const sans = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif";
  return [
    `${scope} text{font-family:${sans}}`,
    `${scope} .heading{font-size:16px;font-weight:600}`,
    `${scope} .note{font-size:12.5px}`,
    `${scope} .label{font:${FONT}px ${mono};text-anchor:middle}`,
    `${scope} .cut{stroke-width:2.5;stroke-linecap:round}`,
    `${scope} .apart{stroke-width:1.5;stroke-dasharray:1.5 5;stroke-linecap:round}`,
    themeRules(scope, LIGHT),
    FILLS.map((fill, i) => `${scope} .c${i}{fill:${fill}}`).join(''),
    `@media (prefers-color-scheme:dark){${themeRules(scope, DARK)}}`,
    `${scope} .label.on{fill:${FILL_INK}}`,
    `${scope} .label.busy{stroke:#ffffff;stroke-opacity:0.6;stroke-width:3;paint-order:stroke}`,
  ].join('');
}

function patterns(id: string, groups: number): string[] {
  const stripe = (name: string, angle: number): string =>
    `<pattern id="${id}-${name}" width="7" height="7" patternUnits="userSpaceOnUse" ` +
    `patternTransform="rotate(${angle})"><rect width="2" height="7" fill="#ffffff" ` +
    'fill-opacity="0.55"/></pattern>';
  const dots =
    `<pattern id="${id}-dots" width="8" height="8" patternUnits="userSpaceOnUse"><circle ` +
    'cx="2" cy="2" r="1.6" fill="#ffffff" fill-opacity="0.7"/></pattern>';
  const all = [stripe('stripes', 45), dots, stripe('backstripes', -45)];
  return ['<defs>', ...all.slice(0, Math.ceil(groups / FILLS.length) - 1), '</defs>'];
}

/**
 * Breaks a text behind some of its characters so that no line is longer than `limit`, where that is
 * possible.
 */
function wrap(text: string, limit: number, behind: RegExp): string[] {
  const out: string[] = [];
  let line = '';
  for (const part of text.split(behind)) {
    // A separator at the end may stick out; a blank is dropped there.
    if (line !== '' && (line + part).replace(/[ ,+]$/, '').length > limit) {
      out.push(line.trimEnd());
      line = part;
    } else line += part;
  }
  out.push(line);
  return out;
}

const DEVICES = /(?<=[,+])/;
const WORDS = /(?<= )/;

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
};

/** Text inside XML; characters that XML does not allow become the replacement character. */
function escape(text: string): string {
  return text
    .replace(/[&<>"]/g, (c) => ENTITIES[c])
    .replace(/[\u0000-\u0008\u000b-\u001f\ufffe\uffff]/g, '\ufffd');
}

function round(x: number): number {
  return Math.round(x * 100) / 100;
}

/**
 * FNV-1a of a text: ids that are the same for the same picture and differ between pictures on one
 * page.
 */
function hash(text: string): string {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return (h >>> 0).toString(16).padStart(8, '0');
}
