/**
 * GSPMD's sharding strings: `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`. The tile assignment
 * is a table of devices: ids 0..N-1 shaped as stated, transposed, shaped as the tiles.
 */

import { ShardwrightError } from '../../../errors.ts';
import { itemAt } from '../../../item-at.ts';
import { elements } from '../../../ops/record/record.ts';
import { product } from '../../../product.ts';

export type GspmdSharding =
  | { readonly kind: 'replicated' | 'manual' | 'unknown' }
  | { readonly kind: 'maximal'; readonly device: number }
  | {
      readonly kind: 'tiled';
      /** Tiles along each dim of the tensor, then along subgroup dims. */
      readonly tiles: readonly number[];
      /** Number of leading entries of `tiles` that belong to the tensor. */
      readonly rank: number;
      /** `replicated` and `manual` subgroup dims, in order. */
      readonly subgroups: readonly string[];
      readonly devices: DeviceOrder;
    }
  | { readonly kind: 'tuple'; readonly items: readonly GspmdSharding[] };

/** Devices in tile order: an iota reshaped and transposed, or a list. */
type DeviceOrder =
  | {
      readonly kind: 'iota';
      readonly shape: readonly number[];
      readonly permutation: readonly number[];
    }
  | { readonly kind: 'list'; readonly ids: readonly number[] };

const MAX_DEVICES = 1 << 20;

/** @throws E_SYNTAX with the column in the string, E_TYPE for counts that do not fit */
export function parseGspmd(text: string): GspmdSharding {
  const scan = new Scan(text);
  const found = scan.sharding(0);
  if (!scan.atEnd()) scan.fail('the end of the sharding');
  return found;
}

class Scan {
  private at = 0;
  constructor(private readonly text: string) {}

  fail(expected: string): never {
    throw new ShardwrightError(
      'E_SYNTAX',
      `mhlo.sharding "${this.text}": expected ${expected} at character ${this.at + 1}`,
      {
        hint:
          'as in {devices=[2,1,4]<=[8] last_tile_dim_replicate}, {replicated} or {maximal ' +
          'device=0}',
      },
    );
  }

  atEnd(): boolean {
    this.blanks();
    return this.at >= this.text.length;
  }
  private blanks(): void {
    while (this.text[this.at] === ' ') this.at++;
  }
  private take(token: string): boolean {
    this.blanks();
    if (!this.text.startsWith(token, this.at)) return false;
    this.at += token.length;
    return true;
  }
  private expect(token: string): void {
    if (!this.take(token)) this.fail(`'${token}'`);
  }
  private number(): number {
    this.blanks();
    let end = this.at;
    while (/[0-9]/.test(this.text.charAt(end))) end++;
    if (end === this.at || end - this.at > 15) this.fail('a number');
    const value = Number(this.text.slice(this.at, end));
    this.at = end;
    return value;
  }
  private numbers(close: string): number[] {
    const out = [this.number()];
    while (this.take(',')) out.push(this.number());
    if (close !== '') this.expect(close);
    return out;
  }

  sharding(depth: number): GspmdSharding {
    if (depth > 64) this.fail('fewer brackets');
    this.expect('{');
    if (this.take('}')) return { kind: 'tuple', items: [] };
    this.blanks();
    if (this.text[this.at] === '{') {
      const items = [this.sharding(depth + 1)];
      while (this.take(',')) items.push(this.sharding(depth + 1));
      this.expect('}');
      return { kind: 'tuple', items };
    }
    const found = this.single();
    if (this.take('metadata=')) this.metadata();
    this.expect('}');
    return found;
  }

  private single(): GspmdSharding {
    if (this.take('replicated')) return { kind: 'replicated' };
    if (this.take('manual')) return { kind: 'manual' };
    if (this.take('unknown')) return { kind: 'unknown' };
    if (this.take('maximal')) {
      this.expect('device=');
      return { kind: 'maximal', device: this.number() };
    }
    this.expect('devices=');
    this.expect('[');
    const tiles = this.numbers(']');
    const count = product(tiles);
    if (count < 1 || count > MAX_DEVICES)
      this.fail(`between 1 and ${MAX_DEVICES} devices (this has ${count})`);
    const devices = this.devices(count);
    let subgroups: string[] = [];
    if (this.take('last_tile_dim_replicate')) subgroups = ['replicated'];
    else if (this.take('last_tile_dims=')) {
      this.expect('{');
      do {
        const word =
          ['replicated', 'manual', 'unreduced'].find((w) => this.take(w)) ??
          this.fail('a kind of subgroup');
        subgroups.push(word);
      } while (this.take(','));
      this.expect('}');
    }
    if (subgroups.length > tiles.length) this.fail('no more subgroup dims than tile dims');
    return { kind: 'tiled', tiles, rank: tiles.length - subgroups.length, subgroups, devices };
  }

  private devices(count: number): DeviceOrder {
    if (!this.take('<=')) {
      const ids = this.numbers('');
      if (ids.length !== count) this.fail(`${count} devices (there are ${ids.length})`);
      const seen = new Set(ids);
      if (seen.size !== ids.length) this.fail('every device once');
      return { kind: 'list', ids };
    }
    this.expect('[');
    const shape = this.numbers(']');
    if (elements(shape) !== count) this.fail(`${count} devices in [${shape.join(',')}]`);
    let permutation = shape.map((_, i) => i);
    if (this.take('T')) {
      this.expect('(');
      permutation = this.numbers(')');
      const sorted = [...permutation].sort((a, b) => a - b);
      if (permutation.length !== shape.length || sorted.some((d, i) => d !== i))
        this.fail('a permutation of the dims');
    }
    return { kind: 'iota', shape, permutation };
  }

  private metadata(): void {
    let depth = 0;
    do {
      if (this.at >= this.text.length) this.fail(`'}'`);
      if (this.text[this.at] === '{') depth++;
      else if (this.text[this.at] === '}') depth--;
      this.at++;
    } while (depth > 0);
  }
}

/** Device of every tile, row-major over the tiles. */
export function tileDevices(order: DeviceOrder): Int32Array {
  if (order.kind === 'list') return Int32Array.from(order.ids);
  const { shape, permutation } = order;
  const strides = new Array<number>(shape.length).fill(1);
  for (let i = shape.length - 2; i >= 0; i--)
    strides[i] = itemAt(strides, i + 1) * itemAt(shape, i + 1);
  const dims = permutation.map((d) => ({
    size: itemAt(shape, d),
    step: itemAt(strides, d),
    at: 0,
  }));
  const innermostFirst = dims.toReversed();
  const out = new Int32Array(elements(shape));
  for (let flat = 0, device = 0; flat < out.length; flat++) {
    out[flat] = device;
    for (const dim of innermostFirst) {
      device += dim.step;
      if (++dim.at < dim.size) break;
      device -= dim.step * dim.size;
      dim.at = 0;
    }
  }
  return out;
}
