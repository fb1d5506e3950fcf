/**
 * Makes tables of records from columns, each a heading with the cell of a record, and sets them for
 * the terminal: one list of columns is the table of a page and that of a command.
 */
import { tableText } from '../../units.ts';
import { type Cell, cellText, type Column, type TableBlock } from './blocks.ts';

/** A column of a table of records: its heading, and its cell of a record. */
export interface ColumnOf<Item> {
  readonly column: Column;
  readonly cell: (item: Item, index: number) => Cell | string;
}

/** Columns and rows of a table with a row for each record. */
export function tableOf<Item>(
  items: readonly Item[],
  columns: readonly ColumnOf<Item>[],
): Pick<TableBlock, 'columns' | 'rows'> {
  return {
    columns: columns.map(({ column }) => column),
    rows: items.map((item, k) => columns.map(({ cell }) => cell(item, k))),
  };
}

/** A table as aligned lines, numbers to the right, under its short headings. */
export function terminalTable({ columns, rows }: Pick<TableBlock, 'columns' | 'rows'>): string {
  const right = columns.flatMap((c, i) => (c.kind === 'number' ? [i] : []));
  const head = columns.map((c) => c.short ?? c.head);
  return tableText([head, ...rows.map((row) => row.map(cellText))], right);
}
