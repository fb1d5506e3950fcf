/**
 * Checks what public functions are given: JavaScript lets everything through, and an error deep
 * inside names nothing that its caller knows.
 */

import { messageOf, ShardwrightError, valueText, wrongArgument } from './errors.ts';

/** A kind inside one of the tables below: a name in them, or the fields of a record. */
type Part = string | readonly string[];

interface RecordKind {
  /** The fields, or the kinds that each may be of; those with `?` may be left out. */
  readonly fields: readonly string[] | Readonly<Record<string, readonly Part[]>>;
  /** The kind of every member, where their names are the user's. */
  readonly members?: Part;
  /** The words of the error. */
  readonly is: string;
}

/** Records by fields that tell them apart. */
const RECORDS = {
  axis: { fields: { size: ['integer'] }, is: 'an axis of what resolveEinshard gives' },
  call: {
    fields: {
      target: ['string'],
      text: ['string'],
      inputs: ['tensors'],
      outputs: ['tensors'],
      rules: ['rules'],
    },
    is: 'a call, as operatorCall gives it',
  },
  cfg: {
    fields: { name: ['string'], entry: ['string'], blocks: ['records'] },
    is: 'a control flow graph, as captureCfg gives it',
  },
  cluster: {
    fields: {
      id: ['string'],
      name: ['string'],
      accelerator: ['string'],
      peakFlopsPerSecond: ['record'],
      matmulCap: ['number'],
      memoryBytesPerSecond: ['number'],
      memoryEfficiency: ['number'],
      devicesPerHost: ['number'],
      intra: ['record'],
      inter: ['record'],
      launchSeconds: ['number'],
      matmulLaunchSeconds: ['number'],
    },
    is: "a cluster: loadCluster('dgx-h100')",
  },
  config: {
    fields: {
      type: ['string'],
      architecture: [['shape', 'program']],
      notes: ['names'],
      defaults: ['names'],
      ignored: ['names'],
    },
    is: 'a configuration, as parseModelConfig gives it',
  },
  einshard: {
    fields: {
      expression: ['expression'],
      devices: ['integer'],
      axes: ['axes'],
      axisOfDim: ['integers'],
    },
    is: 'what resolveEinshard gives',
  },
  expression: {
    fields: { left: ['records'], right: ['records'] },
    is: 'an expression, as parseEinshard gives it',
  },
  graph: {
    fields: { nodes: ['nodes'], outputs: ['outputs'], subgraphs: ['graphs'], name: ['string'] },
    is: 'a graph, as trace and importGraph give it',
  },
  graphs: { fields: [], members: 'graph', is: 'an object with a graph of each name' },
  layout: { fields: ['shape', 'stride'], is: "a layout: parseLayout('(4,2):(2,1)')" },
  map: { fields: ['get', 'has', 'size'], is: 'a Map' },
  mesh: {
    fields: {
      names: ['names'],
      sizes: ['integers'],
      resolve: ['function'],
      dims: ['meshDims'],
      strides: ['integers'],
      devices: ['integers'],
    },
    is: "a mesh: parseMesh('dp=2,tp=4')",
  },
  meshDim: { fields: { name: ['string'], size: ['integer'] }, is: 'a name with a size' },
  node: {
    fields: {
      name: ['string'],
      target: ['string'],
      args: ['list'],
      kwargs: ['record'],
      type: [['kind']],
      meta: ['record'],
    },
    is: 'a node of a graph',
  },
  operators: {
    fields: { get: ['function'], records: ['list'] },
    is: 'a table of operators: builtinOperators()',
  },
  parameter: {
    fields: { name: ['string'], placement: ['string'], shape: ['numbers'] },
    is: 'a parameter of a plan',
  },
  plannedOutput: {
    fields: { placement: ['string'], redistributions: ['records'] },
    is: 'an output of a plan',
  },
  output: { fields: ['value', 'role'], is: 'an output of a graph' },
  placement: {
    fields: { kind: ['string'], text: ['string'] },
    is: "a placement: parsePlacement('S(0)')",
  },
  plan: {
    fields: { nodes: ['records'], outputs: ['plannedOutputs'], request: ['record'] },
    is: 'a plan: `plan` of what shard gives',
  },
  writtenPlan: {
    fields: {
      model: ['string'],
      mesh: ['meshDims'],
      parameters: ['parameters'],
      memory: ['record'],
      nodes: ['records'],
      outputs: ['plannedOutputs'],
      request: ['record'],
      cluster: ['string'],
      objective: ['record'],
      greedySeconds: ['number', 'null'],
      proof: ['proof'],
      assumptions: ['names'],
      'step?': ['record', 'undefined'],
    },
    is: 'a plan: `plan` of what shard gives',
  },
  planned: {
    fields: { plan: ['plan'], prepared: ['prepared'], choice: ['list'] },
    is: "what shard gives where its status is 'planned', or what reopen gives",
  },
  prepared: {
    fields: {
      model: [['graph', 'problem', 'uses']],
      question: [['request', 'program', 'operators']],
    },
    is: 'a prepared request, as prepare gives it',
  },
  restricted: {
    fields: {
      model: [['graph', 'problem', 'uses']],
      question: [['request', 'program', 'operators']],
      left: [['problem', 'compact', 'contradictions']],
    },
    is: 'a prepared request, as prepare gives it',
  },
  solvable: {
    fields: {
      model: [['graph', 'problem', 'uses']],
      question: [['request', 'program', 'operators']],
      left: [['problem', 'compact', 'contradictions']],
      solver: [['solve', 'prepared']],
    },
    is: 'a prepared request, as prepare gives it',
  },
  problem: { fields: ['domains', 'unary'], is: 'a problem, as ProblemBuilder gives it' },
  program: {
    fields: {
      graph: ['graph'],
      mesh: ['mesh'],
      space: ['record'],
      symbols: ['map'],
      values: ['values'],
    },
    is: 'a program of a device, as lower gives it',
  },
  proof: { fields: { status: ['string'], evidence: ['names'] }, is: 'a proof of a plan' },
  recipe: { fields: { name: ['string'], status: ['string'] }, is: 'a recipe with its price' },
  recomputation: { fields: { values: ['records'] }, is: 'what recomputeGraph gives' },
  record: { fields: [], is: 'an object' },
  report: { fields: ['schema', 'versions'], is: 'what reportOf gives' },
  remat: { fields: { nodes: ['steps'] }, is: 'a graph of results, each with those that it needs' },
  step: {
    fields: { bytes: ['number'], seconds: ['number'], needs: ['integers'] },
    is: 'a result with its bytes, its seconds and what it needs',
  },
  subject: {
    fields: { axis: ['string'], dim: ['number'], size: ['number', 'string'] },
    is: 'a tensor dim with its mesh axis',
  },
  operator: {
    fields: {
      name: ['string'],
      aliases: ['names'],
      schema: ['records'],
      infer: ['function'],
      shard: ['function'],
    },
    is: 'what defineOp gives',
  },
  set: { fields: ['has', 'size'], is: 'a Set' },
  sharding: {
    fields: { placements: ['placements'], orders: ['map'] },
    is: "a sharding: parseSharding('S(0)R', mesh)",
  },
} as const satisfies Readonly<Record<string, RecordKind>>;

/** Lists by the kinds of their items, with the words of the error. */
const LISTS = {
  axes: { items: ['axis'], is: 'a list of axes' },
  integers: { items: ['integer'], is: 'a list of integers' },
  placementKinds: {
    items: [['kind', 'words', 'parse']],
    is: 'a list of kinds of placements',
  },
  lists: { items: ['names'], is: 'a list of lists of texts' },
  levels: { items: [['name', 'devices']], is: 'a list of levels with their devices' },
  meshDims: { items: ['meshDim'], is: 'a list of names with sizes' },
  names: { items: ['string'], is: 'a list of texts' },
  numbers: { items: ['number'], is: 'a list of numbers' },
  nodes: { items: ['node'], is: 'a list of nodes' },
  outputs: { items: ['output'], is: 'a list of outputs' },
  pairs: { items: ['integers'], is: 'a list of pairs of integers' },
  parameters: { items: ['parameter'], is: 'a list of parameters' },
  places: { items: ['string', 'integer'], is: 'a list of names or positions' },
  plannedOutputs: { items: ['plannedOutput'], is: 'a list of outputs' },
  placements: { items: ['placement'], is: 'a list of placements' },
  priced: { items: ['recipe'], is: 'a list of recipes with their prices' },
  records: { items: ['record'], is: 'a list of objects' },
  rules: { items: [['inputs', 'outputs']], is: 'a list of rules' },
  steps: { items: ['step'], is: 'a list of results' },
  values: { items: [['local', 'shape']], is: 'a list of local values' },
  tensors: { items: [['dtype', 'shape'], 'null'], is: 'a list of tensors' },
  trees: { items: ['number', 'trees'], is: 'a list of numbers and of such lists' },
  tilers: {
    items: ['null', 'number', 'layout', 'tilers'],
    is: 'a list of sizes, of layouts, and of such lists',
  },
} as const satisfies Readonly<Record<string, { items: readonly Part[]; is: string }>>;

/** Kinds of values that are no records of their own, with the words of the error. */
const VALUES = {
  boolean: 'true or false',
  choice: 'a list of integers',
  function: 'a function',
  integer: 'an integer',
  list: 'a list',
  null: 'null',
  number: 'a number',
  sizesByName: 'a Map of names to sizes',
  string: 'a string',
  types: 'a Map of axes to their types',
  undefined: 'left out',
} as const;

type RecordName = keyof typeof RECORDS;
type ListName = keyof typeof LISTS;
type ValueName = keyof typeof VALUES;

/** A kind of arguments by its name, or a record with these fields. */
export type ArgumentKind = RecordName | ListName | ValueName | readonly string[];

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
    check(call, `item ${place} of ${name}`, item, [kind]);
    place++;
  }
}

/**
 * @param call the name of the function
 * @param given each argument by its name, with the kinds that it may be of
 * @throws E_USAGE naming the first argument that is of none of its kinds, and the part of it that
 *   is not what its kind has there
 */
export function checkKinds(
  call: string,
  given: Readonly<Record<string, readonly [value: unknown, ...kinds: readonly ArgumentKind[]]>>,
): void {
  for (const [name, [value, ...kinds]] of Object.entries(given)) check(call, name, value, kinds);
}

function check(call: string, name: string, value: unknown, kinds: readonly ArgumentKind[]): void {
  let fault: Fault | undefined;
  try {
    fault = faultOf(value, kinds);
  } catch (error) {
    // Reading runs code of the caller where a property is a getter, or the object a proxy. Traced
    // values refuse it in their own words.
    if (error instanceof ShardwrightError) throw error;
    fault = { path: '', found: `an object that cannot be read: ${messageOf(error)}` };
  }
  if (fault === undefined) return;
  const is = [...new Set(kinds.map(kindText))].join(', or ');
  const { path, found } = fault;
  throw wrongArgument(call, partText(name, path), found, `${path === '' ? 'it' : name} is ${is}.`);
}

/** `item 1 of dims`, `graph.nodes[2].name`; the beginning of a path that is too long to read. */
function partText(name: string, path: string): string {
  const item = /^\[(\d+)\]$/.exec(path);
  if (item !== null) return `item ${item[1]} of ${name}`;
  return `${name}${path.length > MOST_PATH ? `${path.slice(0, MOST_PATH)}...` : path}`;
}

const MOST_PATH = 60;

/** Lists in lists that an argument may have: one that holds itself has no end. */
const MOST_NESTED = 256;

/** A part that is not of its kind: its path in the argument, and what it is. */
interface Fault {
  readonly path: string;
  readonly found: string;
}

/** The first fault of a value that is of none of these kinds; undefined where it is of one. */
function faultOf(value: unknown, kinds: readonly Part[], depth = 0): Fault | undefined {
  if (depth > MOST_NESTED) return { path: '', found: `nested deeper than ${MOST_NESTED}` };
  let deepest: Fault | undefined;
  for (const kind of kinds) {
    const fault = faultAs(value, kind as ArgumentKind, depth);
    if (fault === undefined) return undefined;
    // Of several kinds the one that fits furthest was meant.
    if (deepest === undefined || fault.path.length > deepest.path.length || says(fault, deepest))
      deepest = fault;
  }
  return deepest;
}

/** An object that lacks a field says more than `an object`. */
function says(fault: Fault, than: Fault): boolean {
  return fault.path === than.path && fault.found.length > than.found.length;
}

function faultAs(value: unknown, kind: ArgumentKind, depth: number): Fault | undefined {
  if (isName(kind, VALUES)) return isValue(value, kind) ? undefined : whole(value);
  if (isName(kind, LISTS)) return listFault(value, LISTS[kind].items, depth + 1);
  if (typeof kind === 'string') return sound(value, kind, depth + 1);
  return recordFault(value, kind, depth + 1);
}

function isName<T extends object>(kind: Part, table: T): kind is keyof T & string {
  return typeof kind === 'string' && kind in table;
}

function isValue(value: unknown, kind: ValueName): boolean {
  switch (kind) {
    case 'integer':
      return Number.isSafeInteger(value);
    case 'list':
      return Array.isArray(value) || isNumbers(value);
    case 'choice':
      return (
        (Array.isArray(value) || isNumbers(value)) &&
        Array.from(value as ArrayLike<unknown>).every((one) => Number.isSafeInteger(one))
      );
    case 'null':
      return value === null;
    case 'number':
      return typeof value === 'number' && !Number.isNaN(value);
    case 'sizesByName':
      return value instanceof Map && [...value.keys()].every((name) => typeof name === 'string');
    case 'types':
      return value instanceof Map && [...value].flat().every((text) => typeof text === 'string');
    default:
      return typeof value === kind;
  }
}

/** Typed arrays of big integers have other arithmetic, and a DataView has no items. */
function isNumbers(value: unknown): boolean {
  return (
    ArrayBuffer.isView(value) &&
    !(
      value instanceof BigInt64Array ||
      value instanceof BigUint64Array ||
      value instanceof DataView
    )
  );
}

function listFault(value: unknown, kinds: readonly Part[], depth: number): Fault | undefined {
  if (!Array.isArray(value)) return whole(value);
  // By position: a list may have gaps.
  for (let place = 0; place < value.length; place++) {
    const fault = faultOf(value[place], kinds, depth);
    if (fault !== undefined) return { ...fault, path: `[${place}]${fault.path}` };
  }
  return undefined;
}

/** Records that were found in order, by their kind: they are never changed. */
const inOrder = new Map<RecordName, WeakSet<object>>();

function sound(value: unknown, kind: RecordName, depth: number): Fault | undefined {
  if (!isRecord(value)) return whole(value);
  const known = inOrder.get(kind) ?? new WeakSet();
  if (known.has(value)) return undefined;
  const fault = partsFault(value, RECORDS[kind], depth);
  // Options are read and spread later: the getters among them are tried here.
  if (kind === 'record') Object.values(value);
  if (fault === undefined) inOrder.set(kind, known.add(value));
  return fault;
}

function partsFault(value: object, kind: RecordKind, depth: number): Fault | undefined {
  const fault = recordFault(value, kind.fields, depth);
  if (fault !== undefined || kind.members === undefined) return fault;
  for (const [name, member] of Object.entries(value)) {
    const found = faultOf(member, [kind.members], depth);
    if (found !== undefined) return { ...found, path: `.${name}${found.path}` };
  }
  return undefined;
}

function recordFault(
  value: unknown,
  fields: RecordKind['fields'],
  depth: number,
): Fault | undefined {
  if (!isRecord(value)) return whole(value);
  const names = isList(fields) ? fields : Object.keys(fields);
  const lacks = names.find((field) => !field.endsWith('?') && !(field in value));
  if (lacks !== undefined) return { path: '', found: `an object without '${lacks}'` };
  for (const field of names) {
    const name = field.replace('?', '');
    const part = (value as Readonly<Record<string, unknown>>)[name];
    const fault = isList(fields) ? undefined : faultOf(part, fields[field], depth);
    if (fault !== undefined) return { ...fault, path: `.${name}${fault.path}` };
  }
  return undefined;
}

function isList(fields: RecordKind['fields']): fields is readonly string[] {
  return Array.isArray(fields);
}

/** Functions that carry fields are records, too. */
function isRecord(value: unknown): value is object {
  if (typeof value === 'function') return true;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  // A proxy that answers nothing is found by asking it for what every object may be asked for.
  void (value as { readonly [Symbol.toStringTag]?: unknown })[Symbol.toStringTag];
  return true;
}

function whole(value: unknown): Fault {
  return { path: '', found: Number.isNaN(value) ? 'NaN' : valueText(value) };
}

function kindText(kind: ArgumentKind): string {
  if (typeof kind !== 'string') return `an object with ${kind.join(', ')}`;
  if (isName(kind, VALUES)) return VALUES[kind];
  return isName(kind, LISTS) ? LISTS[kind].is : RECORDS[kind].is;
}
