/**
 * Draws how far predictions are off: every measured run as a dot, by family, with the range of
 * eight of ten, as an SVG figure.
 */

import { percentText } from '../../units.ts';
import { h, type Markup } from '../markup.ts';
import { bottomAxis, chart, label, line, logarithmicFine, px, rect } from './chart.ts';

/** Runs of one family. */
interface FidelityRow {
  readonly family: string;
  /** Predicted over measured seconds of each run, in any order. */
  readonly ratios: readonly number[];
  readonly p10: number;
  readonly p90: number;
}

const [WIDTH, LEFT, RIGHT, TOP] = [760, 220, 724, 30];
const ROW = 34;
/** Ratios beyond these are drawn at the edge. */
const [LEAST, MOST] = [0.4, 2.5];

function rowText({ family, ratios, p10, p90 }: FidelityRow): string {
  return (
    `${family}: ${ratios.length} runs, eight of ten between ${percentText(p10 - 1)} ` +
    `and ${percentText(p90 - 1)}`
  );
}

/**
 * Predicted over measured, one row a family; the dots of a row are spread in the order in which
 * they are given.
 */
export function fidelityFigure(rows: readonly FidelityRow[]): Markup {
  const bottom = TOP + rows.length * ROW;
  const x = logarithmicFine(LEAST, MOST, LEFT, RIGHT);
  const at = (ratio: number): number => x.at(Math.min(MOST, Math.max(LEAST, ratio)));
  const marks = { at: x.at, ticks: [0.5, 0.67, 0.8, 1, 1.25, 1.5, 2] };
  return chart(
    {
      id: 'fidelity',
      title: 'Predicted over measured step time',
      description: `${rows.map(rowText).join('; ')}.`,
      width: WIDTH,
      height: bottom + 46,
    },
    bottomAxis(marks, TOP, bottom, (ratio) => String(ratio)),
    line(x.at(1), TOP, x.at(1), bottom, 'mark'),
    rows.map(({ family, ratios, p10, p90 }, k) => {
      const middle = TOP + (k + 0.5) * ROW;
      return [
        label(LEFT - 12, middle + 4, `${family} (${ratios.length})`, { anchor: 'end' }),
        rect(at(p10), middle - 9, at(p90) - at(p10), 18, 'band'),
        ratios.map((ratio, i) =>
          h('circle', {
            cx: px(at(ratio)),
            cy: px(middle + (((i * 7) % 11) - 5) * 1.5),
            r: 2,
            class: 'dot fits',
          }),
        ),
      ];
    }),
    label((LEFT + RIGHT) / 2, bottom + 40, 'predicted over measured step time', {
      anchor: 'middle',
    }),
  );
}
