/**
 * Reads CSV text (RFC 4180) with a header and gives its rows, with the line that each starts on.
 */

import { ShardwrightError } from '../errors.ts';

/** A table read from CSV text: cells by column name, with the line that each row starts on. */
interface CsvTable {
  readonly columns: readonly string[];
  readonly rows: readonly CsvRow[];
}

export interface CsvRow {
  /** 1-based line of the text. */
  readonly line: number;
  /** By column; those that a row with too few cells lacks are absent. */
  readonly cells: ReadonlyMap<string, string>;
  /** Cells of a row that has more or fewer than the header; absent: as many. */
  readonly oddCells?: number;
}

/** Characters of a file, and rows, that are read at most. */
const TEXT_LIMIT = 64 * 2 ** 20;
const ROW_LIMIT = 200_000;

/**
 * Reads comma-separated text with a header (RFC 4180: quotes may hold commas, line breaks and
 * doubled quotes).
 *
 * @throws E_CSV with the line for an unclosed quote, or a repeated or missing column
 */
export function parseCsv(text: string, required: readonly string[]): CsvTable {
  if (text.length > TEXT_LIMIT)
    throw new ShardwrightError(
      'E_CSV',
      `the table has ${text.length} characters; at most ${TEXT_LIMIT} are read`,
    );
  const records = splitRecords(text.startsWith('\uFEFF') ? text.slice(1) : text);
  const header = records.shift();
  if (header === undefined) throw new ShardwrightError('E_CSV', 'the table is empty');
  const columns = header.cells;
  const repeated = columns.find((c, i) => columns.indexOf(c) !== i);
  if (repeated !== undefined)
    throw new ShardwrightError('E_CSV', `column '${repeated}' appears twice`, {
      position: { line: 1, column: 1 },
    });
  const missing = required.filter((c) => !columns.includes(c));
  if (missing.length > 0)
    throw new ShardwrightError(
      'E_CSV',
      `the table has no column ${missing.map((c) => `'${c}'`).join(', ')}`,
      {
        position: { line: 1, column: 1 },
        hint: `columns that are read: ${required.join(', ')}`,
      },
    );
  const rows = records.map(({ line, cells }): CsvRow => {
    const named = columns.slice(0, cells.length).map((c, i) => [c, cells[i]] as const);
    const isOdd = cells.length !== columns.length;
    return { line, cells: new Map(named), ...(isOdd ? { oddCells: cells.length } : {}) };
  });
  return { columns, rows };
}

interface CsvRecord {
  readonly line: number;
  readonly cells: string[];
}

function splitRecords(text: string): CsvRecord[] {
  const records: CsvRecord[] = [];
  let cells: string[] = [];
  let cell = '';
  let quoted = false;
  let line = 1;
  let start = 1;
  let opened = 0;
  const endRecord = (): void => {
    cells.push(cell);
    if (cells.length > 1 || cell !== '') records.push({ line: start, cells });
    if (records.length > ROW_LIMIT)
      throw new ShardwrightError('E_CSV', `more than ${ROW_LIMIT} rows`, {
        position: { line, column: 1 },
      });
    cells = [];
    cell = '';
  };
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '\n') line++;
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[i + 1] === '"') cell += text[++i];
      else quoted = false;
    } else if (c === '"' && cell === '') {
      quoted = true;
      opened = line;
    } else if (c === ',') {
      cells.push(cell);
      cell = '';
    } else if (c === '\n') {
      endRecord();
      start = line;
    } else if (c !== '\r') cell += c;
  }
  if (quoted)
    throw new ShardwrightError('E_CSV', 'a quoted cell is never closed', {
      position: { line: opened, column: 1 },
    });
  if (cell !== '' || cells.length > 0) endRecord();
  return records;
}
