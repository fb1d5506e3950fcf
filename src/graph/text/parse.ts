/** Parses `swgraph 1` text into a linted graph. */

import { defined, nonEmpty } from '../../defined.ts';
import { suggestion, valueText, wrongArgument } from '../../errors.ts';
import { CHAR, isDigit } from '../../text/char.ts';
import { lintGraph, type Retype } from '../lint.ts';
import type { Arg, Dim, GivenSharding, Graph, Node, Output, Role, ValueType } from '../types.ts';
import { isList, NO_KWARGS, setOwn, tensorType } from '../value.ts';
import { checkedAt, type PlacedGraphs, Places } from './parse-places.ts';
import { MAX_NESTING, readArg, readType, readValueName, readValueUse } from './parse-values.ts';
import { type SizeRange, usualSize } from './size-value.ts';
import { GraphReader, isNameCode } from './token.ts';

const ROLES: readonly Role[] = [
  'parameter',
  'buffer',
  'constant',
  'input',
  'tangent',
  'state',
  'key',
  'arg',
];

/**
 * Reads `swgraph 1` text. The result is linted; with `retype`, every stated type is compared with
 * the operator's own.
 *
 * @throws E_GRAPH_PARSE with expected and found; E_GRAPH_LINT when the graph breaks a rule; E_TYPE
 *   where a type differs; each with line and column
 */
export function parseGraph(text: string, file?: string, retype?: Retype): Graph {
  if (typeof (text as unknown) !== 'string')
    throw wrongArgument('parseGraph', 'text', valueText(text), 'printGraph gives one.');
  const reader = new GraphReader(text, file);
  reader.space();
  if (!reader.word('swgraph')) reader.expected(`'swgraph 1'`);
  const version = reader.safeInteger('the version of the graph text');
  if (version !== 1)
    reader.fail(
      `graph text version ${version}, this program reads version 1`,
      0,
      'write the text again with this version',
    );
  reader.endLine();
  reader.space();
  const dims = readDims(reader, true);
  const placed: PlacedGraphs = [];
  const graph = readGraph(reader, 0, placed, dims);
  reader.space();
  if (reader.pos < text.length) reader.expected('the end of the text');
  checkedAt(placed, (one) => lintGraph(one, retype));
  return graph;
}

type Dims = Record<string, { min: number; max: number; multiple?: number }>;

/** `top`: of the outermost graph, whose dims have examples. */
function readDims(reader: GraphReader, top = false): Dims | undefined {
  let dims: Dims | undefined;
  while (reader.word('dim')) {
    dims ??= {};
    const at = reader.pos;
    const name = reader.name('the name of a size');
    if (Object.hasOwn(dims, name)) reader.fail(`size '${name}' is declared twice`, at);
    if (!reader.word('in')) reader.expected(`'in'`);
    reader.expect('[');
    const min = reader.safeInteger('the smallest size');
    reader.expect(',');
    const max = reader.word('inf') ? Infinity : reader.safeInteger(`the largest size or 'inf'`);
    reader.expect(']');
    const multiple = reader.word('multiple') ? reader.safeInteger('a factor') : undefined;
    const range = { min, max, ...defined({ multiple }) };
    setOwn(dims, name, range);
    if (top) readExample(reader, name, range);
    reader.endLine();
    reader.space();
  }
  return dims;
}

/** ` example 5`, ` example none`; without it the usual size. */
function readExample(reader: GraphReader, name: string, range: SizeRange): void {
  if (!reader.word('example')) {
    const usual = usualSize(range);
    if (usual !== undefined) reader.examples.set(name, usual);
  } else if (!reader.word('none'))
    reader.examples.set(name, reader.safeInteger('the example size'));
}

function readGraph(
  reader: GraphReader,
  depth: number,
  placed: PlacedGraphs,
  outerDims?: Dims,
): Graph {
  if (depth > MAX_NESTING) reader.fail(`graphs nest deeper than ${MAX_NESTING}`);
  if (!reader.word('graph')) reader.expected(`'graph'`);
  reader.expect('@');
  const name = reader.name('the name of the graph');
  reader.expect('{');
  reader.endLine();
  reader.space();
  const dims = outerDims ?? readDims(reader);
  const sections = new SectionReader(reader, depth, placed);
  const parts = sections.read();
  const graph: Graph = {
    name,
    ...parts,
    ...defined({ dims }),
  };
  placed.push([graph, sections.places]);
  return graph;
}

/** Reads the sections of one graph. Their order: notes and ties, inputs, nodes, outputs, bodies. */
class SectionReader {
  readonly places: Places;
  private readonly notes: string[] = [];
  private readonly ties: string[][] = [];
  private mesh: string | undefined;
  private readonly given: GivenSharding[] = [];
  private readonly nodes: Node[] = [];
  private readonly outputs: Output[] = [];
  private readonly subgraphs: Record<string, Graph> = {};
  private callsSeen = false;

  constructor(
    private readonly reader: GraphReader,
    private readonly depth: number,
    private readonly placed: PlacedGraphs,
  ) {
    this.places = new Places(reader);
  }

  read(): Omit<Graph, 'name' | 'dims'> {
    const { reader, notes, ties, given } = this;
    this.noteUses();
    for (;;) {
      reader.space();
      if (reader.accept('}')) break;
      this.readEntry(reader.pos);
      reader.endLine();
    }
    this.places.checkUses();
    const { mesh } = this;
    return {
      nodes: this.nodes,
      outputs: this.outputs,
      subgraphs: this.subgraphs,
      ...nonEmpty({ notes, ties }),
      ...defined({ mesh }),
      ...nonEmpty({ given }),
    };
  }

  private noteUses(): void {
    this.reader.onUse = (value, at) => this.places.use(value, at);
  }

  private readEntry(start: number): void {
    const { reader, places } = this;
    if (reader.word('note')) this.notes.push(reader.string('a sentence'));
    else if (reader.word('tie')) this.ties.push(readTie(reader));
    else if (reader.word('mesh')) this.mesh = reader.string('the dims of a mesh');
    else if (reader.word('given')) this.given.push(readGiven(reader));
    else if (reader.word('in')) {
      if (this.callsSeen) reader.fail('an input follows a node; inputs come first', start);
      this.nodes.push(readInput(reader, places));
    } else if (reader.peek('%')) {
      if (this.outputs.length > 0)
        reader.fail('a node follows an output; outputs come last', start);
      this.callsSeen = true;
      this.nodes.push(readNode(reader, places));
    } else if (reader.word('out')) this.outputs.push(readOutput(reader));
    else if (reader.peek('g') || reader.peek('b')) this.readBody(start);
    else reader.expected(`'in', a node '%name = ...', 'out', 'graph' or '}'`);
  }

  private readBody(start: number): void {
    const { reader, subgraphs } = this;
    let key: string | undefined;
    if (reader.word('body')) {
      reader.expect('@');
      key = reader.name('the name that calls use for the body');
      reader.endLine();
      reader.space();
    }
    const body = readGraph(reader, this.depth + 1, this.placed);
    this.noteUses();
    if (Object.hasOwn(subgraphs, key ?? body.name))
      reader.fail(`subgraph @${key ?? body.name} is defined twice`, start);
    setOwn(subgraphs, key ?? body.name, body);
  }
}

function readTie(reader: GraphReader): string[] {
  const group = [reader.string('the name of a parameter')];
  while (reader.peek('"')) group.push(reader.string('the name of a parameter'));
  if (group.length < 2) reader.expected('a second name');
  return group;
}

function readGiven(reader: GraphReader): GivenSharding {
  const on = reader.word('output')
    ? { output: reader.safeInteger('the position of an output') }
    : { value: readValueName(reader) };
  const sharding = reader.string('a sharding');
  const strength = reader.word('pin') ? 'pin' : 'hint';
  if (strength === 'hint' && !reader.word('hint')) reader.expected(`'pin' or 'hint'`);
  const priority = reader.word('priority') ? reader.safeInteger('a priority') : undefined;
  return { ...on, sharding, strength, ...defined({ priority }) };
}

function readInput(reader: GraphReader, places: Places): Node {
  reader.blanks();
  const at = reader.pos;
  const name = readValueName(reader);
  reader.expect(':');
  reader.blanks();
  places.define(name, at, reader.pos);
  const type = readType(reader, 0);
  const role = ROLES.find((r) => reader.word(r));
  if (role === undefined) reader.expected(`a role (${ROLES.join(', ')})`);
  const meta: Record<string, unknown> = { role };
  if (role === 'tangent' || role === 'arg') meta.roleIndex = reader.safeInteger('an index');
  else meta.roleName = reader.string('a name in quotes');
  if (role === 'state') meta.stateName = reader.string('the name of the state');
  const typed = readTags(reader, type, meta);
  return {
    name,
    kind: 'placeholder',
    target: name,
    args: [],
    kwargs: NO_KWARGS,
    type: typed,
    meta: meta,
  };
}

function readNode(reader: GraphReader, places: Places): Node {
  reader.blanks();
  const at = reader.pos;
  const name = readValueName(reader);
  reader.expect('=');
  const target = reader.name('an operator');
  reader.expect('(');
  const args: Arg[] = [];
  let kwargs: Record<string, Arg> | undefined;
  while (!reader.peek(')')) {
    const start = reader.pos;
    const key = keywordAt(reader);
    if (key !== undefined) {
      kwargs ??= {};
      if (Object.hasOwn(kwargs, key)) reader.fail(`argument '${key}' is given twice`, start);
      setOwn(kwargs, key, readArg(reader, 0));
    } else {
      if (kwargs !== undefined) reader.fail('a positional argument follows a keyword', start);
      args.push(readArg(reader, 0));
    }
    if (!reader.accept(',') && !reader.peek(')')) reader.expected(`',' or ')'`);
  }
  reader.expect(')');
  reader.expect(':');
  reader.blanks();
  places.define(name, at, reader.pos);
  const type = readType(reader, 0);
  const meta: Record<string, unknown> = {};
  const typed = readTags(reader, type, meta);
  if (target === 'get_attr') {
    const attribute = args[0];
    if (typeof attribute !== 'string' || args.length !== 1)
      reader.fail('get_attr takes the name of one attribute in quotes');
    return {
      name,
      kind: 'get_attr',
      target: attribute,
      args: [],
      kwargs: NO_KWARGS,
      type: typed,
      meta: meta,
    };
  }
  return { name, kind: 'call', target, args, kwargs: kwargs ?? NO_KWARGS, type: typed, meta: meta };
}

/** `name=` before a value; undefined, and nothing read, where a value starts. */
function keywordAt(reader: GraphReader): string | undefined {
  reader.blanks();
  const start = reader.pos;
  const c = reader.text.charCodeAt(start);
  if (c !== CHAR.QUOTE && (!isNameCode(c) || isDigit(c))) return undefined;
  const name = reader.name('an argument');
  if (reader.accept('=')) return name;
  reader.pos = start;
  return undefined;
}

function readOutput(reader: GraphReader): Output {
  const value = reader.word('none') ? null : readValueUse(reader);
  if (reader.word('output'))
    return { value, role: 'output', index: reader.safeInteger('an index') };
  for (const role of ['grad', 'mutation', 'newstate'] as const) {
    if (!reader.word(role)) continue;
    const of = reader.string('the role name of a placeholder');
    if (role !== 'newstate') return { value, role, of };
    return { value, role, of, stateName: reader.string('the name of the state') };
  }
  return reader.expected(`'output', 'grad', 'mutation' or 'newstate'`);
}

/** Reads `; tag ...` into `meta`; returns the type with stride and placement tags worked in. */
function readTags(reader: GraphReader, type: ValueType, meta: Record<string, unknown>): ValueType {
  let typed = type;
  if (!reader.accept(';')) return typed;
  for (;;) {
    reader.blanks();
    const start = reader.pos;
    if (start >= reader.text.length || reader.text[start] === '\n') return typed;
    const tag = reader.name('a tag');
    const form = TAGS.get(tag);
    if (form === undefined)
      return reader.fail(`'${tag}' is not a tag`, start, suggestion(tag, [...TAGS.keys()], 'tags'));
    if (form === 'phase') meta.phase = tag;
    else if (form === 'flag') meta[tag] = true;
    else {
      reader.expect('=');
      if (form === 'type') {
        const change = tag === 'stride' ? withStride : withGiven;
        typed = change(reader, typed, readArg(reader, 0), start);
      } else meta[form.field] = form.read(reader);
    }
  }
}

/** How a tag is written: alone, or with a value for a field of the meta data or for the type. */
type TagForm =
  | 'phase'
  | 'flag'
  | 'type'
  | { readonly field: string; readonly read: (reader: GraphReader) => unknown };

const asText = (reader: GraphReader): string => reader.string('a string');

const TAGS: ReadonlyMap<string, TagForm> = new Map<string, TagForm>([
  ['forward', 'phase'],
  ['backward', 'phase'],
  ['optimizer', 'phase'],
  ['savedOnly', 'flag'],
  ['inferred', 'flag'],
  ['save', { field: 'save', read: readWish }],
  ['path', { field: 'path', read: asText }],
  ['of', { field: 'of', read: asText }],
  ['repeats', { field: 'repeats', read: asText }],
  ['original', { field: 'original', read: asText }],
  ['source', { field: 'source', read: asText }],
  ['name', { field: 'roleName', read: asText }],
  ['index', { field: 'roleIndex', read: (reader) => reader.safeInteger('an index') }],
  ['stride', 'type'],
  ['placement', 'type'],
]);

function readWish(reader: GraphReader): string {
  const wish = (['save', 'recompute'] as const).find((word) => reader.word(word));
  return wish ?? reader.expected(`'save' or 'recompute'`);
}

function withStride(reader: GraphReader, type: ValueType, value: Arg, at: number): ValueType {
  if (value === null) return type;
  if (!isList(value)) return reader.fail('a stride is a list of integers', at);
  if (type.kind === 'tuple')
    return { kind: 'tuple', items: mapItems(reader, type.items, value, at, withStride) };
  if (type.kind !== 'tensor') return reader.fail('only a tensor has a stride', at);
  if (value.length !== type.shape.length)
    reader.fail(
      `a stride of ${value.length} numbers for a tensor of ${type.shape.length} dims`,
      at,
    );
  const stride = value.map((dim): Dim => {
    if (typeof dim === 'number') return dim;
    if (dim !== null && typeof dim === 'object' && !isList(dim) && dim.kind === 'size')
      return dim.size;
    return reader.fail('a stride is a list of integers', at);
  });
  return tensorType(type.dtype, type.shape, stride, type.given);
}

function withGiven(reader: GraphReader, type: ValueType, value: Arg, at: number): ValueType {
  if (value === null) return type;
  if (type.kind === 'tuple' && isList(value))
    return { kind: 'tuple', items: mapItems(reader, type.items, value, at, withGiven) };
  if (type.kind !== 'tensor' || typeof value !== 'string')
    return reader.fail('a placement is a string, of a tensor', at);
  return tensorType(type.dtype, type.shape, type.stride, value);
}

function mapItems(
  reader: GraphReader,
  items: readonly ValueType[],
  values: readonly Arg[],
  at: number,
  change: (reader: GraphReader, type: ValueType, value: Arg, at: number) => ValueType,
): ValueType[] {
  if (items.length !== values.length)
    reader.fail(`a list of ${values.length} for a tuple of ${items.length}`, at);
  return items.map((item, i) => change(reader, item, values[i], at));
}
