/** Builds the graphs of a torch.export program from its JSON. */

import { FreeNames } from '../../graph/names.ts';
import type { Arg, ValueType } from '../../graph/types.ts';
import { NO_KWARGS, setOwn } from '../../graph/value.ts';
import { modulePath, sourcePosition } from '../complete/origin.ts';
import type { JsonObject, JsonValue } from '../file/json.ts';
import type { DraftRef, FxClass, FxInput, FxNode, FxReturn } from '../fx/record.ts';
import { targetName } from '../fx/text/target.ts';
import { listAt, objectAt, onlyKey, type Place, stringAt } from './place.ts';
import { nameAt, readArg, type Scope, Types } from './values.ts';

const MAX_NODES = 2_000_000;
const MAX_BODY_DEPTH = 256;
const SYM_VALUES = ['sym_int_values', 'sym_bool_values', 'sym_float_values'] as const;

/** State that all graphs of one program share: places by number, for errors, and interned types. */
export class ProgramReader {
  readonly types = new Types();
  readonly places: Place[] = [];
  private nodes = 0;

  offset(place: Place): number {
    this.places.push(place);
    return this.places.length - 1;
  }

  countNode(place: Place): void {
    if (++this.nodes > MAX_NODES) throw place.error('E_LIMIT', `more than ${MAX_NODES} nodes`);
  }

  /** A graph of the program as the records that FX text gives too. @throws with the JSON path */
  graph(value: JsonValue | undefined, place: Place, name: string, depth = 0): FxClass {
    if (depth > MAX_BODY_DEPTH)
      throw place.error('E_LIMIT', `graphs nest deeper than ${MAX_BODY_DEPTH}`);
    return new BodyReader(this, objectAt(value, place), place, depth).read(name);
  }
}

/**
 * One graph. The format has neither `getitem` nor `get_attr` nodes: the names of several outputs
 * *are* those of the getitems, and bodies are inline. Both are restored here, so that counts and
 * names are those of the FX graph.
 */
class BodyReader {
  private readonly inputs: FxInput[] = [];
  private readonly nodes: FxNode[] = [];
  private readonly classes: FxClass[] = [];
  private readonly bodies = new Map<string, JsonObject>();
  private readonly defined = new Set<string>();
  private readonly scope: Scope = {
    has: (name) => this.defined.has(name),
    names: () => this.defined,
  };
  private readonly tensors: JsonObject;
  private readonly symbols: readonly [JsonObject, Place][];

  constructor(
    private readonly program: ProgramReader,
    private readonly graph: JsonObject,
    private readonly place: Place,
    private readonly depth: number,
  ) {
    this.tensors = objectAt(graph.tensor_values, place.at('tensor_values'));
    this.symbols = SYM_VALUES.flatMap((key): [JsonObject, Place][] =>
      graph[key] === undefined ? [] : [[objectAt(graph[key], place.at(key)), place.at(key)]],
    );
  }

  read(name: string): FxClass {
    const { graph, place, program } = this;
    const inputsAt = place.at('inputs');
    listAt(graph.inputs, inputsAt).forEach((input, i) => this.input(input, inputsAt.at(i), i));
    const nodesAt = place.at('nodes');
    listAt(graph.nodes, nodesAt).forEach((node, i) => this.node(node, nodesAt.at(i)));
    const outputsAt = place.at('outputs');
    const returns = listAt(graph.outputs, outputsAt).map((output, i) =>
      this.output(output, outputsAt.at(i)),
    );
    const { inputs, nodes, classes } = this;
    return { name, offset: program.offset(place), inputs, nodes, returns, classes, joint: false };
  }

  /**
   * A graph input; a constant that was passed as an argument gets a placeholder without a value.
   */
  private input(value: JsonValue, place: Place, position: number): void {
    const entry = objectAt(value, place);
    const offset = this.program.offset(place);
    const named = this.namedValue(entry, place);
    const name = named ?? this.fresh(`constant_${position}`);
    const type: ValueType = named === undefined ? { kind: 'none' } : this.typeOf(named, place);
    this.define(name, place);
    this.inputs.push({ name, type, offset });
  }

  /** Name of `{as_tensor: {name}}` or `{as_sym_int: {as_name}}`; undefined for a literal. */
  private namedValue(entry: JsonObject, place: Place): string | undefined {
    const [key, ...others] = Object.keys(entry);
    if (key === undefined || others.length > 0)
      throw place.error(
        'E_SYNTAX',
        `expected exactly one key, found ${Object.keys(entry).slice(0, 4).join(', ') || 'none'}`,
      );
    const here = place.at(key);
    if (key === 'as_tensor') return nameAt(objectAt(entry[key], here).name, here.at('name'));
    if (/^as_sym_(int|bool|float)$/.test(key)) {
      const inner = objectAt(entry[key], here);
      return inner.as_name === undefined ? undefined : nameAt(inner.as_name, here.at('as_name'));
    }
    if (/^as_(none|int|float|bool|string)$/.test(key)) return undefined;
    throw place.error('E_UNSUPPORTED', `'${key.slice(0, 60)}' as an input or result of a graph`);
  }

  private typeOf(name: string, place: Place): ValueType {
    if (Object.hasOwn(this.tensors, name))
      return this.program.types.tensor(this.tensors[name], this.place.at('tensor_values').at(name));
    for (const [table, at] of this.symbols)
      if (Object.hasOwn(table, name)) return this.program.types.symbol(table[name], at.at(name));
    throw place.error(
      'E_REF',
      `'${name.slice(0, 80)}' has no entry in tensor_values`,
      undefined,
      name,
    );
  }

  private define(name: string, place: Place): void {
    if (this.defined.has(name))
      throw place.error(
        'E_DUP',
        `'${name.slice(0, 80)}' is defined twice`,
        'every value needs its own name',
        name,
      );
    this.defined.add(name);
  }

  private fresh(wanted: string): string {
    return new FreeNames({
      has: (name) => this.defined.has(name) || Object.hasOwn(this.tensors, name),
    }).near(wanted);
  }

  private node(value: JsonValue, place: Place): void {
    const { program } = this;
    program.countNode(place);
    const node = objectAt(value, place);
    const target = targetName(stringAt(node.target, place.at('target')));
    const { path, source } = this.origin(node, place);
    const offset = program.offset(place);
    const attributes: FxNode[] = [];
    const { args, kwargs } = this.call(node, place, (body, at) => {
      const made = this.body(body, at, { offset, path, source });
      if (made.attribute !== undefined) attributes.push(made.attribute);
      return made.ref;
    });
    this.nodes.push(...attributes);
    const outputsAt = place.at('outputs');
    const outputs = listAt(node.outputs, outputsAt);
    const shape = this.results(outputs, outputsAt);
    const stated =
      node.name === undefined || node.name === null
        ? undefined
        : stringAt(node.name, place.at('name'));
    const single =
      shape.names.length === 1 &&
      !shape.list &&
      !this.isTupleOfOne(node, target, shape.names[0], stated);
    const base = stated !== undefined && stated !== '' ? stated : (target.split('.')[1] ?? target);
    const name = single ? (shape.names[0] ?? this.fresh(base)) : this.fresh(base);
    this.define(name, place);
    const type: ValueType | undefined =
      shape.names.length === 0
        ? { kind: 'none' }
        : single
          ? this.typeOf(name, outputsAt.at(0))
          : undefined;
    const common = { offset, source, path } as const;
    this.nodes.push({
      name,
      kind: 'call',
      target,
      args,
      kwargs,
      type,
      ...common,
      ref: { kind: 'value', name },
    });
    if (single) return;
    shape.names.forEach((item, i) => {
      // torch names results that nobody reads after the call; FX has no getitem for them.
      if (item === undefined || item === `${stated ?? name}_unused_${i}`) return;
      program.countNode(place);
      this.define(item, place);
      const from = { call: name, index: i, type: this.typeOf(item, outputsAt.at(i)) };
      this.nodes.push({ ...common, ...itemOf(item, from) });
    });
  }

  /** Names of the results; undefined for one that is absent. */
  private results(
    outputs: readonly JsonValue[],
    place: Place,
  ): { names: (string | undefined)[]; list: boolean } {
    const names: (string | undefined)[] = [];
    let list = false;
    outputs.forEach((output, i) => {
      const at = place.at(i);
      const key = onlyKey(output, at, [
        'as_tensor',
        'as_tensors',
        'as_optional_tensors',
        'as_none',
        'as_sym_int',
        'as_sym_bool',
        'as_sym_float',
      ]);
      const entry = objectAt(output, at);
      if (key === 'as_tensors' || key === 'as_optional_tensors') {
        if (outputs.length > 1)
          throw at.error('E_UNSUPPORTED', 'a list of tensors among several results');
        list = true;
        listAt(entry[key], at.at(key)).forEach((item, k) => {
          const here = at.at(key).at(k);
          const tensor = key === 'as_tensors' ? item : objectAt(item, here).as_tensor;
          names.push(
            tensor === undefined ? undefined : nameAt(objectAt(tensor, here).name, here.at('name')),
          );
        });
      } else names.push(key === 'as_none' ? undefined : this.namedValue(entry, at));
    });
    // A call that returns None lists one output without a value.
    if (names.length === 1 && names[0] === undefined && !list) names.pop();
    return { names, list };
  }

  /** A higher-order call returns a tuple even with one result, unless the file says otherwise. */
  private isTupleOfOne(
    node: JsonObject,
    target: string,
    result: string | undefined,
    stated: string | undefined,
  ): boolean {
    if (target.includes('.')) return false;
    const flag = node.is_hop_single_tensor_return;
    if (typeof flag === 'boolean') return !flag;
    return stated !== undefined && stated !== '' && stated !== result;
  }

  private call(
    node: JsonObject,
    place: Place,
    body: (value: JsonObject, at: Place) => Arg,
  ): { args: Arg[]; kwargs: Readonly<Record<string, Arg>> } {
    const args: Arg[] = [];
    let kwargs: Record<string, Arg> | undefined;
    const inputsAt = place.at('inputs');
    listAt(node.inputs, inputsAt).forEach((input, i) => {
      const at = inputsAt.at(i);
      const entry = objectAt(input, at);
      const arg = readArg(entry.arg, at.at('arg'), this.scope, body);
      const { kind } = entry;
      if (kind === 2) {
        const key = nameAt(entry.name, at.at('name'));
        kwargs ??= {};
        if (Object.hasOwn(kwargs, key))
          throw at.error('E_SYNTAX', `argument '${key}' is given twice`);
        setOwn(kwargs, key, arg);
      } else if (kind === 1 || kind === undefined || kind === null) {
        if (kwargs !== undefined)
          throw at.error('E_SYNTAX', 'a positional argument follows a keyword');
        args.push(arg);
      } else throw at.error('E_SYNTAX', 'the kind of an argument is 1 (positional) or 2 (keyword)');
    });
    return { args, kwargs: kwargs ?? NO_KWARGS };
  }

  /** A body becomes a nested class, and its first use an attribute read. */
  private body(
    value: JsonObject,
    place: Place,
    origin: { offset: number; path: string | undefined; source: string | undefined },
  ): { ref: Arg; attribute?: FxNode } {
    const name = nameAt(value.name, place.at('name'));
    const inner = objectAt(value.graph, place.at('graph'));
    const known = this.bodies.get(name);
    if (known !== undefined) {
      if (!sameJson(known, inner))
        throw place.at('name').error('E_DUP', `graph '${name}' is defined twice, unlike the first`);
      return { ref: { kind: 'graph', name } };
    }
    this.bodies.set(name, inner);
    this.classes.push(this.program.graph(inner, place.at('graph'), name, this.depth + 1));
    this.program.countNode(place);
    const own = this.fresh(name);
    this.define(own, place);
    const ref: DraftRef = { kind: 'graph', name };
    return {
      ref,
      attribute: {
        name: own,
        kind: 'get_attr',
        target: name,
        args: [],
        kwargs: NO_KWARGS,
        type: undefined,
        ...origin,
        ref,
      },
    };
  }

  private output(value: JsonValue, place: Place): FxReturn {
    const entry = objectAt(value, place);
    const offset = this.program.offset(place);
    const name = this.namedValue(entry, place);
    if (name === undefined) {
      if (!Object.hasOwn(entry, 'as_none'))
        throw place.error('E_UNSUPPORTED', 'a number is returned', 'return tensors and None only');
      return { value: null, offset };
    }
    if (!this.defined.has(name))
      throw place.error('E_REF', `'${name.slice(0, 80)}' is returned but not defined`);
    return { value: name, offset };
  }

  /** Module path and source position, from the metadata that torch writes as text. */
  private origin(
    node: JsonObject,
    place: Place,
  ): { path: string | undefined; source: string | undefined } {
    if (node.metadata === undefined) return { path: undefined, source: undefined };
    const metadata = objectAt(node.metadata, place.at('metadata'));
    const { nn_module_stack: stack, stack_trace: trace } = metadata;
    return {
      path: typeof stack === 'string' ? modulePath(stack) : undefined,
      source: typeof trace === 'string' ? sourcePosition(trace) : undefined,
    };
  }
}

function sameJson(a: JsonObject, b: JsonObject): boolean {
  const text = (value: JsonObject): string =>
    JSON.stringify(value, (_key, item: unknown) => (typeof item === 'bigint' ? `${item}n` : item));
  return text(a) === text(b);
}

/** The node that reads one result of a call. */
function itemOf(
  name: string,
  {
    call,
    index,
    type,
  }: { readonly call: string; readonly index: number; readonly type: FxNode['type'] },
): Pick<FxNode, 'name' | 'kind' | 'target' | 'args' | 'kwargs' | 'type' | 'ref'> {
  return {
    name,
    kind: 'call',
    target: 'operator.getitem',
    args: [{ kind: 'value', name: call }, index],
    kwargs: NO_KWARGS,
    type,
    ref: { kind: 'value', name },
  };
}
