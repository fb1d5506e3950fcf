/**
 * A device mesh: named dims, outermost first, over a table of device ids. Without a table the ids
 * are 0..N-1 in lexicographic order (the last dim is the fastest). This folder knows nothing of
 * graphs or hardware.
 */

import { checkItems, checkKinds } from '../../arguments.ts';
import { ShardwrightError, suggestion, valueText, wrongArgument } from '../../errors.ts';
import { product } from '../../product.ts';

/** One dim of a mesh: its name, and its size in devices. */
export interface MeshDim {
  readonly name: string;
  readonly size: number;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_.-]*$/;

/** Devices of a mesh with these dims. */
export function meshSize(dims: readonly Pick<MeshDim, 'size'>[]): number {
  return product(dims.map(({ size }) => size));
}

/** Devices of a mesh with these dims. @throws E_MESH naming the dim that is wrong */
function checkedSize(dims: readonly MeshDim[]): number {
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
      throw new ShardwrightError(
        'E_MESH',
        `mesh dim '${name}' has size ${size}, expected an integer of at least 1`,
        {
          hint: `write ${name}=1 or leave the dim out`,
        },
      );
    total *= size;
  }
  if (!Number.isSafeInteger(total) || total > MAX_DEVICES)
    throw new ShardwrightError(
      'E_MESH',
      `the mesh has ${total} devices, more than ${MAX_DEVICES}`,
      {
        hint:
          `make the dims smaller: their product (${dims.map((d) => d.size).join(' x ')}) may ` +
          `be ${MAX_DEVICES} at most`,
      },
    );
  return total;
}

/** @throws E_MESH for ids that are not those of so many different devices */
function checkDevices(devices: readonly number[], total: number): void {
  if (devices.length !== total)
    throw new ShardwrightError(
      'E_MESH',
      `the mesh has ${total} places but ${devices.length} device ids`,
      {
        hint: 'give one device id for each place, or none for 0..N-1',
      },
    );
  const ids = new Map<number, number>();
  for (const [rank, id] of devices.entries()) {
    if (!Number.isSafeInteger(id) || id < 0)
      throw new ShardwrightError(
        'E_MESH',
        `device id ${id} of rank ${rank} is not an integer of at least 0`,
      );
    const before = ids.get(id);
    if (before !== undefined)
      throw new ShardwrightError(
        'E_MESH',
        `device ${id} is in the mesh twice, as ranks ${before} and ${rank}`,
      );
    ids.set(id, rank);
  }
}

/**
 * Devices as an n-dimensional array with named dims, outermost first. Also called `DeviceMesh` in
 * PyTorch, `Mesh` in JAX.
 */
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
    checkKinds('DeviceMesh', {
      dims: [dims, 'meshDims'],
      devices: [devices, 'numbers', 'undefined'],
    });
    checkItems('DeviceMesh', 'dims', dims, ['name', 'size']);
    if (devices !== undefined) checkItems('DeviceMesh', 'devices', devices, 'number');
    const total = checkedSize(dims);
    if (devices !== undefined) checkDevices(devices, total);
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

  /** Number of mesh dims of several devices; the others, the trivial dims, cut nothing. */
  get activeRank(): number {
    return this.sizes.filter((size) => size > 1).length;
  }

  /** `dp=8,tp=8`: what `parseMesh` reads. */
  get text(): string {
    return this.dims.map((d) => `${d.name}=${d.size}`).join(',');
  }

  /**
   * `DeviceMesh((dp=2, tp=2), stride=(2, 1))`: what `parseMesh` reads back. The strides step
   * through device ids from 0 on, so that every second device is `DeviceMesh((dp=2), stride=(2))`;
   * a table that no strides give is printed after them.
   */
  toString(): string {
    const dims = this.dims.map((d) => `${d.name}=${d.size}`).join(', ');
    const steps = this.deviceStrides;
    const table = steps === undefined ? `, devices=(${this.devices.join(', ')})` : '';
    return `DeviceMesh((${dims}), stride=(${(steps ?? this.strides).join(', ')})${table})`;
  }

  /**
   * Step of the device id along each dim, where the table counts from 0 in even steps; undefined
   * for other tables.
   */
  get deviceStrides(): readonly number[] | undefined {
    const steps = this.dims.map(({ size }, i) =>
      size === 1 ? this.strides[i] : this.devices[this.strides[i]],
    );
    const table = stridedTable(this.sizes, steps);
    return this.devices.every((id, rank) => id === table[rank]) ? steps : undefined;
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
   * Groups of devices that talk to each other over the given dims: together iff they agree on every
   * other coordinate. Groups are listed in the lexicographic order of those other coordinates;
   * members ascend.
   */
  groups(dims: readonly (number | string)[]): number[][] {
    return this.orderedGroups(dims).map((g) => g.sort((a, b) => a - b));
  }

  /**
   * The same groups in gather order: members follow the lexicographic order of `dims` as listed.
   */
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
    return stridedTable(
      dims.map((d) => this.sizes[d]),
      dims.map((d) => this.strides[d]),
    );
  }

  /**
   * Positions of dims given by name or position, in the order given. @throws E_MESH for an unknown
   * dim or one listed twice
   */
  resolve(dims: readonly (number | string)[]): number[] {
    const out: number[] = [];
    for (const d of dims) {
      const i = typeof d === 'number' ? d : this.indexOf(d);
      if (!Number.isInteger(i) || i < 0 || i >= this.rank)
        throw new ShardwrightError(
          'E_MESH',
          `mesh dim ${i} is out of range: ${this.text} has ${this.rank} dims`,
        );
      if (out.includes(i))
        throw new ShardwrightError('E_MESH', `mesh dim '${this.names[i]}' is listed twice`);
      out.push(i);
    }
    return out;
  }
}

const MAX_DEVICES = 1 << 24;

/** Mesh dims that a plan has at most: what calls can do is counted over all of them. */
const MOST_PLANNED_DIMS = 6;

/** @throws E_MESH for a mesh of more dims than are planned on */
export function checkPlannedDims({ rank, text }: DeviceMesh): void {
  if (rank <= MOST_PLANNED_DIMS) return;
  throw new ShardwrightError(
    'E_MESH',
    `the mesh ${text} has ${rank} dims, plans have at most ${MOST_PLANNED_DIMS}`,
    {
      hint:
        'make one dim of two that share their links, such as ab=4 of a=2,b=2, and leave out ' +
        'dims of size 1.',
    },
  );
}

/**
 * Sum of coordinate times step for all coordinates in lexicographic order, the last dim fastest.
 */
function stridedTable(sizes: readonly number[], steps: readonly number[]): number[] {
  let out = [0];
  sizes.forEach((size, d) => {
    const next = new Array<number>(out.length * size);
    let at = 0;
    for (const base of out) for (let c = 0; c < size; c++) next[at++] = base + c * steps[d];
    out = next;
  });
  return out;
}

/**
 * Reads `dp=8,tp=8`, outermost dim first; blanks around names and numbers are allowed. Also reads
 * what `DeviceMesh` prints, and what PyTorch prints: `DeviceMesh((dp=2, tp=2), 'cuda', stride=(2,
 * 1))`, where the kind of device says nothing here.
 *
 * @throws E_SYNTAX with the column, or E_MESH for duplicate names and sizes below 1
 */
export function parseMesh(text: string): DeviceMesh {
  if (typeof text !== 'string')
    throw wrongArgument('parseMesh', 'text', valueText(text), "give parseMesh('dp=8,tp=8').");
  const printed = text.trimStart();
  return printed.startsWith('DeviceMesh')
    ? parsePrinted(text)
    : new DeviceMesh(parseDims(text, 1, text, `mesh '${text}'`));
}

/** `dp=8,tp=8` as a part of `whole` that starts at a 1-based column. */
function parseDims(text: string, start: number, whole: string, what: string): MeshDim[] {
  const dims: MeshDim[] = [];
  let column = start;
  const parts = text.split(',');
  for (const part of parts) {
    const trimmed = part.trim();
    const at = column + part.length - part.trimStart().length;
    const fail = (message: string, hint: string): never => {
      throw new ShardwrightError('E_SYNTAX', `${what}: ${message} at column ${at}`, {
        hint,
        position: { line: 1, column: at },
        excerpt: whole,
      });
    };
    if (trimmed === '')
      fail(
        text.trim() === '' ? 'no mesh dims' : 'a mesh dim is missing',
        'write NAME=SIZE, as in dp=8,tp=8',
      );
    const match = /^([^=\s]+)\s*=\s*([^=\s]+)$/.exec(trimmed);
    if (match === null) {
      const loose = /^([A-Za-z_][\w.-]*?)\s*[:x*\s-]?\s*(\d+)$/.exec(trimmed);
      fail(
        `expected NAME=SIZE, got '${trimmed}'`,
        loose !== null
          ? `did you mean '${loose[1]}=${loose[2]}'?`
          : 'write NAME=SIZE, as in dp=8,tp=8',
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
  return dims;
}

/**
 * The printed form, in any case with one stride for each dim; strides other than row-major give the
 * table themselves.
 */
function parsePrinted(text: string): DeviceMesh {
  const fail = (message: string, at: number): never => {
    throw new ShardwrightError('E_SYNTAX', `printed mesh: ${message} at column ${at + 1}`, {
      hint: 'write DeviceMesh((dp=2, tp=2), stride=(2, 1)), or dp=2,tp=2',
      position: { line: 1, column: at + 1 },
      excerpt: text,
    });
  };
  let at = 0;
  const take = (pattern: RegExp, expected: string): string => {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match === null) return fail(`expected ${expected}`, at);
    at = pattern.lastIndex;
    return match[1] ?? '';
  };
  const integers = (what: string): number[] => {
    const start = at;
    const list = take(/\s*\(([\d,\s]*)\)/y, `${what} in brackets`).replace(/,\s*$/, '');
    if (list.trim() === '') return [];
    return list
      .split(',')
      .map((part) => (/^\s*\d+\s*$/.test(part) ? Number(part) : fail(`a gap in ${what}`, start)));
  };
  take(/\s*DeviceMesh\s*\(\s*\(/y, "'DeviceMesh(('");
  const start = at;
  const inner = take(/([^()]*)\)/y, "NAME=SIZE and ')'");
  const dims =
    inner.trim() === ''
      ? []
      : parseDims(inner.replace(/,\s*$/, ''), start + 1, text, 'printed mesh');
  take(/\s*(?:,\s*'[a-z]*'\s*)?,\s*stride\s*=/y, "', stride='");
  const stridesAt = at;
  const strides = integers('strides');
  if (strides.length !== dims.length)
    fail(`${strides.length} strides for ${dims.length} dims`, stridesAt);
  let devices: number[] | undefined;
  if (/\s*,/y.test(text.slice(at))) {
    take(/\s*,\s*devices\s*=/y, "', devices='");
    devices = integers('device ids');
  }
  take(/\s*\)\s*$/y, "')' at the end");
  const rowMajor = new DeviceMesh(dims);
  if (devices === undefined) return new DeviceMesh(dims, stridedTable(rowMajor.sizes, strides));
  strides.forEach((s, i) => {
    if (s !== rowMajor.strides[i])
      fail(
        `stride ${s} of '${dims[i].name}' with a table of devices, expected ` +
          `${rowMajor.strides[i]}`,
        stridesAt,
      );
  });
  return new DeviceMesh(dims, devices);
}
