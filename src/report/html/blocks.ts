/** Turns report blocks into HTML elements. */

import { defined } from '../../defined.ts';
import { itemAt } from '../../item-at.ts';
import { percentText } from '../../units.ts';
import { type Child, h, type Markup } from '../markup.ts';
import {
  type BarBlock,
  type Block,
  type Cell,
  cellText,
  type Column,
  type Section,
  type TableBlock,
} from '../model/blocks.ts';

/** A section of a page, with its heading. */
export function sectionMarkup({ id, title, sheet, blocks }: Section): Markup {
  return h(
    'section',
    { 'aria-labelledby': id, class: sheet === true ? 'sheet' : '' },
    h('h2', { id }, title),
    blocks.map(blockMarkup),
  );
}

/** Text whose numbers stay with their units at the end of a line. */
export function prose(text: string): string {
  return text.replace(/(\d) (?=%|[nµm]?s\b|[KMGT]?i?B\b)/g, '$1\u00a0');
}

/**
 * Names of several parts (`pp=2,dp=4`, `fsdp+tp`): on paper, where nothing scrolls, lines may end
 * between the parts.
 */
function breakable(text: string): Child[] {
  return text
    .split(/(?<=\+)(?=\S)|(?<=,)(?=[^\s\d])/)
    .flatMap((part, k) => (k === 0 ? [part] : [h('wbr', {}), part]));
}

function blockMarkup(block: Block): Markup | readonly Markup[] {
  switch (block.kind) {
    case 'text':
      return h('p', block.soft === true ? { class: 'soft' } : {}, prose(block.text));
    case 'heading':
      return h('h3', {}, block.text);
    case 'list':
      return h(
        'ul',
        {},
        block.items.map((item) => h('li', {}, prose(item))),
      );
    case 'code':
      return h('pre', { tabindex: 0 }, block.text);
    case 'bar':
      return barMarkup(block);
    case 'figure':
      return h(
        'figure',
        { class: 'drawn', ...(block.run === true ? { 'data-run': '' } : {}) },
        h(
          'div',
          { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': block.caption },
          block.svg,
        ),
        h('figcaption', { class: 'soft' }, block.caption),
      );
    case 'table':
      return tableMarkup(block);
    case 'page':
      return block.markup;
  }
}

function tableMarkup({ caption, columns, rows, open = Infinity, isStacked }: TableBlock): Markup[] {
  if (isStacked === true) return stackedTable(caption, columns, rows);
  if (rows.length <= open) return table(caption, columns, rows);
  const rest = rows.slice(open);
  return [
    ...table(caption, columns, rows.slice(0, open)),
    h(
      'details',
      { class: 'more' },
      h('summary', {}, h('span', { class: 'title' }, `${rest.length} more`)),
      table(`${caption} (from row ${open + 1} on)`, columns, rest),
    ),
  ];
}

/** Columns of words and ranges that a sheet of paper holds in its usual type. */
const MOST_ON_PAPER = 10;

/** A table whose rows become lists on a narrow page: each cell carries its heading. */
function stackedTable(
  caption: string,
  columns: readonly Column[],
  rows: TableBlock['rows'],
): Markup[] {
  const cell = (given: Cell | string, c: number): Markup =>
    h(
      c === 0 ? 'th' : 'td',
      { ...(c === 0 ? { scope: 'row' } : { 'data-label': itemAt(columns, c).head }) },
      breakable(prose(cellText(given))),
    );
  return [
    h('p', { class: 'caption' }, caption),
    h(
      'table',
      { class: columns.length > MOST_ON_PAPER ? 'stacked wide' : 'stacked' },
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          columns.map((c) => h('th', { scope: 'col' }, c.head)),
        ),
      ),
      h(
        'tbody',
        {},
        rows.map((row) => h('tr', {}, row.map(cell))),
      ),
    ),
  ];
}

/** A table under its caption; it scrolls inside itself where the page is narrow. */
function table(caption: string, columns: readonly Column[], rows: TableBlock['rows']): Markup[] {
  const kindOf = (c: number): Column['kind'] => itemAt(columns, c).kind;
  const classOf = (c: number): { readonly class?: string } => defined({ class: kindOf(c) });
  const cell = (given: Cell | string, c: number): Markup => {
    if (typeof given === 'string')
      return h('td', classOf(c), kindOf(c) === 'number' ? given : breakable(given));
    const { text, value, code } = given;
    const shown = code === true ? h('code', {}, text) : text;
    return h('td', { ...classOf(c), ...defined({ 'data-value': value }) }, shown);
  };
  return [
    // Above the part that scrolls, so that a narrow page wraps it.
    h('p', { class: 'caption' }, caption),
    h(
      'div',
      { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
      h(
        'table',
        { class: 'sortable' },
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            columns.map((c, i) => h('th', { scope: 'col', ...classOf(i) }, c.head)),
          ),
        ),
        h(
          'tbody',
          {},
          rows.map((row) => h('tr', {}, row.map(cell))),
        ),
      ),
    ),
  ];
}

function barMarkup({ parts, text, title, whole }: BarBlock): Markup[] {
  const total = whole ?? parts.reduce((n, p) => n + p.amount, 0);
  const width = (amount: number): string =>
    `${total > 0 ? Number(((100 * amount) / total).toFixed(3)) : 0}%`;
  const spoken = `${title}: ${parts.map((p) => `${p.label} ${text(p.amount)}`).join(', ')}`;
  return [
    h(
      'div',
      { class: 'bar', role: 'img', 'aria-label': spoken },
      parts.map((p) => h('span', { class: p.kind, style: `width:${width(p.amount)}` })),
    ),
    h(
      'ul',
      { class: 'key' },
      parts.map((p) => h('li', {}, h('i', { class: p.kind }), `${p.label} ${text(p.amount)}`)),
    ),
  ];
}

/** The words of a bar, for formats without colour. */
export function barText({ parts, text, title, whole }: BarBlock): string {
  const total = whole ?? parts.reduce((n, p) => n + p.amount, 0);
  const share = (amount: number): string =>
    total > 0 && whole !== undefined ? ` (${percentText(amount / total)})` : '';
  return (
    `${title}: ` +
    `${parts.map((p) => `${p.label} ${text(p.amount)}${share(p.amount)}`).join(', ')}.`
  );
}
