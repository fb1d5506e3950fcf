import { h, Markup, type Child } from './markup.ts';

/** A column: its heading, and how its cells are set. */
export interface Column {
  readonly head: string;
  readonly kind?: 'number' | 'name' | 'keep';
}

/** A cell: what it shows, and the number that it sorts by. */
export interface Cell {
  readonly show: Child;
  readonly value?: number;
}

/** A table with a caption; it scrolls inside itself where the page is narrow. */
export function table(
  caption: string,
  columns: readonly Column[],
  rows: readonly (readonly (Cell | string)[])[],
): Markup {
  const kindOf = (c: number): Record<string, string> => {
    const kind = columns[c].kind;
    return kind === undefined ? {} : { class: kind };
  };
  const cells = (row: readonly (Cell | string)[]): Markup[] =>
    row.map((cell, c) => {
      if (typeof cell === 'string') return h('td', kindOf(c), cell);
      const { show, value } = cell;
      return h('td', { ...kindOf(c), ...(value === undefined ? {} : { 'data-value': value }) }, show);
    });
  const scroll = h(
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
          columns.map((c, i) => h('th', { scope: 'col', ...kindOf(i) }, c.head)),
        ),
      ),
      h(
        'tbody',
        {},
        rows.map((row) => h('tr', {}, cells(row))),
      ),
    ),
  );
  // Above the part that scrolls, so that a narrow page wraps it.
  return Markup.trusted(h('p', { class: 'caption' }, caption).html + scroll.html);
}
