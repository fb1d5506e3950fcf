/** Matrix products: each is an einsum, so its rules and its FLOPs come from letters. */

import { resultType } from '../../record/dtypes.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { R, type Rule, rule, type RuleOptions, type RuleSlot, S } from '../../record/rule.ts';
import { cutLetter, einsumFlops, einsumRules } from '../../rules/einsum.ts';
import { parseEinsum } from '../../rules/equation.ts';

interface Product {
  readonly schema: string;
  /** Equation of the product; a function where it depends on the ranks. */
  readonly letters: string | ((ctx: OpContext) => string);
  /** The two factors. */
  readonly factors: readonly [string, string];
  /** Added to the product; broadcasts into it. */
  readonly bias?: string;
  readonly aliases?: readonly string[];
}

function product(name: string, spec: Product): OperatorRecord {
  const lettersOf = (ctx: OpContext): string =>
    typeof spec.letters === 'string' ? spec.letters : spec.letters(ctx);
  const factorsOf = (ctx: OpContext): readonly TensorMeta[] =>
    spec.factors.map((f) => ctx.tensor(f) ?? ctx.fail(`argument '${f}' must be a tensor`));
  return defineOp(name, {
    schema: spec.schema,
    cls: 'matmul',
    aliases: spec.aliases ?? [],
    infer(ctx) {
      const shape = einsumShape(ctx, lettersOf(ctx), factorsOf(ctx));
      const bias = spec.bias === undefined ? undefined : ctx.tensor(spec.bias);
      if (bias !== undefined) checkBias(ctx, bias, shape);
      return [{ dtype: resultType({ tensors: ctx.inputs, scalars: [] }) ?? 'f32', shape }];
    },
    shard: (ctx) => productRules(ctx, lettersOf(ctx), spec),
    flops(ctx) {
      const matrix = einsumFlops(lettersOf(ctx), ...factorsOf(ctx).map((f) => f.shape));
      const out = ctx.outputs[0];
      const hasBias = spec.bias !== undefined && ctx.has(spec.bias);
      return { matrix, vector: hasBias && out !== null ? elements(out.shape) : 0 };
    },
  });
}

/**
 * The generator puts the bias first; schemas of `linear` put it last. A size-1 dim that broadcasts
 * is not cut.
 */
function productRules(ctx: TypedContext, letters: string, spec: Product): Rule[] {
  const bias = spec.bias === undefined ? undefined : ctx.tensor(spec.bias);
  const out = ctx.outputs[0];
  if (bias === undefined || out === null) return einsumRules(letters);
  const rules = einsumRules(letters, { bias: { shape: bias.shape, output: out.shape } });
  if (ctx.indexOf(spec.bias ?? '') === 0) return rules;
  return rules.map((r) => ({ ...r, inputs: [...r.inputs.slice(1), r.inputs[0]] }));
}

/** Output shape by letters. @throws E_TYPE when ranks or the sizes of one letter disagree */
function einsumShape(
  ctx: OpContext,
  equation: string,
  factors: readonly TensorMeta[],
): readonly number[] {
  const { operands, output } = parseEinsum(equation);
  const sizes = new Map<string, number>();
  operands.forEach((letters, i) => {
    const { shape } = factors[i];
    if (shape.length !== letters.length) {
      ctx.fail(`operand ${i + 1} must have ${letters.length} dims, got [${shape.join(', ')}]`);
    }
    [...letters].forEach((letter, d) => {
      const known = sizes.get(letter) ?? shape[d];
      if (known !== shape[d]) {
        const shapes = factors.map((f) => `[${f.shape.join(', ')}]`).join(' and ');
        ctx.fail(`shapes ${shapes} do not match: ${known} against ${shape[d]} (${equation})`);
      }
      sizes.set(letter, known);
    });
  });
  return [...output].map((letter) => sizes.get(letter) ?? 1);
}

function checkBias(ctx: OpContext, bias: TensorMeta, shape: readonly number[]): void {
  const offset = shape.length - bias.shape.length;
  const fits =
    offset >= 0 && bias.shape.every((size, d) => size === 1 || size === shape[d + offset]);
  if (!fits)
    ctx.fail(
      `bias of shape [${bias.shape.join(', ')}] does not broadcast to [${shape.join(', ')}]`,
    );
}

const LEADING = 'abcdefghij';

/** `x[..., k] @ w[n, k]^T`; a 1-D weight drops the last dim of the output. */
function linearLetters(ctx: OpContext): string {
  const rank = ctx.tensor('input')?.shape.length ?? 0;
  const lead = LEADING.slice(0, Math.max(0, rank - 1));
  return ctx.tensor('weight')?.shape.length === 1 ? `${lead}k,k->${lead}` : `${lead}k,nk->${lead}n`;
}

/**
 * Letters of `torch.matmul` for the ranks at hand. Batch dims that one side broadcasts (size 1 or
 * missing) get a letter of their own on the other side, so that they stay whole where they are 1.
 */
function matmulLetters(ctx: OpContext): string {
  const a = ctx.tensor('self')?.shape ?? [];
  const b = ctx.tensor('other')?.shape ?? [];
  if (a.length === 0 || b.length === 0) ctx.fail('needs operands of at least one dim');
  const m = a.length > 1 ? 'm' : '';
  const n = b.length > 1 ? 'n' : '';
  const batchA = a.slice(0, Math.max(0, a.length - 2));
  const batchB = b.slice(0, Math.max(0, b.length - 2));
  const rank = Math.max(batchA.length, batchB.length);
  let left = '';
  let right = '';
  let out = '';
  for (let i = 0; i < rank; i++) {
    const sizeA = batchA[i - (rank - batchA.length)];
    const sizeB = batchB[i - (rank - batchB.length)];
    const [both, ones] = [LEADING[i], LEADING[i].toUpperCase()];
    // A dim of one row is a letter of its own only where the other operand has more of it.
    const widened = (own: number | undefined, other: number | undefined): boolean =>
      own === 1 && (other ?? 1) !== 1;
    if (sizeA !== undefined) left += widened(sizeA, sizeB) ? ones : both;
    if (sizeB !== undefined) right += widened(sizeB, sizeA) ? ones : both;
    out += both;
  }
  return `${left}${m}k,${right}${n === '' ? 'k' : 'kn'}->${out}${m}${n}`;
}

/**
 * Token groups against experts: `offs` bounds the groups, so which rows meet which expert is data.
 */
function groupedForm(ctx: OpContext): {
  readonly ranks: string;
  readonly a: TensorMeta;
  readonly b: TensorMeta;
} {
  const a = ctx.tensor('self') ?? ctx.fail("argument 'self' must be a tensor");
  const b = ctx.tensor('mat2') ?? ctx.fail("argument 'mat2' must be a tensor");
  return { ranks: `${a.shape.length}x${b.shape.length}`, a, b };
}

/**
 * Grouped products as einsums: the third operand `tg` is 1 where token t belongs to group g, which
 * `offs` says. Letters are in the order in which 2.13 lists its rules.
 */
const GROUPED: Readonly<Record<string, readonly [equation: string, letters: string]>> = {
  '2x3': ['tk,gkn,tg->tn', 'nktg'],
  '3x2': ['gmk,kt,tg->mt', 'kmtg'],
  '2x2': ['mt,tn,tg->gmn', 'mntg'],
  '3x3': ['gmk,gkn->gmn', 'gmnk'],
};

function groupedRules(ctx: TypedContext): Rule[] {
  const { ranks } = groupedForm(ctx);
  const [equation, letters] = GROUPED[ranks] ?? ctx.fail(`does not take operands of ${ranks} dims`);
  const offs = ctx.inputs.slice(2).map(() => R);
  // The bounds of the groups stay whole, whatever is cut.
  const made = (inputs: readonly RuleSlot[], out: RuleSlot, options: RuleOptions = {}): Rule =>
    rule([...inputs.slice(0, 2), ...offs], [out], options);
  const rules = [...letters].map((letter) => {
    const [cut, options] = groupedCut(letter, equation.includes('tg'));
    const { inputs, output } = cutLetter(equation, letter, cut);
    return made(inputs, output, options);
  });
  for (const { inputs, outputs } of einsumRules(equation))
    if (inputs.slice(0, 2).some((slot) => slot?.kind === 'partial'))
      rules.push(made(inputs, outputs[0]));
  return rules;
}

/**
 * How a letter of a grouped product is cut, and what the lowering does to the bounds of the groups
 * then.
 */
function groupedCut(
  letter: string,
  bounded: boolean,
): readonly [(dim: number) => RuleSlot, RuleOptions?] {
  // A rank holds a contiguous run of tokens; the group bounds are clipped to that run.
  if (letter === 't')
    return [(d) => S(d, { slicing: 'contiguous' }), { origin: 'ext', rewrite: 'offsets' }];
  // Rows of 16 bytes are what the kernels need; even cuts of aligned sizes keep them.
  if (letter !== 'g') return [(d) => S(d, { even: true, unit: ALIGNED_ELEMENTS })];
  if (!bounded) return [(d) => S(d)];
  // A rank holds some experts and computes their groups; rows of the others are zero. Whole tokens
  // meet cut experts.
  return [(d) => S(d, { slicing: 'contiguous', even: true }), { origin: 'ext', rewrite: 'offset' }];
}

/** 16 bytes of the 2-byte elements that grouped products take. */
const ALIGNED_ELEMENTS = 8;

const groupedMm = defineOp('aten._grouped_mm.default', {
  schema:
    'Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None',
  cls: 'matmul',
  infer(ctx) {
    const { ranks, a, b } = groupedForm(ctx);
    const dtype = ctx.dtype('out_dtype') ?? a.dtype;
    const groups = ctx.tensor('offs')?.shape[0] ?? 1;
    const shapes: Readonly<Record<string, readonly number[]>> = {
      '2x3': [a.shape[0], b.shape[2]],
      '3x2': [a.shape[1], b.shape[1]],
      '2x2': [groups, a.shape[0], b.shape[1]],
      '3x3': [a.shape[0], a.shape[1], b.shape[2]],
    };
    const inner = b.shape[b.shape.length - 2];
    if (a.shape[a.shape.length - 1] !== inner) {
      ctx.fail(`shapes [${a.shape.join(', ')}] and [${b.shape.join(', ')}] do not match`);
    }
    return [{ dtype, shape: shapes[ranks] ?? ctx.fail(`does not take operands of ${ranks} dims`) }];
  },
  shard: (ctx) => (ctx.has('bias') ? [] : groupedRules(ctx)),
  flops(ctx) {
    // Every row meets one expert: 2 * tokens * k * n, whatever the groups. A rank with some of the
    // experts has as many of the rows, if the routing is balanced: which rows there are is data.
    const { ranks, a, b } = groupedForm(ctx);
    const [k, n] = b.shape.slice(-2);
    const rows =
      ranks === '3x2' ? a.shape[1] : ranks === '3x3' ? a.shape[0] * a.shape[1] : a.shape[0];
    const groups = ctx.tensor('offs')?.shape[0] ?? 0;
    const stacked =
      ranks === '2x3'
        ? b.shape[0]
        : ranks === '3x2'
          ? a.shape[0]
          : (ctx.outputs[0]?.shape[0] ?? groups);
    return {
      matrix: (2 * rows * k * n * (groups > 0 ? stacked : 1)) / Math.max(groups, 1),
      vector: 0,
    };
  },
});

export const matmulOps: readonly OperatorRecord[] = [
  product('aten.mm.default', {
    schema: 'Tensor self, Tensor mat2',
    letters: 'mk,kn->mn',
    factors: ['self', 'mat2'],
  }),
  product('aten.bmm.default', {
    schema: 'Tensor self, Tensor mat2',
    letters: 'bmk,bkn->bmn',
    factors: ['self', 'mat2'],
  }),
  product('aten.addmm.default', {
    schema: 'Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1',
    letters: 'mk,kn->mn',
    factors: ['mat1', 'mat2'],
    bias: 'self',
  }),
  product('aten.baddbmm.default', {
    schema: 'Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1',
    letters: 'bmk,bkn->bmn',
    factors: ['batch1', 'batch2'],
    bias: 'self',
  }),
  product('aten.addmv.default', {
    schema: 'Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1',
    letters: 'mk,k->m',
    factors: ['mat', 'vec'],
    bias: 'self',
  }),
  product('aten.addbmm.default', {
    schema: 'Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1',
    letters: 'bmk,bkn->mn',
    factors: ['batch1', 'batch2'],
    bias: 'self',
  }),
  product('aten.mv.default', {
    schema: 'Tensor self, Tensor vec',
    letters: 'mk,k->m',
    factors: ['self', 'vec'],
  }),
  product('aten.dot.default', {
    schema: 'Tensor self, Tensor tensor',
    letters: 'i,i->',
    factors: ['self', 'tensor'],
  }),
  product('aten.vdot.default', {
    schema: 'Tensor self, Tensor other',
    letters: 'i,i->',
    factors: ['self', 'other'],
  }),
  product('aten.outer.default', {
    schema: 'Tensor self, Tensor vec2',
    letters: 'm,n->mn',
    factors: ['self', 'vec2'],
  }),
  product('aten.linear.default', {
    schema: 'Tensor input, Tensor weight, Tensor? bias=None',
    letters: linearLetters,
    factors: ['input', 'weight'],
    bias: 'bias',
  }),
  product('aten.matmul.default', {
    schema: 'Tensor self, Tensor other',
    letters: matmulLetters,
    factors: ['self', 'other'],
  }),
  groupedMm,
];
