import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { describe, expect, it, test } from 'vitest';

import { ShardwrightError } from '../../../src/errors.ts';
import {
  evaluateEinshardProgram,
  type ProgramResult,
} from '../../../src/notations/einshard-program/program.ts';
import { readEinshardProgram } from '../../../src/notations/einshard-program/steps.ts';

const WHOLE = '... -> * ...';
const STEPS = ['Y = bx,xy->by', 'relu', 'Z = by,yz->bz'];

/** The MLP of the tutorial on 8 devices. */
function mlp(x: string, w1: string, w2: string, steps: readonly string[] = STEPS): ProgramResult {
  return run({
    devices: 8,
    tensors: [
      { name: 'X', shape: [8, 128], expression: x },
      { name: 'W1', shape: [128, 256], expression: w1 },
      { name: 'W2', shape: [256, 64], expression: w2 },
    ],
    steps,
  });
}

function run(program: unknown): ProgramResult {
  return evaluateEinshardProgram(readEinshardProgram(JSON.stringify(program)));
}

/** Placements of a tensor from its step on: `P(sum)>R`. */
function course(result: ProgramResult, name: string): string {
  const found = result.tensors.find((t) => t.name === name);
  return found === undefined
    ? 'missing'
    : found.history.map((h) => h.placements.join('')).join('>');
}
function local(result: ProgramResult, name: string): readonly number[] | undefined {
  return result.tensors.find((t) => t.name === name)?.localShape;
}
const ALL8 = [[0, 1, 2, 3, 4, 5, 6, 7]];

describe('the table of the tutorial MLP', () => {
  interface Row {
    readonly at: readonly [x: string, w1: string, w2: string];
    readonly courses: Readonly<Record<string, string>>;
    readonly local: Readonly<Record<string, readonly number[]>>;
    readonly collectives: readonly [
      kind: string,
      shape: number[],
      groups: number[][],
      tensor: string,
      before: string,
    ][];
  }
  const rows: readonly [string, Row][] = [
    [
      'y',
      {
        at: [WHOLE, 'x y -> x y*', 'y z -> y* z'],
        courses: { X: 'R', W1: 'S(1)', W2: 'S(0)', Y: 'S(1)', Z: 'P(sum)>R' },
        local: { W1: [128, 32], W2: [32, 64], Z: [8, 64] },
        collectives: [['all_reduce', [8, 64], ALL8, 'Z', 'the end']],
      },
    ],
    [
      'b',
      {
        at: ['b x -> b* x', WHOLE, WHOLE],
        courses: { X: 'S(0)', W1: 'R', W2: 'R', Y: 'S(0)', Z: 'S(0)' },
        local: { Z: [1, 64] },
        collectives: [],
      },
    ],
    [
      'z',
      {
        at: [WHOLE, WHOLE, 'y z -> y z*'],
        courses: { X: 'R', W1: 'R', W2: 'S(1)', Y: 'R', Z: 'S(1)' },
        local: { Z: [8, 8] },
        collectives: [],
      },
    ],
    [
      'x then z',
      {
        at: ['b x -> b x*', 'x y -> x* y', 'y z -> y z*'],
        courses: { X: 'S(1)', W1: 'S(0)', W2: 'S(1)', Y: 'P(sum)>R', Z: 'S(1)' },
        local: { Z: [8, 8] },
        collectives: [['all_reduce', [8, 256], ALL8, 'Y', 'relu']],
      },
    ],
    [
      'x only',
      {
        at: ['b x -> b x*', 'x y -> x* y', WHOLE],
        courses: { X: 'S(1)', W1: 'S(0)', W2: 'R', Y: 'P(sum)>R', Z: 'R' },
        local: { Z: [8, 64] },
        collectives: [['all_reduce', [8, 256], ALL8, 'Y', 'relu']],
      },
    ],
    [
      'W1 on y, W2 on z',
      {
        at: [WHOLE, 'x y -> x y*', 'y z -> y z*'],
        courses: { X: 'R', W1: 'S(1)', W2: 'S(1)', Y: 'S(1)>R', Z: 'S(1)' },
        local: { Z: [8, 8] },
        collectives: [['all_gather', [8, 256], ALL8, 'Y', 'Z']],
      },
    ],
    [
      'b2 x y4',
      {
        at: ['b x -> b2 x 4', 'x y -> 2 x y4', 'y z -> 2 y4 z'],
        courses: { X: 'S(0)R', W1: 'RS(1)', W2: 'RS(0)', Y: 'S(0)S(1)', Z: 'S(0)P(sum)>S(0)R' },
        local: { X: [4, 128], W1: [128, 64], Y: [4, 64], Z: [4, 64] },
        collectives: [
          [
            'all_reduce',
            [4, 64],
            [
              [0, 1, 2, 3],
              [4, 5, 6, 7],
            ],
            'Z',
            'the end',
          ],
        ],
      },
    ],
  ];
  test.each(rows)('%s', (_, row) => {
    const result = mlp(...row.at);
    for (const [name, expected] of Object.entries(row.courses))
      expect(course(result, name), name).toBe(expected);
    for (const [name, expected] of Object.entries(row.local))
      expect(local(result, name), name).toEqual(expected);
    expect(result.collectives).toEqual(
      row.collectives.map(([kind, shape, groups, tensor, before]) => ({
        kind,
        dtype: 'f32',
        shape,
        groups,
        tensor,
        before,
      })),
    );
  });
});

/**
 * Collectives, local parameter shapes and result shape of a program that XLA compiled for one of 8
 * devices.
 */
function readHlo(name: string): {
  collectives: unknown[];
  parameters: number[][];
  result: number[];
} {
  const path = fileURLToPath(
    new URL(`../../fixtures/einshard/mlp-${name}.hlo.gz`, import.meta.url),
  );
  const text = gunzipSync(readFileSync(path)).toString('utf8');
  const sizes = (list: string): number[] => list.split(',').map(Number);
  const collectives: unknown[] = [];
  const pattern =
    /= (f32)\[([\d,]+)\]\S* (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\(.*?replica_groups=(.*?), (?:use|dim)/g;
  for (const [, dtype, shape, kind, groups] of text.matchAll(pattern))
    collectives.push({
      kind: kind.replaceAll('-', '_'),
      dtype,
      shape: sizes(shape),
      groups: readGroups(groups),
    });
  const entry = /^ENTRY \S+ \((.*)\) -> f32\[([\d,]+)\]/m.exec(text);
  if (entry === null) throw new Error(`no entry in ${name}`);
  const parameters = [...entry[1].matchAll(/f32\[([\d,]+)\]/g)].map((m) => sizes(m[1]));
  return { collectives, parameters, result: sizes(entry[2]) };
}

/** The three ways in which XLA writes groups of devices. */
function readGroups(text: string): number[][] {
  const sort = (groups: number[][]): number[][] =>
    groups.map((g) => g.sort((a, b) => a - b)).sort((a, b) => a[0] - b[0]);
  if (text.startsWith('{{'))
    return sort([...text.matchAll(/\{([\d,]+)\}/g)].map((m) => m[1].split(',').map(Number)));
  const named = /^mesh\[(.*)\] \{(.*)\}$/.exec(text);
  if (named !== null) {
    const dims = [...named[1].matchAll(/'(\w+)'=(\d+)/g)].map((m) => [m[1], Number(m[2])] as const);
    return grouped(
      dims.map(([, n]) => n),
      (d) => named[2].includes(`'${dims[d][0]}'`),
    );
  }
  // [g,m]<=[r,c]T(1,0): count over (r, c), perhaps transposed, then cut into g groups of m.
  const iota = /^\[(\d+),(\d+)\]<=\[(\d+)(?:,(\d+))?\](T\(1,0\))?$/.exec(text);
  if (iota === null) throw new Error(`groups ${text}`);
  const [count, members, rows, columns] = iota.slice(1, 5).map((n) => Number(n ?? '1'));
  const ids = Array.from({ length: rows * columns }, (_, i) =>
    iota[5] === undefined ? i : (i % rows) * columns + Math.floor(i / rows),
  );
  return sort(Array.from({ length: count }, (_, g) => ids.slice(g * members, (g + 1) * members)));
}

function grouped(sizes: readonly number[], inside: (dim: number) => boolean): number[][] {
  const groups = new Map<string, number[]>();
  const total = sizes.reduce((n, s) => n * s, 1);
  for (let id = 0; id < total; id++) {
    let rest = id;
    const outside: number[] = [];
    for (let d = sizes.length - 1; d >= 0; d--) {
      if (!inside(d)) outside.push(rest % sizes[d]);
      rest = Math.floor(rest / sizes[d]);
    }
    const key = outside.join();
    groups.set(key, [...(groups.get(key) ?? []), id]);
  }
  return [...groups.values()];
}

describe('JAX 0.10 with Shardy compiles the same programs to the same collectives', () => {
  // Expressions of W1, W2 and X with the shardings that JAX was given.
  test.each([
    ['tutorial-y', 'x y -> x y*', 'y z -> y* z', WHOLE, 1],
    ['batch', WHOLE, WHOLE, 'b x -> b* x', 0],
    ['z-only', WHOLE, 'y z -> y z*', WHOLE, 0],
    ['x-then-z', 'x y -> x* y', 'y z -> y z*', 'b x -> b x*', 1],
    ['mismatch', 'x y -> x y*', 'y z -> y z*', WHOLE, 1],
    ['batch2-y4', 'x y -> * x y4', 'y z -> * y4 z', 'b x -> b2 * x', 1],
    // JAX was given the mesh (p=2, q=4) with z on p and y on q: in einshard the order on the right
    // says so.
    ['2d-weight', 'x y -> x2 y4', 'y z -> z2 y4', WHOLE, 2],
    ['fsdp', 'x y -> x* y', 'y z -> y* z', 'b x -> b* x', 2],
  ])('%s', (name, w1, w2, x, count) => {
    const truth = readHlo(name);
    expect(truth.collectives).toHaveLength(count);
    const result = mlp(x, w1, w2);
    expect(
      result.collectives.map(({ kind, dtype, shape, groups }) => ({ kind, dtype, shape, groups })),
    ).toEqual(truth.collectives);
    expect(['W1', 'W2', 'X'].map((n) => local(result, n))).toEqual(truth.parameters);
    expect(local(result, 'Z')).toEqual(truth.result);
  });
});

describe('what else programs do', () => {
  it('a pending sum passes through a linear step and is reduced where it is smaller', () => {
    const result = mlp('b x -> b x*', 'x y -> x* y', WHOLE, ['Y = bx,xy->by', 'Z = by,yz->bz']);
    expect(course(result, 'Y')).toBe('P(sum)');
    expect(course(result, 'Z')).toBe('P(sum)>R');
    expect(result.collectives.map((c) => c.shape)).toEqual([[8, 64]]);
  });

  it('a pending sum times itself is reduced once, and a cut tensor that a step reads twice is gathered once', () => {
    const X = { name: 'X', shape: [8, 8], expression: 'b x -> b x4' };
    const W = { name: 'W', shape: [8, 8], expression: 'x y -> x4 y' };
    const all = (tensors: readonly object[], ...steps: string[]): string[] =>
      run({ devices: 4, tensors, steps }).collectives.map(
        (c) => `${c.kind} ${c.tensor} before ${c.before}`,
      );
    const square = 'Z = by,bz->yz (Y, Y)';
    expect(all([X, W], 'Y = bx,xy->by', square)).toEqual(['all_reduce Y before Z']);
    expect(all([X, W], 'Y = bx,xy->by', 'Z = by,by,by->by (Y, Y, Y)')).toEqual([
      'all_reduce Y before Z',
    ]);
    // Once it is whole, later steps read it for nothing.
    expect(all([X, W], 'Y = bx,xy->by', square, 'V = by,yz->bz (Y, Z)')).toEqual([
      'all_reduce Y before Z',
    ]);
    expect(all([X], 'Z = bx,cy->bcxy (X, X)')).toEqual(['all_gather X before Z']);
  });

  it('what a named step made stays where it was gathered to', () => {
    const result = mlp(WHOLE, 'x y -> x y*', 'y z -> y z*', [
      'Y = bx,xy->by',
      'H = relu (Y)',
      'Z = by,yz->bz (H, W2)',
      'V = by,yz->bz (H, W2)',
    ]);
    expect(course(result, 'H')).toBe('S(1)>R');
    expect(result.collectives.map((c) => `${c.kind} ${c.tensor} before ${c.before}`)).toEqual([
      'all_gather H before Z',
    ]);
  });

  it('a pending sum that the next product wants cut is reduce-scattered', () => {
    const result = mlp('b x -> b x*', 'x y -> x* y', 'y z -> y* z', [
      'Y = bx,xy->by',
      'Z = by,yz->bz',
    ]);
    expect(result.collectives.map((c) => `${c.kind}[${c.shape.join()}]`)).toEqual([
      'reduce_scatter[8,32]',
      'all_reduce[8,64]',
    ]);
    expect(course(result, 'Y')).toBe('P(sum)>S(1)');
  });

  it('a batch letter of both operands stays local; a letter that does not divide is not cut twice', () => {
    const tensors = {
      Q: { shape: [6, 4, 2], expression: 'h q d -> h3 2 q d' },
      K: { shape: [6, 4, 2], expression: 'h k d -> h3 2 k d' },
    };
    const scores = run({ devices: 6, tensors, steps: ['A = hqd,hkd->hqk', 'exp'] });
    expect(course(scores, 'A')).toBe('S(0)R');
    expect(scores.collectives).toEqual([]);
    const crossed = run({
      devices: 9,
      tensors: {
        Q: { shape: [6, 9], expression: 'h d -> h3 3 d' },
        K: { shape: [6, 9], expression: 'h d -> 3 h3 d' },
      },
      steps: ['A = hd,hd->hd'],
    });
    // h = 6 cannot be cut in 9, so K is gathered.
    expect(course(crossed, 'A')).toBe('S(0)R');
    expect(crossed.collectives.map((c) => `${c.tensor} ${c.kind}[${c.shape.join()}]`)).toEqual([
      'K all_gather[6,9]',
    ]);
  });

  it('operands by letters in any order of the list, or by name', () => {
    const W = { name: 'W', shape: [8, 4], expression: 'x y -> 2 x y' };
    const X = { name: 'X', shape: [2, 8], expression: 'b x -> b2 x' };
    for (const tensors of [
      [W, X],
      [X, W],
    ])
      expect(course(run({ devices: 2, tensors, steps: ['Y = bx,xy->by'] }), 'Y')).toBe('S(0)');
    const square = { name: 'S', shape: [4, 4], expression: 'a b -> a2 b' };
    expect(
      course(run({ devices: 2, tensors: [square], steps: ['G = ka,kb->ab (S, S)'] }), 'G'),
    ).toBe('P(sum)>R');
    const named = run({
      devices: 2,
      tensors: [W, X],
      steps: ['Y = bx,xy->by', 'H = relu (Y)', 'V = by->yb'],
    });
    expect(
      named.tensors.map((t) => `${t.name} ${t.placements.join('')} ${t.localShape.join()}`),
    ).toEqual(['W R 8,4', 'X S(0) 1,8', 'Y S(0) 1,4', 'H S(0) 1,4', 'V S(1) 4,1']);
  });

  const X = { name: 'X', shape: [2, 8], expression: 'b x -> b2 x' };
  test.each<[string, unknown, string, RegExp]>([
    ['no JSON', undefined, 'E_SYNTAX', /not JSON/],
    [
      'an unknown key',
      { devices: 2, tensors: [{ ...X, sharding: 'R' }], steps: [] },
      'E_SYNTAX',
      /sharding/,
    ],
    [
      'a bad expression',
      { devices: 2, tensors: [{ ...X, expression: 'b x -> 2b x' }], steps: [] },
      'E_SYNTAX',
      /tensor 'X': expected eof at position 8/,
    ],
    [
      'a tensor twice',
      { devices: 2, tensors: [X, X], steps: [] },
      'E_SYNTAX',
      /'X' is given twice/,
    ],
    [
      'a bad step',
      { devices: 2, tensors: [X], steps: ['Y = bx-xb'] },
      'E_SYNTAX',
      /step 1, 'Y = bx-xb': expected a function of one tensor at position 4/,
    ],
    [
      'a letter from nowhere',
      { devices: 2, tensors: [X], steps: ['Y = bx->bq'] },
      'E_SYNTAX',
      /letter of the operands at position 9/,
    ],
    [
      'a letter twice',
      { devices: 2, tensors: [X], steps: ['Y = bx->bb'] },
      'E_SYNTAX',
      /once at position 9/,
    ],
    [
      'a step without a name',
      { devices: 2, tensors: [X], steps: ['bx->xb'] },
      'E_SYNTAX',
      /expected NAME =/,
    ],
    [
      'a missing operand',
      { devices: 2, tensors: [X], steps: ['Y = bx,xy->by'] },
      'E_REF',
      /no tensor is left for operand 2, 'xy'/,
    ],
    [
      'swapped letters',
      { devices: 2, tensors: [X], steps: ['Y = xb->bx'] },
      'E_REF',
      /no tensor is left for operand 1, 'xb'/,
    ],
    [
      'an unknown name',
      { devices: 2, tensors: [X], steps: ['Y = bx->xb (Q)'] },
      'E_REF',
      /no tensor 'Q'/,
    ],
    [
      'a name that is taken',
      { devices: 2, tensors: [X], steps: ['X = bx->xb'] },
      'E_REF',
      /a tensor 'X' already/,
    ],
    [
      'sizes that differ',
      { devices: 2, tensors: [X], steps: ['Y = bx,xx->b (X, X)'] },
      'E_TYPE',
      /'x' is 8, but 2 in 'X'/,
    ],
    [
      'a function before any step',
      { devices: 2, tensors: [X], steps: ['relu'] },
      'E_REF',
      /no tensor before it/,
    ],
    [
      'meshes that do not nest',
      {
        devices: 6,
        tensors: [
          { name: 'A', shape: [6], expression: 'a -> 2 a3' },
          { name: 'B', shape: [6], expression: 'a -> 3 a2' },
        ],
        steps: [],
      },
      'E_EINSHARD',
      /'a -> 2 a3' and 'a -> 3 a2' do not fit/,
    ],
    [
      'a mesh of too many dims',
      {
        devices: 64,
        tensors: [{ name: 'A', shape: [6], expression: 'a -> 2 2 2 2 2 2 a' }],
        steps: [],
      },
      'E_LIMIT',
      /mesh of 6 dims/,
    ],
  ])('%s is refused', (_, program, code, message) => {
    let caught: unknown;
    try {
      const text = program === undefined ? '{' : JSON.stringify(program);
      evaluateEinshardProgram(readEinshardProgram(text));
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(ShardwrightError);
    expect((caught as ShardwrightError).code).toBe(code);
    expect((caught as ShardwrightError).message).toMatch(message);
  });
});

/** A transformer layer: embedding, attention with softmax, MLP, norms and residual sums. */
function transformer(expressions: Readonly<Record<string, string>>): ProgramResult {
  const shapes: Readonly<Record<string, readonly number[]>> = {
    ids: [8, 16],
    table: [256, 64],
    Wq: [64, 8, 8],
    Wk: [64, 8, 8],
    Wv: [64, 8, 8],
    Wo: [8, 8, 64],
    W1: [64, 128],
    W2: [128, 64],
  };
  return run({
    devices: 8,
    tensors: Object.entries(shapes).map(([name, shape]) => ({
      name,
      shape,
      dtype: name === 'ids' ? 'i64' : 'f32',
      expression: expressions[name] ?? WHOLE,
    })),
    steps: [
      'X = gather bs,vd->bsd (ids, table)',
      'N = rms_norm over d (X)',
      'Q = bsd,dhe->bshe (N, Wq)',
      'K = btd,dhe->bthe (N, Wk)',
      'V = btd,dhe->bthe (N, Wv)',
      'S = bshe,bthe->bhst (Q, K)',
      'P = softmax over t (S)',
      'O = bhst,bthe->bshe (P, V)',
      'A = bshe,hed->bsd (O, Wo)',
      'Y = add (X, A)',
      'M = layer_norm over d (Y)',
      'H = bsd,df->bsf (M, W1)',
      'silu (H)',
      'F = bsf,fd->bsd (H, W2)',
      'Z = add (Y, F)',
    ],
  });
}

const moved = ({ collectives }: ProgramResult): string[] =>
  collectives.map(({ kind, tensor, before }) => `${kind} ${tensor} before ${before}`);

describe('a transformer as a program', () => {
  it('communicates nothing where the batch is cut', () => {
    const found = transformer({ ids: 'b s -> b* s' });
    expect(moved(found)).toEqual([]);
    expect(local(found, 'P')).toEqual([1, 8, 16, 16]);
  });

  it('adds up twice where heads, width and vocabulary are cut, as Megatron does, and once for the table', () => {
    const found = transformer({
      table: 'v d -> v* d',
      Wq: 'd h e -> d h* e',
      Wk: 'd h e -> d h* e',
      Wv: 'd h e -> d h* e',
      Wo: 'h e d -> h* e d',
      W1: 'd f -> d f*',
      W2: 'f d -> f* d',
    });
    expect(moved(found)).toEqual([
      'all_reduce X before N',
      'all_reduce A before Y',
      'all_reduce F before Z',
    ]);
    expect(local(found, 'P')).toEqual([8, 1, 16, 16]);
  });

  it('gathers rows of which a softmax would see a part', () => {
    const found = run({
      devices: 8,
      tensors: [{ name: 'S', shape: [4, 64], expression: 'q k -> q k*' }],
      steps: ['P = softmax over k (S)', 'Q = softmax over q (S)'],
    });
    expect(moved(found)).toEqual(['all_gather S before P']);
    expect(local(found, 'Q')).toEqual([4, 8]);
  });

  test.each([
    ['softmax over k (S)', /expected NAME = before it/],
    ['P = softmax (S)', /expected over and the letters of the rows/],
    ['P = softmax over z (S)', /'S' has no dim 'z', its dims are 'qk'/],
    ['P = add (S)', /expected two tensors, \(X, Z\), for add/],
    ['P = softmin over k (S)', /expected a function of one tensor/],
    ['P = gather q,kd->qd (S)', /expected 2 operands, not 1/],
  ])('a wrong step says what it expects: %s', (step, message) => {
    const tensors = [{ name: 'S', shape: [4, 64], expression: 'q k -> q k*' }];
    expect(() => run({ devices: 8, tensors, steps: [step] })).toThrow(message);
  });
});
