import { ShardwrightError, suggestion } from '../errors.ts';
import { MaskPartial } from './mask-partial.ts';
import type { DeviceMesh } from './mesh.ts';
import { fromMeshView } from './mesh-view.ts';
import { Partial, REDUCE_OPS } from './partial.ts';
import type { Placement, ReduceOp } from './placement.ts';
import { REPLICATE } from './replicate.ts';
import { Shard } from './shard.ts';
import { Sharding } from './sharding.ts';
import { StridedShard } from './strided.ts';

/**
 * Texts of placements and shardings, short (`S(0)R`, `_S(0, 2)`, `P(sum)`) and long (`Shard(dim=0)`, `Replicate()`,
 * `_StridedShard(dim=0, sf=2)`, `Partial(sum)`), one after the other or in a list. Parsing what is printed gives it back.
 */

export interface ParseOptions {
  /** Rank of the tensor: negative dims are counted from it, and larger dims are refused. */
  readonly rank?: number;
}

/** One placement. @throws E_SYNTAX with the column */
export function parsePlacement(text: string, options: ParseOptions = {}): Placement {
  const scan = new Scanner(text, options);
  const p = scan.placement();
  scan.blanks();
  if (!scan.done) scan.fail('nothing more after the placement');
  return p;
}

/**
 * A sharding of the mesh: one placement per mesh dim. A strided list that is an order of mesh dims becomes that order.
 *
 * @throws E_SYNTAX with the column, E_PLACEMENT when the number of placements does not fit the mesh
 */
export function parseSharding(text: string, mesh: DeviceMesh, options: ParseOptions = {}): Sharding {
  const scan = new Scanner(text, options);
  const items: { placement: Placement; position: number | undefined; column: number }[] = [];
  const close = scan.open();
  for (;;) {
    scan.separators();
    if (scan.done || scan.peek() === close) break;
    const column = scan.column;
    const placement = scan.placement();
    items.push({ placement, position: scan.position(), column });
  }
  if (close !== '') scan.expect(close);
  scan.blanks();
  if (!scan.done) scan.fail('nothing more');
  if (items.length !== mesh.rank)
    throw new ShardwrightError(
      'E_PLACEMENT',
      `'${text}' has ${items.length} placement${items.length === 1 ? '' : 's'}, but the mesh ${mesh.text} has ${mesh.rank} dims`,
      { hint: 'write one placement for each mesh dim, outermost first; R where it does not cut' },
    );
  const placements = items.map((i) => i.placement);
  const explicit = new Set<number>();
  items.forEach((i) => i.position !== undefined && i.placement.dim !== undefined && explicit.add(i.placement.dim));
  if (explicit.size === 0) return fromMeshView(placements, mesh);
  const orders = new Map<number, readonly number[]>();
  for (const dim of explicit) {
    const on = items.map((item, m) => ({ ...item, m })).filter((i) => i.placement.dim === dim);
    const order: number[] = new Array<number>(on.length).fill(-1);
    for (const { m, position, column } of on) {
      if (position === undefined || position >= on.length || order[position] >= 0)
        throw new ShardwrightError(
          'E_SYNTAX',
          `'${text}': positions on tensor dim ${dim} must be 0..${on.length - 1}, each once, at column ${column}`,
          { hint: 'as in S(0)[1]S(0)[0]', position: { line: 1, column }, excerpt: text },
        );
      order[position] = m;
    }
    orders.set(dim, order);
  }
  return new Sharding(placements, orders);
}

const WORDS = ['S', '_S', 'R', 'P', 'MaskP', 'Shard', '_StridedShard', 'Replicate', 'Partial', '_MaskPartial'];

/** The longest placement word; a short one ends before a capital letter, so that `RS(0)` is two placements. */
const WORD = /^(?:Replicate|Partial|_StridedShard|Shard|_MaskPartial|MaskP|(?:_S|S|R|P)(?![a-z_])|[A-Za-z_]+)/;

class Scanner {
  private at = 0;

  constructor(
    private readonly text: string,
    private readonly options: ParseOptions,
  ) {}

  get done(): boolean {
    return this.at >= this.text.length;
  }
  get column(): number {
    return this.at + 1;
  }
  peek(): string {
    return this.text[this.at] ?? '';
  }

  fail(expected: string, hint?: string): never {
    const got = this.done ? 'the end' : `'${this.text.slice(this.at, this.at + 12)}'`;
    throw new ShardwrightError(
      'E_SYNTAX',
      `'${this.text}': expected ${expected} at column ${this.column}, got ${got}`,
      {
        position: { line: 1, column: this.column },
        excerpt: this.text,
        hint: hint ?? "write one of S(0), _S(0, 2), R, P(sum) for each mesh dim, as in 'S(0)R'",
      },
    );
  }

  blanks(): void {
    while (/\s/.test(this.peek())) this.at++;
  }
  separators(): void {
    while (/[\s,]/.test(this.peek())) this.at++;
  }
  /** An opening bracket of a list, if there is one: returns the closing one that it wants. */
  open(): string {
    this.blanks();
    const close = { '[': ']', '(': ')' }[this.peek()] ?? '';
    if (close !== '') this.at++;
    return close;
  }
  expect(word: string): void {
    this.blanks();
    if (!this.text.startsWith(word, this.at)) this.fail(`'${word}'`);
    this.at += word.length;
  }
  private take(word: string): boolean {
    this.blanks();
    if (!this.text.startsWith(word, this.at)) return false;
    this.at += word.length;
    return true;
  }
  private match(pattern: RegExp): string | undefined {
    this.blanks();
    const found = pattern.exec(this.text.slice(this.at));
    if (found === null) return undefined;
    this.at += found[0].length;
    return found[0];
  }
  private int(what: string): number {
    const digits = this.match(/^-?\d+/);
    return digits === undefined ? this.fail(what) : Number(digits);
  }

  /** `[1]` after a placement. */
  position(): number | undefined {
    if (this.peek() !== '[') return undefined;
    this.at++;
    const n = this.int('a position');
    if (n < 0) this.fail('a position of at least 0');
    this.expect(']');
    return n;
  }

  placement(): Placement {
    this.blanks();
    const start = this.at;
    const word = this.match(WORD);
    switch (word) {
      case 'R':
        return REPLICATE;
      case 'Replicate':
        if (this.take('(')) this.expect(')');
        return REPLICATE;
      case 'S':
      case 'Shard': {
        if (word === 'S' && /\d/.test(this.peek())) return Shard.of(this.dim(this.int('a tensor dim')));
        this.expect('(');
        this.keyword('dim');
        const dim = this.dim(this.int('a tensor dim'));
        this.expect(')');
        return Shard.of(dim);
      }
      case '_S':
      case '_StridedShard': {
        this.expect('(');
        this.keyword('dim');
        const dim = this.dim(this.int('a tensor dim'));
        this.expect(',');
        this.keyword('sf');
        this.keyword('split_factor');
        const factor = this.int('a stride factor');
        if (factor < 1) this.fail('a stride factor of at least 1');
        this.expect(')');
        return factor === 1 ? Shard.of(dim) : new StridedShard(dim, factor);
      }
      case 'P':
      case 'Partial': {
        if (this.peek() !== '(') return Partial.of('sum');
        this.expect('(');
        this.keyword('reduce_op');
        if (this.take(')')) return Partial.of('sum');
        const opAt = this.at;
        const op = this.match(/^'?[a-z]+'?/)?.replaceAll("'", '') ?? '';
        if (!isReduceOp(op)) {
          this.at = opAt;
          this.fail('a reduction', suggestion(op, REDUCE_OPS, 'reductions'));
        }
        this.expect(')');
        return Partial.of(op);
      }
      case 'MaskP':
      case '_MaskPartial': {
        this.expect('(');
        this.expect('sum');
        this.expect(',');
        const torch = this.take('torch.Size(');
        this.expect('[');
        const shape: number[] = [];
        while (!this.take(']')) {
          shape.push(this.int('a size'));
          this.take(',');
        }
        if (torch) this.expect(')');
        this.expect(',');
        const dim = this.int('a tensor dim');
        this.expect(')');
        return new MaskPartial(shape, dim);
      }
      case undefined:
        return this.fail('a placement');
      default:
        this.at = start;
        return this.fail('a placement', suggestion(word, WORDS, 'placements'));
    }
  }

  private keyword(name: string): void {
    this.match(new RegExp(`^${name}\\s*=`));
  }

  private dim(dim: number): number {
    const { rank } = this.options;
    if (rank === undefined) {
      if (dim < 0) this.fail('a tensor dim of at least 0 (the rank of the tensor is not known here)');
      return dim;
    }
    const normal = dim < 0 ? dim + rank : dim;
    if (normal < 0 || normal >= rank) this.fail(`a dim of a ${rank}-D tensor before this place (got ${dim})`);
    return normal;
  }
}

function isReduceOp(word: string): word is ReduceOp {
  return (REDUCE_OPS as readonly string[]).includes(word);
}
