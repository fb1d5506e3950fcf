/**
 * What is asked of the package spmd_types and of this library: every cell of the tables of
 * primitives, every operator on every combination of types, einsums on cut operands, and claims
 * about a type that follow one another.
 */

export type TypeText = 'R' | 'I' | 'V' | 'P' | 'S(0)' | 'S(1)';

/** One primitive on one mesh dim `tp` of `ranks` devices; `expert` allows what is rarely meant. */
export interface Cell {
  readonly op: Primitive;
  readonly src: TypeText;
  readonly dst: TypeText;
  readonly ranks: number;
  readonly expert?: true;
}

export type Primitive =
  | 'convert'
  | 'reinterpret'
  | 'all_reduce'
  | 'all_gather'
  | 'reduce_scatter'
  | 'all_to_all'
  | 'redistribute';

/**
 * Operand of an operator: a tensor of that type, a plain number `n`, or a number with a type (`nV`
 * differs on each rank).
 */
export type Operand = 'R' | 'I' | 'V' | 'P' | 'n' | 'nR' | 'nI' | 'nV' | 'nP';

export interface Call {
  readonly op: string;
  readonly operands: readonly Operand[];
}

/**
 * Placements of each operand, one for each mesh dim (`dp`, then `tp`; the first is the outer one
 * where both cut a tensor dim).
 */
export interface EinsumQuestion {
  readonly equation: string;
  readonly operands: readonly (readonly string[])[];
}

/** Types by mesh dim, or a spec of the tensor dims. */
export interface Claim {
  readonly types?: Readonly<Record<string, string>>;
  readonly spec?: readonly (string | readonly string[] | null)[];
}

const TYPES: readonly TypeText[] = ['R', 'I', 'V', 'P', 'S(0)', 'S(1)'];
const CASTS: readonly Primitive[] = ['convert', 'reinterpret'];
const COLLECTIVES: readonly Primitive[] = [
  'all_reduce',
  'all_gather',
  'reduce_scatter',
  'all_to_all',
  'redistribute',
];

const pairs = TYPES.flatMap((src) => TYPES.map((dst) => ({ src, dst })));

export const cells: readonly Cell[] = [2, 3, 4].flatMap((ranks) => [
  ...CASTS.flatMap((op) =>
    pairs.flatMap((p): Cell[] => [
      { op, ...p, ranks },
      { op, ...p, ranks, expert: true },
    ]),
  ),
  ...COLLECTIVES.flatMap((op) => pairs.map((p): Cell => ({ op, ...p, ranks }))),
]);

const TENSORS: readonly Operand[] = ['R', 'I', 'V', 'P'];
const NUMBERS: readonly Operand[] = ['n', 'nR', 'nI', 'nV', 'nP'];

const LINEAR = [
  'neg',
  'clone',
  'sum',
  'sum.dim',
  'mean.dim',
  'cumsum',
  'reshape',
  'view',
  'transpose',
  't',
  'permute',
  'unsqueeze',
  'squeeze',
  'expand',
  'select',
  'narrow',
  'split',
  'chunk',
  'unbind',
  'flip',
  'roll',
  'contiguous',
  'slice',
] as const;
const NONLINEAR = [
  'relu',
  'exp',
  'log',
  'tanh',
  'sigmoid',
  'silu',
  'gelu',
  'cos',
  'abs',
  'sqrt',
  'rsqrt',
  'square',
  'pow.number',
  'reciprocal',
  'softmax',
  'log_softmax',
  'amax',
  'layer_norm',
  'clamp',
] as const;
const ELEMENTWISE = ['add', 'sub', 'mul', 'div'] as const;
const BINARY = [
  'maximum',
  'pow',
  'mm',
  'matmul',
  'bmm',
  'einsum',
  'dot',
  'mv',
  'linear',
  'cat',
  'stack',
] as const;
const IN_PLACE = ['add_', 'sub_', 'mul_', 'div_'] as const;
const TERNARY = [
  'addmm',
  'addmv',
  'addbmm',
  'baddbmm',
  'addr',
  'linear.bias',
  'where',
  'einsum.3',
  'add.out',
  'mul.out',
] as const;

const combinations = (...sets: readonly (readonly Operand[])[]): Operand[][] =>
  sets.reduce<Operand[][]>((rows, set) => rows.flatMap((row) => set.map((o) => [...row, o])), [[]]);

const asked = (ops: readonly string[], operands: readonly Operand[][]): Call[] =>
  ops.flatMap((op) => operands.map((row) => ({ op, operands: row })));

export const calls: readonly Call[] = [
  ...asked([...LINEAR, ...NONLINEAR], combinations(TENSORS)),
  ...asked(ELEMENTWISE, [
    ...combinations(TENSORS, [...TENSORS, ...NUMBERS]),
    ...combinations(NUMBERS, TENSORS),
  ]),
  ...asked(BINARY, combinations(TENSORS, TENSORS)),
  ...asked(IN_PLACE, combinations(TENSORS, [...TENSORS, ...NUMBERS])),
  ...asked(TERNARY, combinations(TENSORS, TENSORS, TENSORS)),
];

const EQUATIONS = [
  'mk,kn->mn',
  'bmk,bkn->bmn',
  'abi,aoi->abo',
  'sbi,io->sbo',
  'sbh,h->sbh',
  'bh,ho->bo',
  'bi,oi->bo',
  'abc,ab->abc',
  'abd,bf->abfd',
  'bcmk,bckn->bcmn',
  'i,j->ij',
  'ij->j',
  'ij->ji',
  'ij,jk,k->i',
] as const;

/** Placements of one operand on one mesh dim. */
const placements = (rank: number): string[] => [
  'R',
  'I',
  'P',
  ...Array.from({ length: rank }, (_, d) => `S(${d})`),
];

const product = <T>(sets: readonly (readonly T[])[]): T[][] =>
  sets.reduce<T[][]>((rows, set) => rows.flatMap((row) => set.map((o) => [...row, o])), [[]]);

const onOneDim = EQUATIONS.flatMap((equation) =>
  product(
    equation
      .split('->')[0]
      .split(',')
      .map((letters) => placements(letters.length)),
  ).map((operands): EinsumQuestion => ({ equation, operands: operands.map((o) => [o]) })),
);

const PAIRS = product([
  ['R', 'P', 'S(0)', 'S(1)'],
  ['R', 'P', 'S(0)', 'S(1)'],
]);
const onTwoDims = PAIRS.flatMap((x) =>
  PAIRS.map((y): EinsumQuestion => ({ equation: 'mk,kn->mn', operands: [x, y] })),
);

export const einsums: readonly EinsumQuestion[] = [...onOneDim, ...onTwoDims];

const dp = (text: string): Claim => ({ types: { dp: text } });
const tp = (text: string): Claim => ({ types: { tp: text } });

export const refinements: readonly (readonly Claim[])[] = [
  ...TYPES.flatMap((first) => TYPES.map((second): Claim[] => [tp(first), tp(second)])),
  [tp('S(0)'), dp('S(1)')],
  [tp('S(0)'), dp('S(0)')],
  [dp('S(0)'), { spec: ['dp', null] }],
  [dp('S(0)'), { spec: ['dp', 'tp'] }],
  [dp('S(0)'), { spec: [['dp', 'tp'], null] }],
  [{ spec: ['dp', null] }, { spec: ['dp', 'tp'] }],
  [{ spec: ['dp', null] }, { spec: [['dp', 'tp'], null] }],
  [{ spec: [['dp', 'tp'], null] }, dp('S(0)')],
  [{ spec: [['dp', 'tp'], null] }, { spec: [['tp', 'dp'], null] }],
  [{ spec: ['tp', 'tp'] }],
  [{ types: { dp: 'V', tp: 'I' } }, { spec: [null, 'dp'] }],
  [{ types: { dp: 'R' } }, { spec: ['dp', null] }],
];

export const questions = { cells, calls, einsums, refinements };
