/**
 * The blocks that a report is made of (paragraph, table, bar, figure), before a format prints them.
 */

import { bytesText, countText, secondsText } from '../../units.ts';
import type { Markup } from '../markup.ts';

/**
 * The blocks of a report, before it is a page, Markdown or plain text: all three print these
 * blocks, so that a number is written once and reads the same everywhere.
 */
export type Block =
  | { readonly kind: 'text'; readonly text: string; readonly soft?: boolean }
  | { readonly kind: 'heading'; readonly text: string }
  | { readonly kind: 'list'; readonly items: readonly string[] }
  | { readonly kind: 'code'; readonly text: string }
  | TableBlock
  | BarBlock
  | FigureBlock
  /** Contents that only a page can show; the other formats leave them out, or print `instead`. */
  | { readonly kind: 'page'; readonly markup: readonly Markup[]; readonly instead?: string };

export interface TableBlock {
  readonly kind: 'table';
  readonly caption: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly (Cell | string)[])[];
  /**
   * The number of rows that are open on a page; the others are a click away. Absent: all of them.
   */
  readonly open?: number;
  /** Few rows of words and ranges: lines break, and on a narrow page a row is a list. */
  readonly isStacked?: true;
}

/** A stacked bar with its key in words: colour is never the only sign. */
export interface BarBlock {
  readonly kind: 'bar';
  readonly title: string;
  readonly parts: readonly {
    readonly kind: string;
    readonly label: string;
    readonly amount: number;
  }[];
  readonly text: (amount: number) => string;
  /** The value of the whole bar; absent: the sum of the parts. */
  readonly whole?: number;
}

/** A drawing, with the sentence that says what it shows. */
interface FigureBlock {
  readonly kind: 'figure';
  readonly caption: string;
  readonly svg: Markup;
  /** It shows clock times, which differ from run to run. */
  readonly run?: true;
}

/** A column: its heading, and how its cells are set. */
export interface Column {
  readonly head: string;
  /** The heading on a terminal. */
  readonly short?: string;
  readonly kind?: 'number' | 'name' | 'keep';
}

/** A cell: what it shows, and the number that it sorts by. */
export interface Cell {
  readonly text: string;
  readonly value?: number;
  /** Set in the type of code. */
  readonly code?: boolean;
}

export interface Section {
  readonly id: string;
  readonly title: string;
  /** Begins a page on paper. */
  readonly sheet?: boolean;
  readonly blocks: readonly Block[];
}

export function code(text: string): Cell {
  return { text, code: true };
}

export function seconds(amount: number | null): Cell {
  if (amount === null) return { text: '–' };
  return { text: amount < 0 ? `-${secondsText(-amount)}` : secondsText(amount), value: amount };
}

export function bytes(amount: number | null): Cell {
  return amount === null ? { text: '–' } : { text: bytesText(amount), value: amount };
}

export function count(amount: number): Cell {
  return { text: countText(amount), value: amount };
}

/** Text of a cell, however it is given. */
export function cellText(cell: Cell | string): string {
  return typeof cell === 'string' ? cell : cell.text;
}
