/**
 * A linear program as CPLEX LP text (read by HiGHS, CPLEX, Gurobi, SCIP, GLPK and CBC). Format: IBM
 * ILOG CPLEX, "LP file format". Lines stay far below the 510 characters that old readers accept.
 */
import type { LinearProgram } from './linear-program.ts';

/** Longest text that is written: one JavaScript string holds at most 2^29 - 24 characters. */
const LONGEST_TEXT = 2 ** 29 - 4096;
const TERMS_PER_LINE = 8;

/**
 * Names in LP files hold letters, digits and a few signs, and do not begin with a digit or look
 * like an exponent.
 */
function safeName(name: string): string {
  const clean = name.replace(/[^A-Za-z0-9_.]/g, '_');
  return /^[A-DF-Za-df-z_]/.test(clean) ? clean : `_${clean}`;
}

function number(x: number): string {
  if (x === Infinity) return '+inf';
  return x === -Infinity ? '-inf' : String(x);
}

function term(coefficient: number, name: string, first: boolean): string {
  const sign = coefficient < 0 ? '- ' : first ? '' : '+ ';
  const size = Math.abs(coefficient);
  return size === 1 ? `${sign}${name}` : `${sign}${number(size)} ${name}`;
}

/** Collects pieces and refuses in plain words what no string can hold. */
class Text {
  private readonly parts: string[] = [];
  private length = 0;

  line(s: string): void {
    this.length += s.length + 1;
    if (this.length > LONGEST_TEXT) {
      throw new Error(
        `the LP text exceeds ${LONGEST_TEXT} characters; solve a smaller problem or use ` +
          'fewer mesh dims',
      );
    }
    this.parts.push(s);
  }

  sum(label: string, terms: readonly string[], tail: string): void {
    if (terms.length <= TERMS_PER_LINE) return this.line(` ${label}: ${terms.join(' ')}${tail}`);
    for (let k = 0; k < terms.length; k += TERMS_PER_LINE) {
      const head = k === 0 ? ` ${label}: ` : '  ';
      const last = k + TERMS_PER_LINE >= terms.length;
      this.line(`${head}${terms.slice(k, k + TERMS_PER_LINE).join(' ')}${last ? tail : ''}`);
    }
  }

  list(names: readonly string[]): void {
    for (let k = 0; k < names.length; k += TERMS_PER_LINE)
      this.line(` ${names.slice(k, k + TERMS_PER_LINE).join(' ')}`);
  }

  toString(): string {
    return `${this.parts.join('\n')}\n`;
  }
}

/** The whole program as LP text. Throws `Error` when it does not fit one string. */
export function lpText(lp: LinearProgram): string {
  const text = new Text();
  const names = Array.from({ length: lp.columns }, (_, j) => safeName(lp.columnName(j)));
  text.line(
    `\\ ${lp.name.replace(/[^\x20-\x7e]/g, ' ')}: ${lp.columns} columns, ${lp.rows} rows, ` +
      `${lp.values.length} nonzeros`,
  );
  text.line('Minimize');
  const objective: string[] = [];
  lp.cost.forEach((c, j) => {
    if (c !== 0) objective.push(term(c, names[j], objective.length === 0));
  });
  if (objective.length === 0 && lp.columns > 0) objective.push(`0 ${names[0]}`);
  if (lp.constant !== 0)
    objective.push(`${lp.constant < 0 ? '-' : '+'} ${number(Math.abs(lp.constant))}`);
  text.sum('objective', objective, '');
  text.line('Subject To');
  const seen = new Map<string, number>();
  for (let r = 0; r < lp.rows; r++)
    writeRow(text, lp, r, names, uniqueName(seen, safeName(lp.rowName(r))));
  text.line('Bounds');
  for (let j = 0; j < lp.columns; j++) writeBounds(text, lp, j, names[j]);
  const isBinary = (j: number): boolean =>
    lp.integer[j] === 1 && lp.lower[j] === 0 && lp.upper[j] === 1;
  const binaries = names.filter((_, j) => isBinary(j));
  const generals = names.filter((_, j) => lp.integer[j] === 1 && !isBinary(j));
  if (generals.length > 0) text.line('General');
  text.list(generals);
  if (binaries.length > 0) text.line('Binary');
  text.list(binaries);
  text.line('End');
  return text.toString();
}

function uniqueName(seen: Map<string, number>, name: string): string {
  const count = seen.get(name) ?? 0;
  seen.set(name, count + 1);
  return count === 0 ? name : uniqueName(seen, `${name}_${count}`);
}

function writeRow(
  text: Text,
  lp: LinearProgram,
  r: number,
  names: readonly string[],
  label: string,
): void {
  const terms: string[] = [];
  for (let k = lp.starts[r]; k < lp.starts[r + 1]; k++) {
    terms.push(term(lp.values[k], names[lp.indices[k]], terms.length === 0));
  }
  // A row without entries still says something (0 = 1: no choice), and LP rows need a name in them.
  if (terms.length === 0) terms.push(`0 ${names[0] ?? 'nothing'}`);
  const [lo, hi] = [lp.rowLower[r], lp.rowUpper[r]];
  if (lo === hi) return text.sum(label, terms, ` = ${number(lo)}`);
  const ranged = lo !== -Infinity && hi !== Infinity;
  if (lo !== -Infinity) text.sum(ranged ? `${label}_low` : label, terms, ` >= ${number(lo)}`);
  if (hi !== Infinity) text.sum(ranged ? `${label}_high` : label, terms, ` <= ${number(hi)}`);
}

function writeBounds(text: Text, lp: LinearProgram, j: number, name: string): void {
  const [lo, hi] = [lp.lower[j], lp.upper[j]];
  if (lp.integer[j] === 1 && lo === 0 && hi === 1) return;
  if (lo === -Infinity && hi === Infinity) text.line(` ${name} free`);
  else if (lo !== 0 || hi !== Infinity) text.line(` ${number(lo)} <= ${name} <= ${number(hi)}`);
}
