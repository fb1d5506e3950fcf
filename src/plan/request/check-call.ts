/**
 * Arguments of the entry points as JavaScript may give them: a wrong one is refused by its name and
 * with the call that is right, before anything reads it.
 */
import { checkKinds } from '../../arguments.ts';
import { GRADIENTS, OPTIMIZERS } from '../../cost/memory/state-bytes.ts';
import {
  isList,
  isPlain,
  messageOf,
  ShardwrightError,
  suggestion,
  valueText,
} from '../../errors.ts';
import type { VocabularyPadding } from '../../models/vocabulary.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import {
  ACTIVATIONS,
  CHECKPOINT_POLICIES,
  COPIES,
  DEFAULT_REQUEST,
  MAPS,
  OBJECTIVES,
  type PlanRequest,
  SOLVERS,
  STRIDED,
  UNEVEN,
  UNKNOWN,
} from './request.ts';

/** The kind of a field: a type, or the names that it may be. */
type Kind = 'text' | 'number' | 'boolean' | 'list' | 'record' | readonly string[];

/** Every field of a request with its kinds; the compiler keeps the list whole. */
const FIELDS: Readonly<Record<keyof PlanRequest, readonly Kind[]>> = {
  mesh: ['text'],
  cluster: ['text', 'record'],
  memoryBytes: ['number'],
  headroom: ['number'],
  pins: ['list'],
  shardings: [['ignore']],
  optimizer: [OPTIMIZERS],
  gradients: [GRADIENTS],
  cost: ['text'],
  solver: [SOLVERS],
  gap: ['number'],
  budgetGap: ['number'],
  timeLimitSeconds: ['number'],
  seed: ['number'],
  uneven: [UNEVEN],
  cuts: ['list'],
  strided: [STRIDED],
  unknown: [UNKNOWN],
  sharing: ['boolean'],
  copies: [COPIES],
  joinedBodies: ['boolean'],
  compiled: ['boolean'],
  accumulate: ['number'],
  inputs: ['text'],
  outputs: ['text'],
  objective: [OBJECTIVES],
  maps: [MAPS],
  activations: [ACTIVATIONS],
  checkpoint: [CHECKPOINT_POLICIES, 'number'],
  recomputation: [['chosen']],
  overlap: ['boolean'],
  padVocabulary: ['record'],
  recipe: ['text'],
  trainer: ['text'],
  trainerAssumed: ['boolean'],
  risk: ['number'],
  inputDims: ['record'],
};
/** Fields of records inside of a request; those with `?` may be left out. */
const PIN: Readonly<Record<string, Kind>> = { node: 'text', spec: 'text' };
const INPUT_DIMS: Readonly<Record<string, Kind>> = { 'batch?': 'record', 'sequence?': 'record' };
const PADDING: Readonly<Record<keyof VocabularyPadding, Kind>> = {
  multiple: 'number',
  tensor: 'number',
  vocabulary: 'number',
  rows: 'number',
  parameters: 'number',
};
const DEFAULTS: Readonly<Record<string, unknown>> = DEFAULT_REQUEST;
const REQUEST_HINT = "give { mesh: 'dp=8', cluster: 'dgx-h100' }, and the fields that differ.";

/**
 * The whole request: what is left out is that of `DEFAULT_REQUEST`, and the record of a cluster
 * becomes its text. A request that is whole is given back as it is.
 *
 * @throws E_REQUEST for what is not a request, a field that no request has, and a mesh or a cluster
 *   that is missing
 */
export function completeRequest(request: unknown): PlanRequest {
  checkReadable(request);
  if (!isRecord(request))
    throw new ShardwrightError('E_REQUEST', `the request is ${valueText(request)}`, {
      hint: REQUEST_HINT,
    });
  for (const field of Object.keys(request))
    if (!Object.hasOwn(FIELDS, field))
      throw new ShardwrightError('E_REQUEST', `a request has no field '${field}'`, {
        hint: suggestion(field, Object.keys(FIELDS), 'fields'),
      });
  for (const field of ['mesh', 'cluster'])
    if (request[field] === undefined)
      throw new ShardwrightError('E_REQUEST', `the request does not state '${field}'`, {
        hint: REQUEST_HINT,
      });
  for (const [field, kinds] of Object.entries(FIELDS)) checkField(field, request[field], kinds);
  checkParts(request);
  // Every field has been looked at.
  const known = request as unknown as PlanRequest;
  const { cluster } = request;
  const missing = Object.keys(DEFAULTS).filter((field) => request[field] === undefined);
  if (missing.length === 0 && typeof cluster === 'string') return known;
  return {
    ...DEFAULT_REQUEST,
    ...known,
    ...Object.fromEntries(missing.map((field) => [field, DEFAULTS[field]])),
    cluster: typeof cluster === 'string' ? cluster : clusterText(cluster),
  };
}

/** @throws E_REQUEST for a field that cannot be read: getters and proxies run code of their own */
export function checkReadable(request: unknown): void {
  if (typeof request !== 'object' || request === null) return;
  try {
    for (const field of [...Object.keys(request), ...Object.keys(FIELDS)])
      Reflect.get(request, field);
  } catch (error) {
    throw new ShardwrightError('E_REQUEST', `the request cannot be read: ${messageOf(error)}`, {
      hint: REQUEST_HINT,
    });
  }
}

/** @throws E_REQUEST for what JSON cannot say, such as an object that holds itself */
function clusterText(cluster: unknown): string {
  try {
    return JSON.stringify(cluster);
  } catch (error) {
    throw new ShardwrightError(
      'E_REQUEST',
      `'cluster' of the request cannot be written as JSON: ${messageOf(error)}`,
      { hint: "give the name of a cluster, or a record: { cluster: 'dgx-h100' }." },
    );
  }
}

/** @throws E_REQUEST for a part of a field that has other fields than it should, or other kinds */
function checkParts(request: Readonly<Record<string, unknown>>): void {
  const { pins, cuts, inputDims, padVocabulary } = request;
  if (Array.isArray(pins)) pins.forEach((pin, i) => checkRecord(`pins[${i}]`, pin, PIN));
  if (Array.isArray(cuts)) cuts.forEach((cut, i) => checkField(`cuts[${i}]`, cut, ['text']));
  if (padVocabulary !== undefined) checkRecord('padVocabulary', padVocabulary, PADDING);
  if (inputDims === undefined) return;
  checkRecord('inputDims', inputDims, INPUT_DIMS);
  for (const [meaning, dims] of Object.entries(inputDims as object))
    for (const [input, dim] of Object.entries((dims ?? {}) as object))
      checkField(`inputDims.${meaning}.${input}`, dim, ['number']);
}

/** @throws E_REQUEST for a field that the record should not have, lacks, or has of another kind */
function checkRecord(where: string, value: unknown, fields: Readonly<Record<string, Kind>>): void {
  checkField(where, value, ['record']);
  const record = value as Readonly<Record<string, unknown>>;
  const names = Object.keys(fields).map((name) => name.replace('?', ''));
  for (const name of Object.keys(record))
    if (!names.includes(name))
      throw new ShardwrightError('E_REQUEST', `'${where}' of the request has no field '${name}'`, {
        hint: suggestion(name, names, 'fields'),
      });
  for (const [name, kind] of Object.entries(fields)) {
    const own = name.replace('?', '');
    if (record[own] === undefined && !name.endsWith('?'))
      throw new ShardwrightError('E_REQUEST', `'${where}' of the request does not state '${own}'`, {
        hint: hintOf(where),
      });
    checkField(`${where}.${own}`, record[own], [kind]);
  }
}

/** @throws E_REQUEST for a field that is there and is of no kind that it may have */
function checkField(field: string, value: unknown, kinds: readonly Kind[]): void {
  if (value === undefined || kinds.some((kind) => isKind(value, kind))) return;
  const found = typeof value === 'string' ? `'${value}'` : valueText(value);
  const wanted = kinds.map((kind) =>
    typeof kind === 'string' ? `a ${kind}` : `one of ${kind.join(', ')}`,
  );
  throw new ShardwrightError(
    'E_REQUEST',
    `'${field}' of the request is ${found}, wanted ${wanted.join(' or ')}`,
    { hint: hintOf(field) },
  );
}

function hintOf(field: string): string {
  return field.startsWith('pins') ? "give pins: [{ node: 'w1', spec: 'S(0)R' }]." : REQUEST_HINT;
}

function isKind(value: unknown, kind: Kind): boolean {
  if (typeof kind !== 'string') return kind.some((name) => name === value);
  if (kind === 'list') return isList(value);
  if (kind === 'record') return isRecord(value);
  return typeof value === (kind === 'text' ? 'string' : kind);
}

/** The table of a call; that of the built-in operators where none is given. @throws E_USAGE */
export function tableOf(call: string, table: OperatorTable | undefined): OperatorTable {
  if (table === undefined) return builtinOperators();
  checkKinds(call, { table: [table, 'operators'] });
  return table;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return isPlain(value);
}
