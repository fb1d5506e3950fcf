import { describe, expect, test } from 'vitest';

import { builtinOperators } from '../../src/ops/builtin.ts';
import { ruleText } from '../../src/ops/record/rule.ts';
import { bindCase, missing, oracleCases, unsound, verdicts } from './support/oracle.ts';

const operators = builtinOperators();
const cases = Object.values(oracleCases);

/**
 * Valid combinations that we do not offer, with the reason. Anything else that the validator found
 * valid is a rule or a free conversion away.
 */
const WAIVED: Readonly<Record<string, readonly [reason: string, entries: readonly string[]]>> = {
  log: ['domain: other ranks may hold values outside it', ['Pmin -> Pmin']],
  log1p: ['domain', ['Pmin -> Pmin']],
  rsqrt: ['domain', ['Pmin -> Pmax']],
  ...Object.fromEntries(
    ['sdpa_cpu_flash', 'sdpa_flash'].map((name) => [
      name,
      ['values as wide as queries: the flash kernels take no others', ['R,R,S3 -> S3,R']],
    ]),
  ),
  sdpa_flash_bw: [
    'values as wide as queries: the flash kernels take no others',
    ['S3,R,R,S3,S3,R,R,R -> Psum,Psum,S3'],
  ],
  logical_not: [
    'accident of random floats that are never zero',
    ['Pmax -> Pmax|Psum', 'Pmin -> Pmax|Psum'],
  ],
  eq: [
    'accident of random floats that never tie',
    ['R,Pmax -> Pmax|Psum', 'R,Pmin -> Pmax|Psum', 'Pmax,R -> Pmax|Psum', 'Pmin,R -> Pmax|Psum'],
  ],
  ne: [
    'the same accident',
    [
      'R,Pmax -> Pmin|Pproduct',
      'R,Pmin -> Pmin|Pproduct',
      'Pmax,R -> Pmin|Pproduct',
      'Pmin,R -> Pmin|Pproduct',
    ],
  ],
  vector_norm2: ['no pending p-norm in the placement vocabulary', ['S0 -> PN2', 'S1 -> PN2']],
  nansum: ['a NaN in one part is not a NaN of the sum; none was drawn', ['Psum -> Psum']],
  nll_loss: [
    'averages of means are wrong with ignored targets; offered as a global count',
    ['S0,S0 -> Pavg,Psum'],
  ],
  layer_norm_bw: [
    'a bias that is pending is never a parameter; its values are not read',
    [
      'R,R,R,R,R,Psum -> R,R,R',
      'R,R,R,R,Psum,Psum -> Psum,R,R',
      'S0,S0,S0,S0,R,Psum -> S0,Psum,Psum',
      'S1,S1,S1,S1,R,Psum -> S1,Psum,Psum',
      'Psum,R,R,R,R,Psum -> Psum,Psum,Psum',
    ],
  ],
  sdpa_efficient: [
    'the kernel pads its log-sum-exp to multiples of 32 rows; and no form was run with values of another width than queries',
    ['S2,R,R -> S2,S2', 'R,R,S3 -> S3,R'],
  ],
};

describe('rules against the brute-force validator', () => {
  test('nearly every case of the oracle has a record', () => {
    const without = cases.filter((c) => operators.get(c.op) === undefined).map((c) => c.op);
    // Upsampling and the fused optimizer (a list operator) are not in the table yet.
    expect(
      without.filter(
        (op) => !['aten.upsample_nearest2d.default', 'aten._fused_adamw_.default'].includes(op),
      ),
    ).toEqual([]);
  });

  test.each([2, 3] as const)('no rule is refuted on %i ranks', (ranks) => {
    const refuted: Record<string, string[]> = {};
    let judged = 0;
    for (const c of cases) {
      const ctx = bindCase(operators, c);
      const verdict = verdicts(c.name, ranks);
      const rules = ctx === undefined ? [] : (operators.get(c.op)?.shard(ctx) ?? []);
      if (ctx === undefined || verdict === undefined) continue;
      judged++;
      const wrong = unsound(rules, ctx, verdict, ranks);
      if (wrong.length > 0) refuted[c.name] = wrong;
    }
    expect(refuted).toEqual({});
    expect(judged).toBeGreaterThan(110);
  });

  test('what is valid and not offered is waived with a reason', () => {
    const found: Record<string, readonly string[]> = {};
    for (const c of cases) {
      const ctx = bindCase(operators, c);
      const verdict = verdicts(c.name, 2);
      const rules = ctx === undefined ? [] : (operators.get(c.op)?.shard(ctx) ?? []);
      if (ctx === undefined || verdict === undefined) continue;
      const absent = missing(rules, verdict);
      const waived = WAIVED[c.name]?.[1] ?? [];
      const open = absent.filter((m) => !waived.includes(m));
      if (open.length > 0) found[c.name] = open;
    }
    expect(found).toEqual({});
  });

  test('rules that PyTorch 2.13 registers are offered, but for the masked lookup and pending products', () => {
    const absent: string[] = [];
    const dtensorText = (text: string): string =>
      text
        .replace(/S\((\d)\)/g, 'S$1')
        .replace(/P\((\w+)\)/g, 'P$1')
        .replaceAll(', ', ',');
    for (const c of cases) {
      const ctx = bindCase(operators, c);
      if (ctx === undefined || c.single_dim_rules === null) continue;
      const ours = (operators.get(c.op)?.shard(ctx) ?? []).map((r) => dtensorText(ruleText(r)));
      for (const [inputs, outputs] of c.single_dim_rules) {
        if (!ours.includes(`${inputs} -> ${outputs}`))
          absent.push(`${c.name}: ${inputs} -> ${outputs}`);
      }
    }
    expect(absent).toEqual(['embedding: S0,PM -> PM', 'index_select: Pproduct,R -> Pproduct']);
  });

  test.each([
    ['mm', 8],
    ['bmm', 9],
    ['addmm_bias1d', 8],
  ])('%s has %i rules with the all-replicate one', (name, count) => {
    const c = oracleCases[name];
    const ctx = bindCase(operators, c);
    expect(ctx === undefined ? 0 : (operators.get(c.op)?.shard(ctx).length ?? 0) + 1).toBe(count);
  });
});
