/**
 * The innermost loops of eliminations and sweeps in WebAssembly with 128-bit vectors, written out
 * instruction by instruction below. Both take sums in the same order as their readers do in
 * JavaScript, so the numbers are the same bit by bit; only the time differs.
 *
 * Opcodes: WebAssembly core specification 2.0, section 5.4 (instructions) and 5.5 (modules).
 */

/** Kernels on one memory; all places and strides are in bytes, and numbers are float64. */
interface Kernel {
  /**
   * For b < width: to[b] = least over a of sum[a] + x[a], x moving on by `step` per b. `length` is
   * the bytes of `sum` that count, a multiple of 32: past its end `sum` is filled with Infinity,
   * and what `x` holds there does not matter.
   */
  readonly least: (
    sum: number,
    length: number,
    x: number,
    step: number,
    width: number,
    to: number,
  ) => void;
  /** The same with sum[a] + x[a] + y[a], in this order. */
  readonly leastOfTwo: (
    sum: number,
    length: number,
    x: number,
    step: number,
    y: number,
    stepY: number,
    width: number,
    to: number,
  ) => void;
  /**
   * to[b] = least over a < size of own[a] + cells[a][b], for all b whose bytes are below `length`,
   * a multiple of 16; rows of `cells` follow one another after `stride`. Rows whose `own` is
   * Infinity change nothing.
   */
  readonly send: (
    own: number,
    size: number,
    cells: number,
    stride: number,
    length: number,
    to: number,
  ) => void;
}

const I32 = 0x7f;
const V128 = 0x7b;

/** Numbers of variable length, as the binary format has them (values below 2^31). */
function leb(n: number): number[] {
  const out: number[] = [];
  for (; n > 0x7f; n >>>= 7) out.push((n & 0x7f) | 0x80);
  return [...out, n];
}

const list = (items: readonly (readonly number[])[]): number[] => [
  ...leb(items.length),
  ...items.flat(),
];
const section = (id: number, body: readonly number[]): number[] => [
  id,
  ...leb(body.length),
  ...body,
];
const text = (s: string): number[] => list([...s].map((c) => [c.charCodeAt(0)]));

// Instructions by what they do here.
const get = (k: number): number[] => [0x20, k];
const set = (k: number): number[] => [0x21, k];
const load = (offset = 0): number[] => [0xfd, 0x00, 3, offset];
const storeAt = (offset: number): number[] => [0xfd, 0x0b, 3, offset];
const storeNumber = [0x39, 3, 0];
const loadSplat = [0xfd, 0x0a, 3, 0];
const addVector = [0xfd, 0xf0, 0x01];
/** (x, y) -> y < x ? y : x per lane. */
const lesser = [0xfd, 0xf6, 0x01];
const lane = (k: number): number[] => [0xfd, 0x21, k];
const lesserNumber = [0xa4];
const zero = [0x41, 0];
const add = [0x6a];
const below = [0x49];
const above = [0x4b];
const notBelow = [0x4f];
const block = [0x02, 0x40];
const loop = [0x03, 0x40];
const again = [0x0d, 0];
/**
 * Goes on in the loop whatever the stack says, and leaves the block around it where the stack says
 * so.
 */
const repeat = [0x0c, 0];
const leave = [0x0d, 1];
const end = [0x0b];
/** A number below 8192; constants are signed, so that bit 6 of the last byte must be clear. */
const constant = (n: number): number[] => [0x41, ...(n < 0x40 ? [n] : [(n & 0x7f) | 0x80, n >> 7])];
const by = (k: number, amount: number): number[] => [
  ...get(k),
  ...constant(amount),
  ...add,
  ...set(k),
];
const move = (k: number, other: number): number[] => [...get(k), ...get(other), ...add, ...set(k)];
const less = (k: number): number[] => [...get(k), 0x41, 0x7f, ...add, 0x22, k];
/** A vector of two Infinities. */
const endless = [0xfd, 0x0c, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f];

/** Vectors of a cache line. */
const WIDE = 4;

/** `least` (one table) or `leastOfTwo`: parameters sum, length, (table, step) each, width, to. */
function leastBody(tables: 1 | 2): number[] {
  const width = 2 + 2 * tables;
  const to = width + 1;
  const k = to + 1;
  const [low, high] = [k + 1, k + 2];
  const part = (offset: number): number[] => [
    ...[...get(0), ...get(k), ...add, ...load(offset)],
    ...[2, 4]
      .slice(0, tables)
      .flatMap((t) => [...get(t), ...get(k), ...add, ...load(offset), ...addVector]),
  ];
  const code = [
    ...loop,
    ...[...endless, ...set(low), ...endless, ...set(high), ...zero, ...set(k)],
    ...loop,
    ...[...get(low), ...part(0), ...lesser, ...set(low)],
    ...[...get(high), ...part(16), ...lesser, ...set(high)],
    ...[...by(k, 32), ...get(k), ...get(1), ...below, ...again],
    ...end,
    ...[...get(to), ...get(low), ...get(high), ...lesser, 0x22, low],
    ...[...lane(0), ...get(low), ...lane(1), ...lesserNumber, ...storeNumber],
    ...[...by(to, 8), ...[2, 4].slice(0, tables).flatMap((t) => move(t, t + 1))],
    ...[...less(width), ...again],
    ...end,
  ];
  return body(
    [
      [1, I32],
      [2, V128],
    ],
    code,
  );
}

/** Parameters of `send`, then its locals. */
const [OWN, SIZE, CELLS, STRIDE, LENGTH, TO, K, A, AT, COLUMN, NUMBER] = [
  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
];

/** `send`: parameters own, size, cells, stride, length, to. */
function sendBody(): number[] {
  // The last vector may reach past `length`, by one number.
  const isOver = (vectors: number): number[] =>
    vectors === 1
      ? [...get(K), ...get(LENGTH), ...notBelow]
      : [...get(K), ...constant(16 * vectors), ...add, ...get(LENGTH), ...above];
  const whileLeft = (vectors: number): number[] => [
    ...[...block, ...loop, ...isOver(vectors), ...leave],
    ...[...sendColumns(vectors), ...repeat, ...end, ...end],
  ];
  return body(
    [
      [4, I32],
      [1 + WIDE, V128],
    ],
    [...zero, ...set(K), ...whileLeft(WIDE), ...whileLeft(1)],
  );
}

/**
 * Sends some columns at a time, so that running least values stay in registers: those of a cache
 * line, then two by two.
 */
function sendColumns(vectors: number): number[] {
  const each = Array.from({ length: vectors }, (_, v) => [NUMBER + 1 + v, 16 * v] as const);
  return [
    ...[...each.flatMap(([low]) => [...endless, ...set(low)])],
    ...[
      ...get(OWN),
      ...set(AT),
      ...get(CELLS),
      ...get(K),
      ...add,
      ...set(COLUMN),
      ...get(SIZE),
      ...set(A),
    ],
    ...loop,
    ...[...get(AT), ...loadSplat, ...set(NUMBER)],
    ...each.flatMap(([low, offset]) => [
      ...[
        ...get(low),
        ...get(NUMBER),
        ...get(COLUMN),
        ...load(offset),
        ...addVector,
        ...lesser,
        ...set(low),
      ],
    ]),
    ...[...by(AT, 8), ...move(COLUMN, STRIDE), ...less(A), ...again],
    ...end,
    ...each.flatMap(([low, offset]) => [
      ...get(TO),
      ...get(K),
      ...add,
      ...get(low),
      ...storeAt(offset),
    ]),
    ...by(K, 16 * vectors),
  ];
}

function body(locals: readonly (readonly [number, number])[], code: readonly number[]): number[] {
  const inner = [...list(locals.map(([n, type]) => [...leb(n), type])), ...code, ...end];
  return [...leb(inner.length), ...inner];
}

function moduleBytes(): Uint8Array<ArrayBuffer> {
  const type = (parameters: number): number[] => [
    0x60,
    ...list(new Array<number[]>(parameters).fill([I32])),
    0,
  ];
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, list([type(6), type(8)])),
    ...section(2, list([[...text('own'), ...text('memory'), 2, 0, ...leb(1)]])),
    ...section(3, list([[0], [1], [0]])),
    ...section(
      7,
      list([
        [...text('least'), 0, 0],
        [...text('leastOfTwo'), 0, 1],
        [...text('send'), 0, 2],
      ]),
    ),
    ...section(10, list([leastBody(1), leastBody(2), sendBody()])),
  ]);
}

/** The part of WebAssembly's interface that is used here, which the types of Node 20 leave out. */
interface Memory {
  readonly buffer: ArrayBuffer;
  readonly grow: (pages: number) => number;
}
interface Engine {
  readonly Memory: new (limits: { readonly initial: number; readonly maximum: number }) => Memory;
  readonly Module: new (bytes: Uint8Array<ArrayBuffer>) => object;
  readonly Instance: new (
    module: object,
    imports: { readonly own: { readonly memory: Memory } },
  ) => { readonly exports: unknown };
}
const engine = (globalThis as unknown as { readonly WebAssembly: Engine }).WebAssembly;

let compiled: object | undefined;

/** The kernels on a memory. The module is compiled once per thread. */
function kernelOn(memory: Memory): Kernel {
  compiled ??= new engine.Module(moduleBytes());
  return new engine.Instance(compiled, { own: { memory } }).exports as Kernel;
}

/** Bytes of a page of memory, and the most pages that a memory may have (3 GiB). */
const PAGE = 65536;
const MOST_PAGES = 49_152;

/** Float64 numbers in memory that kernels reach; grows, keeping what it holds. */
export class Arena {
  private readonly memory = new engine.Memory({ initial: 16, maximum: MOST_PAGES });
  readonly kernel = kernelOn(this.memory);
  /** All numbers; a new view after every growth. */
  numbers = new Float64Array(this.memory.buffer);

  /**
   * Makes the memory hold `length` numbers, and at least doubles it if it was too small. Throws
   * RangeError past 3 GiB.
   */
  need(length: number): void {
    const pages = Math.ceil((8 * length) / PAGE);
    const present = this.memory.buffer.byteLength / PAGE;
    if (pages <= present) return;
    this.memory.grow(Math.max(pages, Math.min(2 * present, MOST_PAGES)) - present);
    this.numbers = new Float64Array(this.memory.buffer);
  }
}
