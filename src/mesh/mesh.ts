import { ShardwrightError, suggestion } from '../errors.ts';

/**
 * A device mesh: named dims, outermost first, over a table of device ids. Without a table the ids are 0..N-1 in
 * lexicographic order (the last dim is the fastest). The room knows nothing of graphs or hardware.
 */

export interface MeshDim {
  readonly name: string;
  readonly size: number;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_.-]*$/;

export class DeviceMesh {
  readonly names: readonly string[];
  readonly sizes: readonly number[];
  /** Rank step of each dim: row-major over the sizes. */
  readonly strides: readonly number[];
  /** Number of devices. */
  readonly size: number;
  /** Device id of every rank. */
  readonly devices: readonly number[];

  /**
   * @param dims outermost first
   * @param devices device id of every rank; default 0..N-1
   * @throws E_MESH naming the dim or device that is wrong
   */
  constructor(
    readonly dims: readonly MeshDim[],
    devices?: readonly number[],
  ) {
    const seen = new Set<string>();
    let total = 1;
    for (const { name, size } of dims) {
      if (!NAME.test(name))
        throw new ShardwrightError('E_MESH', `mesh dim name '${name}' is not an identifier`, {
          hint: 'use letters, digits and _, as in dp=8,tp=8',
        });
      if (seen.has(name))
        throw new ShardwrightError('E_MESH', `mesh dim '${name}' is given twice`, {
          hint: `rename one of them, such as ${name}2`,
        });
      seen.add(name);
      if (!Number.isSafeInteger(size) || size < 1)
        throw new ShardwrightError('E_MESH', `mesh dim '${name}' has size ${size}, expected an integer of at least 1`, {
          hint: `write ${name}=1 or leave the dim out`,
        });
      total *= size;
    }
    if (!Number.isSafeInteger(total) || total > MAX_DEVICES)
      throw new ShardwrightError('E_MESH', `the mesh has ${total} devices, more than ${MAX_DEVICES}`);
    if (devices !== undefined) {
      if (devices.length !== total)
        throw new ShardwrightError('E_MESH', `the mesh has ${total} places but ${devices.length} device ids`, {
          hint: 'give one device id for each place, or none for 0..N-1',
        });
      const ids = new Set<number>();
      for (const id of devices) {
        if (ids.has(id)) throw new ShardwrightError('E_MESH', `device ${id} is in the mesh twice`);
        ids.add(id);
      }
    }
    this.names = dims.map((d) => d.name);
    this.sizes = dims.map((d) => d.size);
    const strides: number[] = new Array<number>(dims.length).fill(1);
    for (let i = dims.length - 2; i >= 0; i--) strides[i] = strides[i + 1] * dims[i + 1].size;
    this.strides = strides;
    this.size = total;
    this.devices = devices ?? Array.from({ length: total }, (_, i) => i);
  }

  /** Number of mesh dims. */
  get rank(): number {
    return this.dims.length;
  }

  /** `dp=8,tp=8`: what `parseMesh` reads. */
  get text(): string {
    return this.dims.map((d) => `${d.name}=${d.size}`).join(',');
  }

  /** `DeviceMesh((dp=2, tp=2), stride=(2, 1))`; a table that is not 0..N-1 is printed too. */
  toString(): string {
    const dims = this.dims.map((d) => `${d.name}=${d.size}`).join(', ');
    const plain = this.devices.every((id, i) => id === i);
    const table = plain ? '' : `, devices=(${this.devices.join(', ')})`;
    return `DeviceMesh((${dims}), stride=(${this.strides.join(', ')})${table})`;
  }

  /** Position of a named dim. @throws E_MESH with the nearest names */
  indexOf(name: string): number {
    const i = this.names.indexOf(name);
    if (i < 0)
      throw new ShardwrightError('E_MESH', `the mesh ${this.text} has no dim '${name}'`, {
        hint: suggestion(name, this.names, 'mesh dims'),
      });
    return i;
  }

  /** Coordinates of a rank, outermost first. */
  coordinates(rank: number): number[] {
    return this.sizes.map((size, i) => Math.floor(rank / this.strides[i]) % size);
  }

  /**
   * Groups of devices that talk to each other over the given dims: together iff they agree on every other coordinate.
   * Groups are listed in the lexicographic order of those other coordinates; members ascend.
   */
  groups(dims: readonly (number | string)[]): number[][] {
    return this.orderedGroups(dims).map((g) => g.sort((a, b) => a - b));
  }

  /** The same groups in gather order: members follow the lexicographic order of `dims` as listed. */
  orderedGroups(dims: readonly (number | string)[]): number[][] {
    const own = this.resolve(dims);
    const others = this.sizes.map((_, i) => i).filter((i) => !own.includes(i));
    const inner = this.offsets(own);
    return this.offsets(others).map((base) => inner.map((o) => this.devices[base + o]));
  }

  /** Product of the sizes of some dims. */
  sizeOf(dims: readonly number[]): number {
    let n = 1;
    for (const d of dims) n *= this.sizes[d];
    return n;
  }

  /** Rank offsets of all coordinates of `dims`, the last listed fastest. */
  private offsets(dims: readonly number[]): number[] {
    let out = [0];
    for (const d of dims) {
      const next: number[] = [];
      for (const base of out) for (let c = 0; c < this.sizes[d]; c++) next.push(base + c * this.strides[d]);
      out = next;
    }
    return out;
  }

  private resolve(dims: readonly (number | string)[]): number[] {
    const out: number[] = [];
    for (const d of dims) {
      const i = typeof d === 'number' ? d : this.indexOf(d);
      if (!Number.isInteger(i) || i < 0 || i >= this.rank)
        throw new ShardwrightError('E_MESH', `mesh dim ${i} is out of range: ${this.text} has ${this.rank} dims`);
      if (out.includes(i)) throw new ShardwrightError('E_MESH', `mesh dim '${this.names[i]}' is listed twice`);
      out.push(i);
    }
    return out;
  }
}

const MAX_DEVICES = 1 << 24;

/**
 * Reads `dp=8,tp=8`, outermost dim first; blanks around names and numbers are allowed.
 *
 * @throws E_SYNTAX with the column, or E_MESH for duplicate names and sizes below 1
 */
export function parseMesh(text: string): DeviceMesh {
  const dims: MeshDim[] = [];
  let column = 1;
  const parts = text.split(',');
  for (const part of parts) {
    const trimmed = part.trim();
    const at = column + part.length - part.trimStart().length;
    const fail = (message: string, hint: string): never => {
      throw new ShardwrightError('E_SYNTAX', `mesh '${text}': ${message} at column ${at}`, {
        hint,
        position: { line: 1, column: at },
        excerpt: text,
      });
    };
    if (trimmed === '')
      fail(text.trim() === '' ? 'no mesh dims' : 'a mesh dim is missing', 'write NAME=SIZE, as in dp=8,tp=8');
    const match = /^([^=\s]+)\s*=\s*([^=\s]+)$/.exec(trimmed);
    if (match === null) {
      const loose = /^([A-Za-z_][\w.-]*?)\s*[:x*\s-]?\s*(\d+)$/.exec(trimmed);
      fail(
        `expected NAME=SIZE, got '${trimmed}'`,
        loose !== null ? `did you mean '${loose[1]}=${loose[2]}'?` : 'write NAME=SIZE, as in dp=8,tp=8',
      );
    } else {
      if (!NAME.test(match[1]))
        fail(`'${match[1]}' is not a name of a mesh dim`, 'start with a letter, as in dp=8,tp=8');
      if (!/^[+-]?\d+$/.test(match[2]))
        fail(`size of '${match[1]}' is '${match[2]}', expected an integer`, `write ${match[1]}=8`);
      dims.push({ name: match[1], size: Number(match[2]) });
    }
    column += part.length + 1;
  }
  return new DeviceMesh(dims);
}
