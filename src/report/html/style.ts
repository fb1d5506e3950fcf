/** The style sheet of the report page: its colours, and the rules of `data/report/page.css`. */

import { DARK, LIGHT, type Theme } from '../../notations/draw/palette.ts';
import { packageData } from '../../platform/platform.ts';

/**
 * Colours of the page in addition to those of drawings. Text keeps a contrast of at least 4.5:1 on
 * its background in both themes.
 */
interface PageTheme extends Theme {
  /** Raised background: tables' heads, code. */
  readonly raised: string;
  readonly accent: string;
  readonly good: string;
  /** The ink of warnings. */
  readonly bad: string;
  readonly compute: string;
  readonly communication: string;
  readonly other: string;
  /** At the edge of what scrolls, where more is behind it. */
  readonly shade: string;
}

const PAGE_LIGHT: PageTheme = {
  ...LIGHT,
  raised: '#f4f6f9',
  accent: '#0b57b0',
  good: '#176b3a',
  bad: '#b3261e',
  compute: '#2f6fb7',
  communication: '#a8480f',
  other: '#6b7280',
  shade: '#16181d59',
};

const PAGE_DARK: PageTheme = {
  ...DARK,
  raised: '#1d2026',
  accent: '#8ab8f5',
  good: '#7fd6a3',
  bad: '#f4a8a2',
  compute: '#6ea8e6',
  communication: '#ec9a66',
  other: '#9aa3b0',
  shade: '#e8ebf180',
};

function variables(theme: PageTheme): string {
  return Object.entries(theme)
    .map(([name, value]) => `--${name}:${String(value)}`)
    .join(';');
}

/** The style sheet of the page: light, dark by preference or by the switch, and paper. */
export function pageStyle(): string {
  const light = `color-scheme:light;${variables(PAGE_LIGHT)}`;
  const dark = `color-scheme:dark;${variables(PAGE_DARK)}`;
  const themes = [
    `:root{${light}}`,
    `@media (prefers-color-scheme:dark){:root:not([data-theme=light]){${dark}}}`,
    `:root[data-theme=dark]{${dark}}`,
    `@media print{:root:root:root{${light}}}`,
  ];
  return `${themes.join('\n')}\n${packageData('report/page.css').trim()}`;
}
