import { describe, expect, test } from 'vitest';

import { explain } from '../../../src/notations/einsum/explain.ts';
import { einsumBackward } from '../../../src/notations/einsum/gradient.ts';
import { type EinsumSharding, shardRule } from '../../../src/notations/einsum/shard-rule.ts';
import { type RuleSlot, ruleText } from '../../../src/ops/record/rule.ts';
import { rulesOf } from '../../../src/ops/rules/einsum.ts';
import { classify, parseEinsum } from '../../../src/ops/rules/equation.ts';
import { refusalText } from '../../support/thrown.ts';
import {
  added,
  bruteEinsum,
  bruteGradient,
  type Flat,
  furthest,
  join,
  scaled,
  sizeOf,
  slice,
} from '../support/brute-einsum.ts';
import { bound } from '../support/judge-call.ts';
import type { OracleArg } from '../support/oracle.ts';

const EQUATIONS = [
  'mk,kn->mn',
  'bmk,bkn->bmn',
  'abi,aoi->abo',
  'sbi,io->sbo',
  'sbh,h->sbh',
  'bh,ho->bo',
  'abd,bf->abfd',
  'bcmk,bckn->bcmn',
  'i,j->ij',
  'i,i->',
  'ij,jk,kl->il',
  'abc,ab,b->c',
] as const;

/** Letters of a class of each operand, `x [b], y [o]` as `b|o`. */
const classes = (equation: string): string => {
  const c = classify(equation);
  return [
    c.batch.join(''),
    c.free.map((own) => own.join('')).join('|'),
    c.contraction.join(''),
  ].join(' / ');
};

describe('letters', () => {
  test('abi,aoi->abo has the batch letter a, free b and o, contraction i', () => {
    expect(classify('abi,aoi->abo')).toEqual({
      batch: ['a'],
      contraction: ['i'],
      free: [['b'], ['o']],
      broadcast: [['o'], ['b']],
    });
  });
  test('products of stacks, and a product without contraction', () => {
    expect(classes('bmk,bkn->bmn')).toBe('b / m|n / k');
    expect(classes('abc,ab->abc')).toBe('ab / c| / ');
  });
  test('several letters of a class', () => {
    expect(classes('abd,bf->abfd')).toBe('b / ad|f / ');
    expect(classes('bcmk,bckn->bcmn')).toBe('bc / m|n / k');
  });
  test('the gradient of an operand swaps its letters with those of the result', () => {
    expect(einsumBackward('bi,oi->bo', 0)).toEqual({
      equation: 'bo,oi->bi',
      operands: ['gradient', 1],
    });
    expect(einsumBackward('bi,oi->bo', 1)).toEqual({
      equation: 'bi,bo->oi',
      operands: [0, 'gradient'],
    });
  });
  test('a diagonal and a plain sum have no such gradient', () => {
    expect(refusalText(() => einsumBackward('ii->i', 0))).toBe(
      "E_EINSUM: the gradient of 'ii->i' is not an einsum: repeated letter i",
    );
    expect(refusalText(() => einsumBackward('ij->j', 0))).toBe(
      "E_EINSUM: the gradient of 'ij->j' is not an einsum: letter i unpaired",
    );
    expect(refusalText(() => einsumBackward('ij->j', 1))).toContain('operands 0 to 0, not 1');
  });
  test.each([
    ['ab', "E_SYNTAX: einsum 'ab': found no '->' at column 3"],
    ['ab->c', "E_SYNTAX: einsum 'ab->c': no operand has 'c' of the result at column 5"],
    ['ab->aa', "E_SYNTAX: einsum 'ab->aa': the result has 'a' twice at column 6"],
    [
      'a.b->a',
      "E_SYNTAX: einsum 'a.b->a': found '.', expected a letter, a comma or the arrow at column 2",
    ],
    ['ab->a->b', "E_SYNTAX: einsum 'ab->a->b': found a second arrow, or half of one at column 6"],
    ['ab->a,b', "E_SYNTAX: einsum 'ab->a,b': found a second result at column 6"],
  ])('%s is refused with its column', (equation, message) => {
    expect(refusalText(() => parseEinsum(equation))).toBe(message);
  });
});

const on = (
  equation: string,
  x: string,
  y: string,
  mode: 'auto' | 'strict' = 'auto',
): EinsumSharding => shardRule(equation, [x, y], { axes: ['tp'], mode, names: ['x', 'w'] });
const owed = (s: EinsumSharding): string[] =>
  s.gradients.flatMap((g) => g.owes.map((o) => `${g.operand}: ${o.collective} on ${o.axis}`));

describe('one mesh dim', () => {
  test('the table of abi,aoi->abo: what is cut, what follows, what gradients owe', () => {
    const row = (x: string, y: string): string => {
      const s = on('abi,aoi->abo', x, y, 'strict');
      return [s.result?.['tp'], ...s.gradients.map((g) => g.states['tp']), ...owed(s)].join(' ');
    };
    expect(row('I', 'I')).toBe('I I I');
    expect(row('R', 'R')).toBe('R P P x: all_reduce on tp w: all_reduce on tp');
    expect(row('S(a)', 'S(a)')).toBe('S(0) S(0) S(0)');
    expect(row('S(b)', 'R')).toBe('S(1) S(1) P w: all_reduce on tp');
    expect(row('R', 'S(o)')).toBe('S(2) P S(1) x: all_reduce on tp');
    expect(row('S(i)', 'S(i)')).toBe('P S(2) S(2)');
    expect(row('P', 'R')).toBe('P R P w: all_reduce on tp');
    expect(row('P', 'P')).toBe('');
  });
  test('a column-parallel linear: the input gradient is owed', () => {
    const s = on('sbi,io->sbo', 'R', 'S(o)', 'strict');
    expect(s.result).toEqual({ tp: 'S(2)' });
    expect(s.gradients.map((g) => [g.equation, g.states['tp']])).toEqual([
      ['sbo,io->sbi', 'P'],
      ['sbi,sbo->io', 'S(1)'],
    ]);
    expect(owed(s)).toEqual(['x: all_reduce on tp']);
  });
  test('a scale along a cut sequence: the gradient of the scale is owed', () => {
    const s = on('sbh,h->sbh', 'S(s)', 'R', 'strict');
    expect(s.result).toEqual({ tp: 'S(0)' });
    expect(s.gradients.map((g) => [g.equation, g.states['tp']])).toEqual([
      ['sbh,h->sbh', 'S(0)'],
      ['sbh,sbh->h', 'P'],
    ]);
    expect(owed(s)).toEqual(['w: all_reduce on tp']);
  });
  test('invariant weights beside a cut batch are refused, and a cast makes them owe 1 all_reduce', () => {
    const given = (w: string, mode: 'auto' | 'strict') =>
      shardRule('bh,ho->bo', [{ dp: 'S(b)' }, { dp: w }], { mode, names: ['x', 'w'] });
    const refused = given('I', 'strict');
    expect(refused.result).toBeUndefined();
    expect(refused.faults).toEqual([
      {
        axis: 'dp',
        message:
          "einsum 'bh,ho->bo' on dp: w is I and another operand is not; their gradients differ on each rank",
        fix: 'convert(w, "dp", I→R)',
      },
    ]);
    const cast = given('R', 'strict');
    expect([cast.steps, cast.result, owed(cast)]).toEqual([
      [],
      { dp: 'S(0)' },
      ['w: all_reduce on dp'],
    ]);
    const auto = given('I', 'auto');
    expect(auto.steps).toEqual([{ operand: 'w', axis: 'dp', kind: 'cast', from: 'I', to: 'R' }]);
    expect(owed(auto)).toEqual(['w: all_reduce on dp']);
  });

  const STATES = ['R', 'S(0)', 'S(1)', 'S(2)'];
  const pairs = STATES.flatMap((x) => STATES.map((y) => [x, y] as const));
  const collectives = (s: EinsumSharding): number =>
    s.steps.filter((t) => t.kind !== 'slice' && t.kind !== 'cast').length;
  test('the pairs of abi,aoi->abo without communication', () => {
    const free = pairs
      .map((p) => [p, on('abi,aoi->abo', ...p)] as const)
      .filter(([, s]) => collectives(s) === 0);
    expect(free.map(([[x, y], s]) => `(${x},${y})→${s.result?.['tp']}`)).toEqual([
      '(R,R)→R',
      '(R,S(0))→S(0)',
      '(R,S(1))→S(2)',
      '(R,S(2))→P',
      '(S(0),R)→S(0)',
      '(S(0),S(0))→S(0)',
      '(S(1),R)→S(1)',
      '(S(2),R)→P',
      '(S(2),S(2))→P',
    ]);
  });
  test('four of them slice an operand, which strict refuses', () => {
    const sliced = pairs.filter((p) =>
      on('abi,aoi->abo', ...p).steps.some((s) => s.kind === 'slice'),
    );
    expect(sliced.map(([x, y]) => `(${x},${y})`)).toEqual([
      '(R,S(0))',
      '(R,S(2))',
      '(S(0),R)',
      '(S(2),R)',
    ]);
    for (const [x, y] of sliced) {
      const { result, faults } = on('abi,aoi->abo', x, y, 'strict');
      expect(result).toBeUndefined();
      expect(faults[0].message).toMatch(
        /^Implicit redistribution occurred for .* would need a slice to S/,
      );
      expect(faults[0].fix).toMatch(/^convert\([xw], "tp", R→S\([02]\)\)$/);
    }
  });
  test('the other seven take one collective each', () => {
    const others = pairs
      .map((p) => [p, on('abi,aoi->abo', ...p)] as const)
      .filter(([, s]) => collectives(s) > 0);
    expect(others.map(([[x, y], s]) => `${x},${y}: ${collectives(s)}`)).toEqual(
      [
        'S(0),S(1)',
        'S(0),S(2)',
        'S(1),S(0)',
        'S(1),S(1)',
        'S(1),S(2)',
        'S(2),S(0)',
        'S(2),S(1)',
      ].map((p) => `${p}: 1`),
    );
  });
  test('the rules of a product and of a stack of products', () => {
    expect(rulesOf('mk,kn->mn').map(ruleText)).toEqual([
      'R, R -> R',
      'S(1), S(0) -> P(sum)',
      'S(0), R -> S(0)',
      'R, S(1) -> S(1)',
      'P(sum), R -> P(sum)',
      'R, P(sum) -> P(sum)',
      'P(avg), R -> P(avg)',
      'R, P(avg) -> P(avg)',
    ]);
    expect(rulesOf('bmk,bkn->bmn').length).toBe(9);
  });
  test('a pending sum is reduced before a product with another', () => {
    const s = on('mk,kn->mn', 'P', 'P');
    expect([s.steps.map((t) => `${t.operand}: ${t.kind}`), s.result]).toEqual([
      ['w: all_reduce'],
      { tp: 'P' },
    ]);
  });
});

describe('several mesh dims', () => {
  test('each by its own rule', () => {
    const s = shardRule(
      'sbh,hi->sbi',
      [
        { dp: 'S(b)', tp: 'R' },
        { dp: 'R', tp: 'S(i)' },
      ],
      { mode: 'strict' },
    );
    expect(s.result).toEqual({ dp: 'S(1)', tp: 'S(2)' });
    expect(s.gradients.map((g) => g.states)).toEqual([
      { dp: 'S(1)', tp: 'P' },
      { dp: 'P', tp: 'S(1)' },
    ]);
  });
  test('another kind of cut, or another order of mesh dims, is not a free rule', () => {
    const strided = on('mk,kn->mn', '_S(k, 2)', 'S(k)', 'strict');
    expect(strided.faults.map((f) => f.fix)).toHaveLength(1);
    expect(on('mk,kn->mn', '_S(k, 2)', 'S(k)').steps).toHaveLength(1);
    expect(on('mk,kn->mn', '_S(k, 2)', '_S(k, 2)', 'strict').result).toEqual({ tp: 'P' });
    const axes = ['dp', 'tp'];
    const orders = (x: string, y: string) =>
      shardRule('mk,kn->mn', [x, y], { axes, mode: 'strict' });
    expect(orders('P(None, ("dp", "tp"))', 'P(("dp", "tp"), None)').result).toEqual({
      dp: 'P',
      tp: 'P',
    });
    const other = orders('P(None, ("dp", "tp"))', 'P(("tp", "dp"), None)');
    expect(other.result).toBeUndefined();
    expect(other.faults.map((f) => f.fix)).toEqual([
      'redistribute(y, "tp, dp", dim 0 by tp, dp→dim 0 by dp, tp)',
    ]);
  });
  test.each([
    [['S(q)', 'R'], "E_PLACEMENT: x has no letter 'q'"],
    [['S(3)', 'R'], 'E_PLACEMENT: x has no dim 3'],
    [['_S(0)', 'R'], "E_PLACEMENT: x: '_S(0)' is not a cut"],
    [['P(avg)', 'R'], "E_SYNTAX: x: 'P(avg)' has no state at column 1"],
    [['RR', 'R'], "E_PLACEMENT: x: 'RR' has 2 states for 1 mesh dims"],
    [[{ dp: 'R' }, 'R'], "E_PLACEMENT: x: there is no mesh dim 'dp'"],
    [['R'], "E_PLACEMENT: einsum 'mk,kn->mn' has 2 operands, got 1 placements"],
  ])('%j is refused', (placements, message) => {
    expect(refusalText(() => shardRule('mk,kn->mn', placements, { axes: ['tp'] }))).toBe(message);
  });
});

/** Pieces of a tensor on each of `n` ranks. */
function pieces(whole: Flat, state: string, n: number, draw: () => number): Flat[] {
  const cut = /^S\((\d)\)$/.exec(state);
  const ranks = Array.from({ length: n }, (_, r) => r);
  if (cut !== null) {
    const dim = Number(cut[1]);
    const rows = whole.shape[dim] / n;
    return ranks.map((r) => slice(whole, dim, r * rows, (r + 1) * rows));
  }
  if (!state.startsWith('P')) return ranks.map(() => whole);
  const noise = ranks
    .slice(1)
    .map((): Flat => ({ shape: whole.shape, data: whole.data.map(draw) }));
  const parts = [added([whole, ...noise.map((p) => scaled(p, -1))]), ...noise];
  return state === 'P(avg)' ? parts.map((p) => scaled(p, n)) : parts;
}

function whole(parts: readonly Flat[], state: string): Flat {
  const cut = /^S\((\d)\)$/.exec(state);
  if (cut !== null) return join(parts, Number(cut[1]));
  if (state === 'P(avg)') return scaled(added(parts), 1 / parts.length);
  return state.startsWith('P') ? added(parts) : parts[0];
}

describe('numbers', () => {
  let seed = 1;
  const draw = (): number => ((seed = (seed * 48271) % 2147483647) / 2147483647) * 2 - 1;
  const random = (shape: readonly number[]): Flat => ({
    shape,
    data: Float64Array.from({ length: sizeOf(shape) }, draw),
  });
  const slotState = (slot: RuleSlot): string =>
    slot?.kind === 'shard' ? `S(${slot.dim})` : slot?.kind === 'partial' ? `P(${slot.op})` : 'R';
  /** 6 rows of every letter: as many on each of 2 ranks, and of 3. */
  const inputs = (equation: string): Flat[] =>
    equation
      .split('->')[0]
      .split(',')
      .map((own) => random([...own].map(() => 6)));

  test.each(EQUATIONS)('every rule of %s is an equality on 2 and 3 ranks', (equation) => {
    const operands = inputs(equation);
    const expected = bruteEinsum(equation, operands);
    for (const n of [2, 3])
      for (const r of rulesOf(equation)) {
        const cut = operands.map((x, k) => pieces(x, slotState(r.inputs[k]), n, draw));
        const parts = Array.from({ length: n }, (_, rank) =>
          bruteEinsum(
            equation,
            cut.map((p) => p[rank]),
          ),
        );
        expect(
          furthest(whole(parts, slotState(r.outputs[0])), expected),
          `${ruleText(r)} on ${n}`,
        ).toBeLessThan(1e-9);
      }
  });

  test.each(EQUATIONS)('every derived gradient of %s is an equality', (equation) => {
    const operands = inputs(equation);
    const { shape } = bruteEinsum(equation, operands);
    const g = random(shape);
    const dual: Readonly<Record<string, string>> = { R: 'P(sum)', P: 'R' };
    for (const n of [2, 3])
      for (const r of rulesOf(equation).filter((r) =>
        r.inputs.every((s) => s?.kind !== 'partial' || s.op === 'sum'),
      )) {
        const states = r.inputs.map((slot) => slotState(slot).replace('(sum)', ''));
        const s = shardRule(equation, states, { axes: ['tp'], mode: 'strict' });
        const cotangent = dual[s.result?.['tp'] ?? ''] ?? s.result?.['tp'] ?? '';
        const cut = operands.map((x, k) =>
          pieces(x, states[k] === 'P' ? 'P(sum)' : states[k], n, draw),
        );
        const gradient = pieces(g, cotangent, n, draw);
        s.gradients.forEach((own, k) => {
          const { equation: back, operands: order } = einsumBackward(equation, k);
          expect(own.equation).toBe(back);
          const parts = Array.from({ length: n }, (_, rank) =>
            bruteEinsum(
              back,
              order.map((o) => (o === 'gradient' ? gradient[rank] : cut[o][rank])),
            ),
          );
          const expected = bruteGradient(equation, k, operands, g);
          expect(
            furthest(whole(parts, own.states['tp']), expected),
            `${ruleText(r)}, operand ${k}`,
          ).toBeLessThan(1e-9);
          // What is owed is a reduction exactly where the parts do not yet add up on each rank.
          expect(own.owes.length).toBe(own.states['tp'] === 'P' ? 1 : 0);
        });
      }
  });

  test('a wrong rule is found: two pending factors, and a batch letter cut on one side', () => {
    const [x, y] = [random([6, 6]), random([6, 6])];
    const expected = bruteEinsum('mk,kn->mn', [x, y]);
    const run = (a: string, b: string, out: string): number => {
      const [p, q] = [pieces(x, a, 2, draw), pieces(y, b, 2, draw)];
      return furthest(
        whole(
          [0, 1].map((r) => bruteEinsum('mk,kn->mn', [p[r], q[r]])),
          out,
        ),
        expected,
      );
    };
    expect(run('P(sum)', 'P(sum)', 'P(sum)')).toBeGreaterThan(0.1);
    expect(run('S(0)', 'R', 'S(1)')).toBe(Infinity);
  });
});

test('explain says what each letter is and what gradients owe', () => {
  expect(explain('abi,aoi->abo', ['S(b)', 'R'], { axes: ['tp'] }).join('\n'))
    .toMatchInlineSnapshot(`
    "einsum abi,aoi->abo
      a  batch       in x, y and the result; not cut
      b  free        in x and the result; cut on tp: the result is cut; y is broadcast along it, so its gradient sums over it
      i  contraction in x, y; not cut
      o  free        in y and the result; not cut
    result: S(1) on tp
    gradient of x: abo,aoi->abi, S(1) on tp
      owes nothing
    gradient of y: abi,abo->aoi, P on tp
      owes 1 all_reduce on tp: b, cut on tp, is summed over in it"
  `);
});

describe('products take their rules from letters', () => {
  const rulesOfCall = (
    op: string,
    args: readonly OracleArg[],
    kwargs: Readonly<Record<string, OracleArg>> = {},
  ): string[] => bound(op, args, kwargs).rules.map(ruleText).sort();
  const t = (...shape: number[]): OracleArg => ({ t: shape });
  const ends: OracleArg = { t: [6], dt: 'i64' };
  const letters = (equation: string): string[] => rulesOf(equation).slice(1).map(ruleText).sort();
  /**
   * Without an operand that is not a tensor of the call: it stays whole where another operand has the
   * letter.
   */
  const bounds = (equation: string): string[] =>
    rulesOf(equation)
      .slice(1)
      .flatMap((r) =>
        r.inputs[2]?.kind === 'partial'
          ? []
          : [ruleText({ ...r, inputs: [...r.inputs.slice(0, 2), { kind: 'replicate' }] })],
      )
      .sort();

  test.each([
    ['aten.mm.default', [t(8, 8), t(8, 8)], letters('mk,kn->mn')],
    ['aten.bmm.default', [t(4, 8, 8), t(4, 8, 8)], letters('bmk,bkn->bmn')],
    ['aten.linear.default', [t(4, 8, 8), t(8, 8)], letters('abk,nk->abn')],
    ['aten.matmul.default', [t(4, 8, 8), t(8, 8)], letters('amk,kn->amn')],
    ['aten.mv.default', [t(8, 8), t(8)], letters('mk,k->m')],
    ['aten.outer.default', [t(8), t(8)], letters('m,n->mn')],
    ['aten._scaled_mm.default', [t(8, 8), t(8, 8), t(8, 8), t(8, 8)], letters('mk,kn,mk,kn->mn')],
    ['aten._grouped_mm.default', [t(12, 16), t(6, 16, 8), ends], bounds('tk,gkn,tg->tn')],
    ['aten._grouped_mm.default', [t(6, 8, 16), t(16, 12), ends], bounds('gmk,kt,tg->mt')],
    ['aten._grouped_mm.default', [t(8, 12), t(12, 16), ends], bounds('mt,tn,tg->gmn')],
    ['aten._grouped_mm.default', [t(6, 8, 16), t(6, 16, 8)], letters('gmk,gkn->gmn')],
  ] as const)('%s %#', (op, args, expected) => {
    expect(rulesOfCall(op, args)).toEqual(expected);
  });
  test('stablehlo.dot_general has the rules of its letters', () => {
    const dims = {
      lhs_batching_dimensions: [0],
      rhs_batching_dimensions: [0],
      lhs_contracting_dimensions: [2],
      rhs_contracting_dimensions: [1],
    };
    expect(rulesOfCall('stablehlo.dot_general', [t(4, 8, 8), t(4, 8, 8)], dims)).toEqual(
      letters('bmk,bkn->bmn'),
    );
  });
});
