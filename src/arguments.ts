/**
 * Checks what public functions are given: JavaScript lets everything through, and an error deep
 * inside names nothing that its caller knows.
 */

import { valueText, wrongArgument } from './errors.ts';

/** Records by fields that tell them apart, with the words of the error. */
const RECORDS = {
  cfg: { fields: ['name', 'entry', 'blocks'], is: 'a control flow graph, as captureCfg gives it' },
  cluster: { fields: ['name', 'accelerator'], is: "a cluster: loadCluster('dgx-h100')" },
  config: { fields: ['type', 'architecture'], is: 'a configuration, as parseModelConfig gives it' },
  einshard: { fields: ['expression', 'axes'], is: 'what resolveEinshard gives' },
  graph: {
    fields: ['nodes', 'outputs', 'subgraphs'],
    is: 'a graph, as trace and importGraph give it',
  },
  layout: { fields: ['shape', 'stride'], is: "a layout: parseLayout('(4,2):(2,1)')" },
  map: { fields: ['get', 'has', 'size'], is: 'a Map' },
  mesh: { fields: ['names', 'sizes', 'resolve'], is: "a mesh: parseMesh('dp=2,tp=4')" },
  operators: { fields: ['get', 'records'], is: 'a table of operators: builtinOperators()' },
  placement: { fields: ['kind', 'text'], is: "a placement: parsePlacement('S(0)')" },
  plan: { fields: ['nodes', 'outputs', 'request'], is: 'a plan: `plan` of what shard gives' },
  planned: {
    fields: ['plan', 'prepared', 'choice'],
    is: "what shard gives where its status is 'planned', or what reopen gives",
  },
  prepared: { fields: ['model', 'question'], is: 'a prepared request, as prepare gives it' },
  problem: { fields: ['domains', 'unary'], is: 'a problem, as ProblemBuilder gives it' },
  program: { fields: ['graph', 'mesh', 'space'], is: 'a program of a device, as lower gives it' },
  record: { fields: [], is: 'an object' },
  report: { fields: ['schema', 'versions'], is: 'what reportOf gives' },
  set: { fields: ['has', 'size'], is: 'a Set' },
  sharding: { fields: ['placements', 'orders'], is: "a sharding: parseSharding('S(0)R', mesh)" },
} as const;

/** Kinds of values that are no records of their own, with the words of the error. */
const VALUES = {
  boolean: 'true or false',
  function: 'a function',
  list: 'a list',
  null: 'null',
  number: 'a number',
  string: 'a string',
  undefined: 'left out',
} as const;

/** A kind of arguments by its name, or a record with these fields. */
export type ArgumentKind = keyof typeof RECORDS | keyof typeof VALUES | readonly string[];

/**
 * @param call the name of the function
 * @param name of the list
 * @param items of a list, or of what else gives them one by one
 * @param kind of each of them
 * @throws E_USAGE naming the first item that is of another kind, by its place
 */
export function checkItems(
  call: string,
  name: string,
  items: Iterable<unknown>,
  kind: ArgumentKind,
): void {
  let place = 0;
  for (const item of items) {
    if (!isOf(item, kind))
      throw wrongArgument(
        call,
        `item ${place} of ${name}`,
        foundText(item, [kind]),
        `it is ${kindText(kind)}.`,
      );
    place++;
  }
}

/**
 * @param call the name of the function
 * @param given each argument by its name, with the kinds that it may be of
 * @throws E_USAGE naming the first argument that is of none of its kinds
 */
export function checkKinds(
  call: string,
  given: Readonly<Record<string, readonly [value: unknown, ...kinds: readonly ArgumentKind[]]>>,
): void {
  for (const [name, [value, ...kinds]] of Object.entries(given)) {
    if (kinds.some((kind) => isOf(value, kind))) continue;
    const is = [...new Set(kinds.map(kindText))].join(', or ');
    throw wrongArgument(call, name, foundText(value, kinds), `it is ${is}.`);
  }
}

function isOf(value: unknown, kind: ArgumentKind): boolean {
  switch (kind) {
    case 'list':
      return Array.isArray(value) || ArrayBuffer.isView(value);
    case 'null':
      return value === null;
    case 'number':
      return typeof value === 'number' && !Number.isNaN(value);
    case 'boolean':
    case 'function':
    case 'string':
    case 'undefined':
      return typeof value === kind;
    default:
      return isRecord(value) && fieldsOf(kind).every((field) => field in value);
  }
}

/** Functions that carry fields are records, too. */
function isRecord(value: unknown): value is object {
  return (
    (typeof value === 'object' && value !== null && !Array.isArray(value)) ||
    typeof value === 'function'
  );
}

function fieldsOf(kind: Exclude<ArgumentKind, keyof typeof VALUES>): readonly string[] {
  return typeof kind === 'string' ? RECORDS[kind].fields : kind;
}

function kindText(kind: ArgumentKind): string {
  if (typeof kind !== 'string') return `an object with ${kind.join(', ')}`;
  return kind in VALUES
    ? VALUES[kind as keyof typeof VALUES]
    : RECORDS[kind as keyof typeof RECORDS].is;
}

/** Says the kind of a value; of a record the first field that it lacks. */
function foundText(value: unknown, kinds: readonly ArgumentKind[]): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!isRecord(value) || typeof value === 'function') return valueText(value);
  const lacks = kinds
    .filter((kind) => !(typeof kind === 'string' && kind in VALUES))
    .flatMap((kind) => fieldsOf(kind as Exclude<ArgumentKind, keyof typeof VALUES>))
    .find((field) => !(field in value));
  return lacks === undefined ? valueText(value) : `an object without '${lacks}'`;
}
