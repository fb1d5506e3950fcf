import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import type { Arg, DType, ValueType } from '../../../src/graph/types.ts';
import { bind } from '../../../src/ops/record/infer.ts';
import type { TypedContext } from '../../../src/ops/record/record.ts';
import type { Rule, RuleSlot } from '../../../src/ops/record/rule.ts';
import type { OperatorTable } from '../../../src/ops/record/table.ts';

/**
 * Reads the tables that a brute-force validator made (te../../fixtures/oracle, schema in its
 * README) and compares rules with them.
 */

/** A tensor; `init` says how values are drawn. */
export interface OracleTensor {
  readonly t: readonly number[];
  readonly dt?: string;
  readonly init?: string;
  readonly hi?: number;
}
export type OracleArg = number | string | boolean | null | OracleTensor | readonly OracleArg[];

function isList(arg: OracleArg): arg is readonly OracleArg[] {
  return Array.isArray(arg);
}

export interface OracleCase {
  readonly name: string;
  readonly op: string;
  readonly family: string;
  readonly args: readonly OracleArg[];
  readonly kwargs: Readonly<Record<string, OracleArg>>;
  readonly single_dim_rules: [string, string][] | null;
}
export interface Validity {
  readonly tested: number;
  readonly total: number;
  /** Inputs, then for each result the placements that hold, `|`-joined. */
  readonly valid: string[][];
  readonly partly_valid: string[][];
  readonly skipped?: string;
}

function table<T>(name: string): Record<string, T> {
  const bytes = readFileSync(new URL(`../../fixtures/oracle/${name}`, import.meta.url));
  return (JSON.parse(gunzipSync(bytes).toString()) as { cases: Record<string, T> }).cases;
}

export const oracleCases = table<OracleCase>('rules.json.gz');
const validity = table<Record<string, Validity | 'same as 2'> & { skipped?: string }>(
  'valid.json.gz',
);

/** Verdicts for a number of ranks; undefined where the validator skipped the case. */
export function verdicts(name: string, ranks: 2 | 3): Validity | undefined {
  const entry = validity[name];
  if (entry === undefined || entry['2'] === undefined) return undefined;
  const at = entry[String(ranks)];
  return at === 'same as 2' ? (entry['2'] as Validity) : at;
}

const DTYPES: Readonly<Record<string, DType>> = {
  f32: 'f32',
  bf16: 'bf16',
  f16: 'f16',
  f64: 'f64',
  i64: 'i64',
  b8: 'b8',
  bool: 'b8',
};

/** The call of a case, bound; undefined if the table has no such operator. */
export function bindCase(
  operators: OperatorTable,
  c: Pick<OracleCase, 'name' | 'op' | 'args' | 'kwargs'>,
): TypedContext | undefined {
  const types = new Map<string, ValueType>();
  const toArg = (arg: OracleArg): Arg => {
    if (isList(arg)) return arg.map(toArg);
    if (arg === 'max') return 9223372036854775807n;
    if (arg === 'inf') return { kind: 'float', value: Infinity };
    if (typeof arg === 'string') return arg in DTYPES ? { kind: 'dtype', dtype: DTYPES[arg] } : arg;
    if (arg === null || typeof arg !== 'object') {
      return typeof arg === 'number' && !Number.isInteger(arg)
        ? { kind: 'float', value: arg }
        : arg;
    }
    const name = `t${types.size}`;
    types.set(name, { kind: 'tensor', dtype: DTYPES[arg.dt ?? 'f32'], shape: arg.t });
    return { kind: 'value', name };
  };
  const args = c.args.map(toArg);
  const kwargs = Object.fromEntries(Object.entries(c.kwargs).map(([k, v]) => [k, toArg(v)]));
  return bind(operators, { name: c.name, target: c.op, args, kwargs }, (name) => {
    const type = types.get(name);
    if (type === undefined) throw new Error(`unknown value ${name}`);
    return type;
  });
}

/** Words of a slot in the oracle's spelling; pending `or` and `and` of bools have two each. */
function words(slot: RuleSlot): string[] {
  if (slot === null) return ['-'];
  if (slot.kind === 'replicate') return ['R'];
  if (slot.kind === 'shard') return [`S${slot.dim}`];
  if (slot.op === 'bor') return ['Psum', 'Pmax'];
  if (slot.op === 'band') return ['Pproduct', 'Pmin'];
  return [`P${slot.op}`];
}

const wordsOfRule = (r: Rule): string => r.inputs.map((s) => words(s)[0]).join(',');

/** Tells whether the rule's own conditions let it stand on `ranks` ranks at these sizes. */
function admitted(r: Rule, ctx: TypedContext, ranks: number): boolean {
  const fits = (slot: RuleSlot, shape: readonly number[]): boolean =>
    slot?.kind !== 'shard' || !slot.even || (shape[slot.dim] / slot.unit) % ranks === 0;
  return (
    r.inputs.every((s, i) => fits(s, ctx.inputs[i].shape)) &&
    r.outputs.every((s, i) => fits(s, ctx.outputs[i]?.shape ?? []))
  );
}

function allows(valid: string | undefined, slot: RuleSlot): boolean {
  // Opaque results (random state) were not judged.
  if (valid === undefined || valid === '*' || slot === null) return true;
  const allowed = valid.split('|');
  // A replicated result is also its own average and extreme.
  if (allowed.includes('R')) allowed.push('Pavg', 'Pmax', 'Pmin');
  return words(slot).some((w) => allowed.includes(w));
}

/**
 * Input words that the validator tried: it left averages and extremes out where there are many
 * operands.
 */
function triedWords(
  verdict: Validity,
  ctx: TypedContext,
): (word: string, input: number) => boolean {
  const shards = ctx.inputs.map((t) => t.shape.length);
  const all = shards.reduce((n, rank) => n * (rank + 5), 1);
  const onlySum = all !== verdict.total;
  return (word) =>
    word === 'R' ||
    word.startsWith('S') ||
    word === 'Psum' ||
    (!onlySum && /^P(avg|max|min)$/.test(word));
}

/** Plain rules (nothing rewritten) that the validator refutes. */
export function unsound(
  rules: readonly Rule[],
  ctx: TypedContext,
  verdict: Validity,
  ranks: number,
): string[] {
  const tried = triedWords(verdict, ctx);
  const found: string[] = [];
  for (const r of rules) {
    if (r.rewrite !== undefined || r.collectives !== undefined || !admitted(r, ctx, ranks))
      continue;
    if (r.inputs.some((s) => s?.kind === 'partial' && (s.op === 'bor' || s.op === 'band')))
      continue;
    const inputs = wordsOfRule(r);
    if (!inputs.split(',').every((w, i) => w === '' || tried(w, i))) continue;
    const entry = verdict.valid.find((v) => v[0] === inputs);
    const text = `${inputs} -> ${r.outputs.map((s) => words(s).join('|')).join(',')}`;
    if (entry === undefined || !r.outputs.every((s, i) => allows(entry[i + 1], s)))
      found.push(text);
  }
  return found;
}

/**
 * Tells whether a rule takes inputs placed as `inputs`, possibly after conversions that cost
 * nothing (R to anything but a product).
 */
function takes(r: Rule, inputs: readonly string[]): boolean {
  return r.inputs.every((slot, i) => {
    const own = words(slot);
    return own.includes(inputs[i]) || (inputs[i] === 'R' && !own.includes('Pproduct'));
  });
}

/**
 * Valid combinations that neither a rule nor a free conversion gives, at any evenness. Rewritten
 * rules count as rules.
 */
export function missing(rules: readonly Rule[], verdict: Validity): string[] {
  const found: string[] = [];
  for (const [inputs, ...outs] of verdict.valid) {
    const given = inputs === '' ? [] : inputs.split(',');
    // Replicated inputs: replicate everything, which the expansion adds.
    if (given.every((w) => w === 'R')) continue;
    const offered = rules.some(
      (r) => takes(r, given) && r.outputs.every((s, i) => allows(outs[i], s)),
    );
    if (!offered) found.push(`${inputs} -> ${outs.join(',')}`);
  }
  return found;
}
