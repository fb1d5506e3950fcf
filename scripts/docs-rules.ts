/**
 * Writes docs/built/rules-vs-dtensor.md: where our single-dim rules differ from the strategies that
 * PyTorch 2.13 DTensor was seen to offer (test/fixtures/oracle/rules.json.gz), call by call.
 *
 * Usage: npx tsx scripts/docs-rules.ts
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { format, resolveConfig } from 'prettier';

import type { Arg, DType, ValueType } from '../src/graph/types.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import { bind } from '../src/ops/record/infer.ts';
import type { TypedContext } from '../src/ops/record/record.ts';
import { isStrided, type Rule, type RuleSlot, slotText } from '../src/ops/record/rule.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

type OracleArg =
  | number
  | string
  | boolean
  | null
  | { readonly t: readonly number[]; readonly dt?: string }
  | readonly OracleArg[];
interface OracleCase {
  readonly name: string;
  readonly op: string;
  readonly args: readonly OracleArg[];
  readonly kwargs: Readonly<Record<string, OracleArg>>;
  readonly strategies: readonly (readonly [inputs: string, outputs: string])[];
}

const DTYPES: Readonly<Record<string, DType>> = {
  f32: 'f32',
  f16: 'f16',
  bf16: 'bf16',
  f64: 'f64',
  i64: 'i64',
  bool: 'b8',
  b8: 'b8',
};

/** Why rules of 2.13 are not ours, by what they look like. */
const REASONS: readonly (readonly [operator: RegExp, rule: RegExp, reason: string])[] = [
  [
    /embedding/,
    /PM/,
    'a masked lookup leaves a plain pending sum here: the mask is applied before the result ' +
      'leaves the rank',
  ],
  [
    /vector_norm/,
    /^P(max|min)/,
    'wrong: the norm takes absolute values, so an extreme of signed values is lost',
  ],
  [/vector_norm/, /PN/, 'a pending p-norm is not a placement of ours'],
  [
    /nll_loss|mse_loss|cross_entropy/,
    /Pavg/,
    'wrong with class weights, ignored targets or uneven shards; the rule with the global ' +
      'count is offered',
  ],
  [/nansum/, /Psum/, 'wrong: a NaN in one operand is not a NaN of the sum'],
  [/fft/, /P(max|min)/, 'wrong: a Fourier transform is linear, not monotone'],
  [/index_select|prod/, /Pproduct/, 'products stay pending only where they are made'],
  [
    /.*/,
    /P(max|min|avg|sum)/,
    'reachable from ours by conversions that cost nothing, or a pending kind that the dtype ' +
      'does not have here',
  ],
];

function bindCase(c: OracleCase): TypedContext | undefined {
  const types = new Map<string, ValueType>();
  const isList = (arg: OracleArg): arg is readonly OracleArg[] => Array.isArray(arg);
  const toArg = (arg: OracleArg): Arg => {
    if (isList(arg)) return arg.map(toArg);
    if (arg === 'max') return 9223372036854775807n;
    if (arg === 'inf') return { kind: 'float', value: Infinity };
    if (typeof arg === 'string') return arg in DTYPES ? { kind: 'dtype', dtype: DTYPES[arg] } : arg;
    if (arg === null || typeof arg !== 'object')
      return typeof arg === 'number' && !Number.isInteger(arg)
        ? { kind: 'float', value: arg }
        : arg;
    const name = `t${types.size}`;
    types.set(name, { kind: 'tensor', dtype: DTYPES[arg.dt ?? 'f32'], shape: arg.t });
    return { kind: 'value', name };
  };
  const args = c.args.map(toArg);
  const kwargs = Object.fromEntries(Object.entries(c.kwargs).map(([k, v]) => [k, toArg(v)]));
  return bind(operators, { target: c.op, args, kwargs }, (name) => {
    const type = types.get(name);
    if (type === undefined) throw new Error(`no tensor ${name}`);
    return type;
  });
}

/**
 * Words of a slot in DTensor's vocabulary: pending `or` and `and` of bools are its sums and
 * products.
 */
function words(slot: RuleSlot): string[] {
  if (slot === null) return ['-', 'R'];
  if (slot.kind === 'replicate') return ['R', '-'];
  // A cut in strides is none of the words that were recorded.
  if (slot.kind === 'shard') return isStrided(slot) ? [slotText(slot)] : [`S${slot.dim}`];
  if (slot.op === 'bor') return ['Psum', 'Pmax'];
  if (slot.op === 'band') return ['Pproduct', 'Pmin'];
  return [`P${slot.op}`];
}

const ourText = (r: Rule): string =>
  (
    `${r.inputs.map((s) => words(s)[0]).join(', ')} -> ` +
    `${r.outputs.map((s) => words(s)[0]).join(', ')}`
  ).trimStart() + (r.rewrite === undefined ? '' : ` [${r.rewrite}]`);
const split = (text: string): string[] => (text === '' ? [] : text.split(','));

/**
 * Tells whether a strategy of DTensor is one of our rules, after cutting or adding up what is
 * replicated for nothing.
 */
function covered(
  rules: readonly Rule[],
  inputs: readonly string[],
  outputs: readonly string[],
): boolean {
  return rules.some(
    (r) =>
      r.inputs.every((slot, i) => words(slot).includes(inputs[i]) || inputs[i] === 'R') &&
      r.outputs.every(
        (slot, k) => words(slot).includes(outputs[k]) || slot === null || slot.kind === 'replicate',
      ),
  );
}

const operators = builtinOperators();

/** The document. */
export async function rulesDocument(): Promise<string> {
  const text = gunzipSync(readFileSync(`${root}test/fixtures/oracle/rules.json.gz`)).toString();
  const { cases } = JSON.parse(text) as { readonly cases: Readonly<Record<string, OracleCase>> };
  const lines: string[] = [];
  const absent: string[] = [];
  let more = 0;
  let fewer = 0;
  let same = 0;
  for (const c of Object.values(cases)) {
    const ctx = bindCase(c);
    if (ctx === undefined) {
      absent.push(`\`${c.op}\``);
      continue;
    }
    const rules = operators.get(c.op)?.shard(ctx) ?? [];
    const theirs = c.strategies.map(
      ([inputs, outputs]) => [split(inputs), split(outputs)] as const,
    );
    const ours = rules.filter(
      (r) =>
        !theirs.some(
          ([inputs, outputs]) =>
            r.inputs.every((slot, i) => words(slot).includes(inputs[i])) &&
            r.outputs.every((slot, k) => words(slot).includes(outputs[k])),
        ),
    );
    const dropped = theirs.filter(
      ([inputs, outputs]) => !inputs.every((w) => w === 'R') && !covered(rules, inputs, outputs),
    );
    if (ours.length + dropped.length === 0) {
      same++;
      continue;
    }
    more += ours.length;
    fewer += dropped.length;
    lines.push('', `### ${c.name}: \`${c.op}\``, '');
    if (ours.length > 0)
      lines.push(
        `Ours beyond 2.13: ${[...new Set(ours.map((r) => `\`${ourText(r)}\``))].join(', ')}.`,
      );
    for (const [inputs, outputs] of dropped) {
      const rule = `${inputs.join(', ')} -> ${outputs.join(', ')}`;
      const reason =
        REASONS.find(([op, pattern]) => op.test(c.op) && pattern.test(rule))?.[2] ??
        'the dims do not divide, or the cut is strided';
      lines.push('', `2.13 only: \`${rule}\`: ${reason}.`);
    }
  }
  const document = [
    '# Sharding rules beside PyTorch 2.13 DTensor',
    '',
    'Generated by `npx tsx scripts/docs-rules.ts` from the strategies that DTensor was seen ' +
      'to offer without communication on',
    'a mesh of 4. `S0` cuts dim 0, `Psum` is a pending sum; a pending `or` of bools is ' +
      'written `Psum`, a pending `and`',
    '`Pproduct`, as DTensor does. A word in brackets says how the local call is rewritten. ' +
      'Every rule of ours is run by',
    '`shardwright rules --check`; what 2.13 offers and is wrong is left out, with the reason.',
    '',
    `${Object.keys(cases).length - absent.length} calls: ${same} with the same rules, ` +
      `${more} rules that 2.13 lacks, ${fewer} of 2.13 that are not ours. Not compared, ` +
      `because we have no record: ${absent.join(', ')}.`,
    ...lines,
    '',
  ].join('\n');
  return format(document, {
    ...(await resolveConfig(`${root}docs/rules.md`)),
    parser: 'markdown',
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  mkdirSync(`${root}docs/built`, { recursive: true });
  writeFileSync(`${root}docs/built/rules-vs-dtensor.md`, await rulesDocument());
}
