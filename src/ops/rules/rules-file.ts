/** Reads a rules file (`shardwright-rules/1`) into operator records. */

import { ShardwrightError } from '../../errors.ts';
import { DTYPES } from '../../graph/types.ts';
import { REDUCE_OPS } from '../../mesh/placements/partials/partial.ts';
import { parseJson } from '../../text/json.ts';
import type { OpContext, TensorMeta, TypedContext } from '../record/call.ts';
import { defineOp, type OperatorRecord } from '../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../record/rule.ts';
import { parseSchema } from '../record/schema.ts';
import { pointwiseRules } from './pointwise.ts';

/**
 * Rules files: operators and rules without code. JSON of the form
 *
 *     {"format": "shardwright-rules/1",
 *      "operators": [{"name": "my.op.default", "schema": "Tensor x, Tensor w", "outputs": ["x"],
 *                     "pointwise": false, "rules": ["S(0), R -> S(0)", "P(sum), R -> P(sum)"]},
 *                    {"name": "aten.mm.default", "rules": ["..."]}]}
 *
 * With a schema the entry is a new operator, each result typed like the named argument, or as
 * written (`f32[8, 16]`); without one its rules are added to those that the operator has.
 * `pointwise` gives the rules of elementwise functions.
 */
interface RulesEntry {
  readonly name: string;
  readonly schema?: string;
  /** For each result the argument whose type it has, or its type. */
  readonly outputs: readonly string[];
  readonly pointwise: boolean;
  readonly rules: readonly (readonly [inputs: readonly RuleSlot[], outputs: readonly RuleSlot[]])[];
  /** Place in the file, `operators[0]`. */
  readonly path: string;
}

const MAX_BYTES = 1 << 20;
const MAX_OPERATORS = 1000;
const MAX_RULES = 1000;
const MAX_TENSORS = 64;
const HINT = 'docs: src/ops/rules/rules-file.ts shows the form';

/** @throws E_RULES naming the JSON path of what is wrong */
export function parseRulesFile(text: string): readonly RulesEntry[] {
  if (text.length > MAX_BYTES) throw fault('', `the file is longer than ${MAX_BYTES} characters`);
  const file = parseJson(text, { hint: HINT }, { what: 'the rules file', code: 'E_RULES' });
  const root = object(file, '');
  if (root.get('format') !== 'shardwright-rules/1')
    throw fault(
      'format',
      "expected 'shardwright-rules/1'",
      `got ${JSON.stringify(root.get('format'))}`,
    );
  only(root, ['format', 'operators'], '');
  return list(root.get('operators'), 'operators', MAX_OPERATORS).map((item, i) =>
    entry(item, `operators[${i}]`),
  );
}

function entry(item: unknown, path: string): RulesEntry {
  const fields = object(item, path);
  only(fields, ['name', 'schema', 'outputs', 'pointwise', 'rules'], path);
  const schema = fields.get('schema');
  const pointwise = fields.get('pointwise') ?? false;
  if (typeof pointwise !== 'boolean') throw fault(`${path}.pointwise`, 'expected true or false');
  const outputs = list(fields.get('outputs') ?? [], `${path}.outputs`, MAX_TENSORS).map((o, k) =>
    word(o, `${path}.outputs[${k}]`),
  );
  const rules = list(fields.get('rules') ?? [], `${path}.rules`, MAX_RULES).map((r, k) =>
    parseRule(word(r, `${path}.rules[${k}]`), `${path}.rules[${k}]`),
  );
  const name = word(fields.get('name'), `${path}.name`);
  if (!/^[\w:]+(\.\w+)+$/.test(name))
    throw fault(`${path}.name`, 'expected a name with namespace, such as my.op.default', name);
  if (schema === undefined) {
    if (outputs.length > 0)
      throw fault(`${path}.outputs`, 'results are stated together with a schema');
    return { name, outputs, pointwise, rules, path };
  }
  const written = word(schema, `${path}.schema`);
  const args = schemaNames(written, `${path}.schema`);
  if (outputs.length === 0)
    throw fault(`${path}.outputs`, 'expected the argument that each result is typed like');
  outputs.forEach((name, k) => {
    if (!args.includes(name) && typeOf(name) === undefined)
      throw fault(
        `${path}.outputs[${k}]`,
        `'${name}' is not a tensor argument of the schema, and no type such as f32[8, 16]`,
      );
  });
  return { name, schema: written, outputs, pointwise, rules, path };
}

function schemaNames(text: string, path: string): string[] {
  try {
    return parseSchema(text)
      .filter((s) => s.type === 'Tensor' || s.type === 'Tensor?')
      .map((s) => s.name);
  } catch {
    throw fault(path, "expected a schema such as 'Tensor x, int dim=0'", text);
  }
}

/** `f32[8, 16]`; undefined for any other text. */
function typeOf(text: string): TensorMeta | undefined {
  const [, word, sizes] = /^(\w+)\[([\d, ]*)\]$/.exec(text) ?? [];
  const dtype = DTYPES.find((known) => known === word);
  if (dtype === undefined) return undefined;
  return { dtype, shape: sizes.trim() === '' ? [] : sizes.split(',').map(Number) };
}

/** `S(0), R -> P(sum)`; `-` is a result that is masked off. */
function parseRule(text: string, path: string): RulesEntry['rules'][number] {
  const sides = text.split('->');
  if (sides.length !== 2) throw fault(path, "expected inputs and results around one '->'", text);
  const [inputs, outputs] = sides.map((side) => {
    const trimmed = side.trim();
    const words = trimmed === '' ? [] : trimmed.split(',').map((w) => w.trim());
    if (words.length > MAX_TENSORS) throw fault(path, `more than ${MAX_TENSORS} tensors`);
    return words.map((w) => parseSlot(w, path));
  });
  return [inputs, outputs];
}

function parseSlot(text: string, path: string): RuleSlot {
  if (text === 'R') return R;
  if (text === '-') return null;
  const shard = /^S\((\d{1,2})\)$/.exec(text);
  if (shard !== null) return S(Number(shard[1]));
  const partial = /^P\((\w+)\)$/.exec(text)?.[1];
  const op = REDUCE_OPS.find((known) => known === partial);
  if (op !== undefined) return P(op);
  throw fault(path, `expected R, S(dim), P(${REDUCE_OPS.join('|')}) or -`, text);
}

/** The record of an entry with a schema. */
export function ruleRecord(source: RulesEntry, schema: string): OperatorRecord {
  return defineOp(source.name, {
    schema,
    cls: source.pointwise ? 'pointwise' : 'other',
    results: source.outputs.length > 1 ? 'tuple' : 'single',
    infer: (ctx: OpContext): TensorMeta[] =>
      source.outputs.map(
        (name) =>
          typeOf(name) ?? ctx.tensor(name) ?? ctx.fail(`argument '${name}' must be a tensor`),
      ),
    shard: (ctx) => rulesOf(source, ctx),
  });
}

/** Rules of an entry for a call. @throws E_RULES when a rule does not fit it */
export function rulesOf(source: RulesEntry, ctx: TypedContext): Rule[] {
  const written = source.rules.map(([inputs, outputs], k) => {
    const path = `${source.path}.rules[${k}]`;
    if (inputs.length !== ctx.inputs.length || outputs.length !== ctx.outputs.length)
      throw fault(
        path,
        `Strategy length ${inputs.length + outputs.length} != expected ` +
          `${ctx.outputs.length + ctx.inputs.length} (schema_outputs=${ctx.outputs.length} + ` +
          `inputs=${ctx.inputs.length}) for ${source.name}`,
      );
    return rule(inputs, outputs, { origin: 'ext' });
  });
  // A dim that a call does not have cannot be cut: the rule is for calls of higher rank.
  const fits = (slot: RuleSlot, meta: TensorMeta | null | undefined): boolean =>
    slot?.kind !== 'shard' || (meta !== null && meta !== undefined && slot.dim < meta.shape.length);
  const kept = written.filter(
    (r) =>
      r.inputs.every((s, i) => fits(s, ctx.inputs[i])) &&
      r.outputs.every((s, k) => fits(s, ctx.outputs[k])),
  );
  return source.pointwise ? [...pointwiseRules(ctx), ...kept] : kept;
}

function fault(path: string, message: string, got?: string): ShardwrightError {
  return new ShardwrightError(
    'E_RULES',
    `${path === '' ? 'rules file' : path}: ${message}${got === undefined ? '' : `, got '${got}'`}`,
    {
      path,
      hint: HINT,
    },
  );
}

function object(value: unknown, path: string): ReadonlyMap<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw fault(path, 'expected an object');
  return new Map(Object.entries(value));
}

function only(fields: ReadonlyMap<string, unknown>, known: readonly string[], path: string): void {
  for (const key of fields.keys())
    if (!known.includes(key))
      throw fault(path === '' ? key : `${path}.${key}`, `expected one of ${known.join(', ')}`, key);
}

function list(value: unknown, path: string, most: number): readonly unknown[] {
  if (!Array.isArray(value)) throw fault(path, 'expected a list');
  if (value.length > most) throw fault(path, `more than ${most} entries`);
  return value;
}

function word(value: unknown, path: string): string {
  if (typeof value === 'string' && value.length <= 1000) return value;
  throw fault(path, 'expected a text');
}
