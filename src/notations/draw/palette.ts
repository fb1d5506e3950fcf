/**
 * Colours of drawings. Fills are P. Tol's "light" scheme (SRON/EPS/TN/09-002), made for dark text
 * on coloured cells and kept apart under the common colour-vision deficiencies; the same fills
 * serve light and dark pages, since the ink on them is always dark. Colour is never the only sign:
 * every cell also has its contents as text.
 */
export const FILLS: readonly string[] = [
  '#77aadd',
  '#ee8866',
  '#eedd88',
  '#ffaabb',
  '#44bb99',
  '#bbcc33',
  '#99ddff',
  '#aaaa00',
];

/** Ink on a coloured cell. */
export const FILL_INK = '#16181d';

export interface Theme {
  readonly page: string;
  /** Titles and cut lines. */
  readonly ink: string;
  /** Captions and dotted separators. */
  readonly soft: string;
  /** Fill, ink and border of a cell that has no device. */
  readonly cell: string;
  readonly cellInk: string;
  readonly border: string;
}

export const LIGHT: Theme = {
  page: '#ffffff',
  ink: '#16181d',
  soft: '#565c68',
  cell: '#f1f3f6',
  cellInk: '#16181d',
  border: '#c3c8d1',
};

export const DARK: Theme = {
  page: '#14161a',
  ink: '#f0f2f5',
  soft: '#a7afbb',
  cell: '#262a31',
  cellInk: '#f0f2f5',
  border: '#4a505b',
};

/**
 * Overlays that tell groups apart once the fills are used up: none, stripes, dots, stripes the
 * other way.
 */
export const OVERLAYS = ['', 'stripes', 'dots', 'backstripes'] as const;

/** The rules of one theme, for elements inside `scope`. */
export function themeRules(scope: string, theme: Theme): string {
  return [
    `${scope} .page{fill:${theme.page}}`,
    `${scope} .ink{fill:${theme.ink}}`,
    `${scope} .soft{fill:${theme.soft}}`,
    `${scope} .cell{fill:${theme.cell};stroke:${theme.border}}`,
    `${scope} .label{fill:${theme.cellInk}}`,
    `${scope} .cut{stroke:${theme.ink}}`,
    `${scope} .apart{stroke:${theme.soft}}`,
  ].join('');
}
