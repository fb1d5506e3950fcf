/**
 * The dim view of a sharding, JAX's PartitionSpec: takes a sharding, gives the mesh dims of each
 * tensor dim, and back.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { REDUCE_OPS } from '../placements/partials/partial.ts';
import type { ReduceOp } from '../placements/placement.ts';
import { Scanner } from '../placements/scan.ts';

/**
 * The dim view of a sharding (JAX's PartitionSpec): for each tensor dim the mesh dims that cut it,
 * major to minor, the mesh dims over which a reduction is pending, and those whose gradient is
 * pending (`reduced`, see `four-states.ts`). It is a closed form: cuts other than plain shards have
 * no place in it.
 */
export class PartitionSpec {
  /** Mesh dims of each tensor dim, major first. Dims beyond the list are not cut. */
  readonly dims: readonly (readonly string[])[];
  /** Pending reductions by mesh dim. */
  readonly unreduced: ReadonlyMap<string, ReduceOp>;
  /** Mesh dims over which values are equal and gradients are pending. */
  readonly reduced: readonly string[];
  /**
   * `P(("tp", "dp"), None)`, and where needed `P("tp", unreduced={"cp"}, reduced={"dp"})`. Equal
   * iff the specs are.
   */
  readonly text: string;

  /** @throws E_PLACEMENT when a mesh dim is listed twice, or its name cannot be written */
  constructor(
    dims: readonly (readonly string[])[],
    marks: {
      readonly unreduced?: Iterable<readonly [string, ReduceOp]>;
      readonly reduced?: Iterable<string>;
    } = {},
  ) {
    checkKinds('PartitionSpec', {
      dims: [dims, 'lists'],
      marks: [marks, 'record', 'undefined'],
    });
    this.dims = dims.map((axes) => [...axes]);
    this.unreduced = new Map(marks.unreduced ?? []);
    this.reduced = [...(marks.reduced ?? [])];
    const seen = new Set<string>();
    for (const axis of [...this.dims.flat(), ...this.unreduced.keys(), ...this.reduced]) {
      if (!AXIS.test(axis))
        throw new ShardwrightError('E_PLACEMENT', `'${axis}' is not a name of a mesh dim`);
      if (seen.has(axis))
        throw new ShardwrightError(
          'E_PLACEMENT',
          `mesh dim '${axis}' is listed twice in a PartitionSpec`,
          {
            hint: 'a mesh dim cuts one tensor dim, or is unreduced, or is reduced',
          },
        );
      seen.add(axis);
    }
    const parts = this.dims.map((axes) => {
      const quoted = axes.map((a) => `"${a}"`);
      return quoted.length === 0
        ? 'None'
        : quoted.length === 1
          ? quoted[0]
          : `(${quoted.join(', ')})`;
    });
    if (this.unreduced.size > 0) parts.push(`unreduced=${unreducedText(this.unreduced)}`);
    if (this.reduced.length > 0)
      parts.push(`reduced={${this.reduced.map((a) => `"${a}"`).join(', ')}}`);
    this.text = `P(${parts.join(', ')})`;
  }

  /**
   * The spec with one entry for each dim of a tensor.
   *
   * @throws E_PLACEMENT when it cuts more dims than the tensor has
   */
  forRank(rank: number): PartitionSpec {
    const extra = this.dims.slice(rank);
    if (extra.some((axes) => axes.length > 0))
      throw new ShardwrightError(
        'E_PLACEMENT',
        `${this.text} has ${this.dims.length} dims, the tensor has ${rank}`,
      );
    if (this.dims.length === rank) return this;
    return new PartitionSpec(
      Array.from({ length: rank }, (_, d) => this.dims[d] ?? []),
      { unreduced: this.unreduced, reduced: this.reduced },
    );
  }

  equals(other: PartitionSpec): boolean {
    return this.text === other.text;
  }
  toString(): string {
    return this.text;
  }
}

const AXIS = /^[A-Za-z_][A-Za-z0-9_.-]*$/;

/** Tells whether a sharding text is in this notation: `P(sum)` and `P()` are placements. */
export function isPartitionSpec(text: string): boolean {
  return /^\s*(?:PartitionSpec\s*\(|P\s*\(\s*(?:["'(]|None\b|unreduced\b|reduced\b))/.test(text);
}

/** A set when all reductions are sums, as JAX writes it; else a dictionary. */
function unreducedText(unreduced: ReadonlyMap<string, ReduceOp>): string {
  const sums = [...unreduced.values()].every((op) => op === 'sum');
  const axes = [...unreduced].map(([axis, op]) => (sums ? `"${axis}"` : `"${axis}": "${op}"`));
  return `{${axes.join(', ')}}`;
}

const HELP = 'as in P(("tp", "dp"), None)';

/**
 * Reads `P(("tp", "dp"), None)` or `PartitionSpec('tp')`, with `unreduced={...}` and
 * `reduced={...}` after the dims.
 *
 * @throws E_SYNTAX with the column, E_PLACEMENT when a mesh dim is listed twice
 */
export function parsePartitionSpec(text: string): PartitionSpec {
  checkKinds('parsePartitionSpec', { text: [text, 'string'] });
  const scan = new Scanner(text, undefined, HELP);
  if (!scan.take('PartitionSpec')) scan.expect('P');
  scan.expect('(');
  const dims: string[][] = [];
  const unreduced = new Map<string, ReduceOp>();
  const reduced = new Set<string>();
  let marks = false;
  while (!scan.take(')')) {
    if (dims.length > 0 || marks) {
      scan.expect(',');
      if (scan.take(')')) break;
    }
    if (scan.take('unreduced')) {
      marks = true;
      scan.expect('=');
      members(scan, (axis) => {
        const op = scan.take(':') ? reduceOp(scan, quoted(scan)) : 'sum';
        if (unreduced.has(axis)) scan.fail(`each mesh dim once ('${axis}' is unreduced already)`);
        unreduced.set(axis, op);
      });
    } else if (scan.take('reduced')) {
      marks = true;
      scan.expect('=');
      members(scan, (axis) => reduced.add(axis));
    } else if (marks) scan.fail('unreduced=, reduced= or the end');
    else dims.push(entry(scan));
  }
  scan.blanks();
  if (!scan.done) scan.fail('nothing more after the spec');
  return new PartitionSpec(dims, { unreduced, reduced });
}

/** `None`, `"tp"` or `("tp", "dp")`. */
function entry(scan: Scanner): string[] {
  if (scan.take('None')) return [];
  if (!scan.take('(')) return [quoted(scan)];
  const axes: string[] = [];
  while (!scan.take(')')) {
    if (axes.length > 0) {
      scan.expect(',');
      if (scan.take(')')) break;
    }
    axes.push(quoted(scan));
  }
  return axes;
}

function members(scan: Scanner, add: (axis: string) => void): void {
  scan.expect('{');
  for (let i = 0; !scan.take('}'); i++) {
    if (i > 0) {
      scan.expect(',');
      if (scan.take('}')) break;
    }
    add(quoted(scan));
  }
}

function quoted(scan: Scanner): string {
  const found = scan.match(/"[A-Za-z_][\w.-]*"|'[A-Za-z_][\w.-]*'/y);
  return found === undefined
    ? scan.fail('a name of a mesh dim in quotes, or None')
    : found.slice(1, -1);
}

function reduceOp(scan: Scanner, word: string): ReduceOp {
  const op = REDUCE_OPS.find((o) => o === word);
  return op ?? scan.fail(`one of ${REDUCE_OPS.join(', ')} before this place`);
}
