/**
 * Parsed MLIR as a graph: functions and regions become subgraphs, calls of StableHLO operations
 * calls of the records of `src/ops/stablehlo`, control flow the calls that `graph/control.ts`
 * describes. `meta.original` is the name in the file.
 */

import { defined, nonEmpty } from '../../defined.ts';
import { suggestion } from '../../errors.ts';
import { lintGraph } from '../../graph/lint.ts';
import { FreeNames } from '../../graph/names.ts';
import type { Graph, Node, NodeMeta, TensorType } from '../../graph/types.ts';
import { tensorType } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import type { Infer } from '../fx/graph.ts';
import { Body } from './body.ts';
import type { Lowered, LoweringContext } from './body-scope.ts';
import { StatedShardings } from './sharding/given.ts';
import { withManualRegions } from './sharding/manual-regions.ts';
import { resolveLocation } from './syntax/location.ts';
import { plainName } from './syntax/names.ts';
import type { MlirReader } from './syntax/reader.ts';
import type { BlockArgument, MlirFunc, MlirModule, MlirTensor, MlirType } from './syntax/syntax.ts';
import { typeName } from './syntax/types.ts';
import { AttributeValues } from './values.ts';

const MAX_CALLS = 200;

export interface LowerOptions {
  readonly name?: string;
  readonly infer?: Infer;
  /** Drop the shardings that the text states. */
  readonly ignoreShardings?: boolean;
}

/** @throws E_REF, E_TYPE, E_UNSUPPORTED, E_LIMIT with line and column; E_GRAPH_LINT */
export function lowerModule(module: MlirModule, reader: MlirReader, options: LowerOptions): Graph {
  const shardings =
    options.ignoreShardings === true ? undefined : new StatedShardings(module, reader);
  const lowering = new Lowering(withManualRegions(module, reader), reader, options, shardings);
  const graph = lowering.run();
  lintGraph(graph);
  return graph;
}

class Lowering implements LoweringContext {
  readonly values: AttributeValues;
  private readonly done = new Map<string, Lowered>();
  private readonly active = new Set<string>();
  private readonly lines: Int32Array;
  private readonly types = new Map<string, TensorType>();
  /** The same by the type as it was read. */
  private readonly typesRead = new Map<MlirTensor, TensorType>();

  constructor(
    readonly module: MlirModule,
    readonly reader: MlirReader,
    readonly options: LowerOptions,
    readonly shardings: StatedShardings | undefined,
  ) {
    this.values = new AttributeValues(reader, module.attributeAliases);
    this.lines = lineStarts(reader.text);
  }

  run(): Graph {
    const main = this.mainFunction();
    const { graph } = this.function(main.name, main.at);
    const mesh = this.shardings?.mesh;
    const notes = this.shardings?.notes ?? [];
    const names = rootNames(main, this.module);
    const replaced = replacedBy(main, names);
    const inputs = graph.nodes.map((node) =>
      node.kind === 'placeholder' ? { ...node, meta: this.role(node, main, names) } : node,
    );
    return {
      ...graph,
      name: this.options.name ?? this.module.name ?? main.name,
      nodes: inputs,
      outputs: graph.outputs.map((output, k) => {
        const of = replaced.get(k);
        return of === undefined ? output : { value: output.value, role: 'mutation', of };
      }),
      ...defined({ mesh }),
      ...nonEmpty({ notes }),
    };
  }

  /** `@main`, else the only public function. */
  private mainFunction(): MlirFunc {
    const { functions } = this.module;
    const main = functions.get('main');
    if (main?.body !== undefined) return main;
    const open = [...functions.values()].filter(
      (f) => f.visibility === 'public' && f.body !== undefined,
    );
    const [only, ...others] = open;
    if (only !== undefined && others.length === 0) return only;
    const found = open.map((f) => `@${f.name}`).join(', ');
    throw this.reader.error(
      'E_REF',
      functions.size === 0
        ? 'the text defines no function'
        : `there is no @main, and ${open.length} public functions`,
      0,
      found === ''
        ? 'the program to import is a public function with a body'
        : `keep one of ${found} public`,
    );
  }

  /** Role of an argument: a parameter where its name or a mark says so, else an input. */
  private role(node: Node, main: MlirFunc, names: readonly RootName[]): NodeMeta {
    const at = node.meta.roleIndex ?? 0;
    const { name, argument: position } = itemAt(names, at);
    const argument = itemAt(main.args, position);
    const marked = argument.attributes.get('shardwright.role');
    const stated = marked?.kind === 'string' && marked.value === 'parameter';
    const { line } = node.meta;
    return {
      role: stated || isParameterName(name) ? 'parameter' : 'input',
      roleName: name,
      ...(stated ? {} : { inferred: true }),
      ...defined({ line }),
    };
  }

  /** A function's graph; made once, shared by its calls. */
  function(name: string, at: number): Lowered {
    const known = this.done.get(name);
    if (known !== undefined) return known;
    const func = this.module.functions.get(name);
    if (func?.body === undefined)
      throw this.reader.error(
        'E_REF',
        func === undefined
          ? `function '@${name}' is not defined`
          : `function '@${name}' is declared, but has no body`,
        at,
        suggestion(name, [...this.module.functions.keys()], 'functions'),
      );
    if (this.active.has(name))
      throw this.reader.error(
        'E_UNSUPPORTED',
        `function '@${name}' calls itself`,
        at,
        'a plan needs a program without recursion',
      );
    if (this.active.size >= MAX_CALLS)
      throw this.reader.error(
        'E_LIMIT',
        `calls nest deeper than ${MAX_CALLS}`,
        at,
        'inline some of the functions',
      );
    this.active.add(name);
    const made = new Body(this, name, undefined).make(func.args, func.body, func);
    this.active.delete(name);
    this.done.set(name, made);
    return made;
  }

  line(at: number): number {
    let low = 0;
    let high = this.lines.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (itemAt(this.lines, middle) <= at) low = middle;
      else high = middle - 1;
    }
    return low + 1;
  }

  /** Tensors of a type, tuples flattened. */
  tensors(type: MlirType, at: number): MlirTensor[] {
    if (type.kind === 'tensor') return [type];
    if (type.kind === 'tuple') return type.items.flatMap((item) => this.tensors(item, at));
    throw this.reader.error(
      'E_UNSUPPORTED',
      `a value of type ${typeName(type)}`,
      at,
      'graphs hold tensors and tuples of tensors',
    );
  }

  /** One object a type, so that equal types are equal by identity. */
  typeOf(type: MlirTensor): TensorType {
    const found = this.typesRead.get(type);
    if (found !== undefined) return found;
    const key = `${type.dtype}[${type.shape.join()}]`;
    let made = this.types.get(key);
    if (made === undefined) this.types.set(key, (made = tensorType(type.dtype, type.shape)));
    this.typesRead.set(type, made);
    return made;
  }
}

/**
 * Names of the tensors of the arguments: their location; else the path of the result that replaces
 * them, which JAX states without locations, too; else `arg0`. Unique.
 */
interface RootName {
  readonly name: string;
  /** Position of the argument. */
  readonly argument: number;
}

function rootNames(main: MlirFunc, module: MlirModule): RootName[] {
  const taken = new Set<string>();
  const free = new FreeNames(taken);
  return main.args.flatMap((arg, argument) => {
    const stated =
      resolveLocation(arg.location, module.locationAliases).name ?? resultPath(main, arg);
    const count = arg.type.kind === 'tuple' ? countTensors(arg.type) : 1;
    return Array.from({ length: count }, (_, i) => {
      const name = free.near(`${stated ?? plainName(arg.id)}${count > 1 ? `.${i}` : ''}`);
      taken.add(name);
      return { name, argument };
    });
  });
}

/** The path that JAX states of the result that is written over an argument. */
function resultPath({ results }: MlirFunc, { attributes }: BlockArgument): string | undefined {
  const alias = attributes.get('tf.aliasing_output');
  const path =
    alias?.kind === 'int'
      ? results[Number(alias.value)]?.attributes.get('jax.result_info')
      : undefined;
  return path?.kind === 'string' && path.value !== '' ? path.value : undefined;
}

/**
 * The role names of donated arguments, by the output that is written over each
 * (`tf.aliasing_output`).
 */
function replacedBy(main: MlirFunc, names: readonly RootName[]): ReadonlyMap<number, string> {
  const replaced = new Map<number, string>();
  for (const { name, argument } of names) {
    const alias = itemAt(main.args, argument).attributes.get('tf.aliasing_output');
    if (alias?.kind === 'int' && !replaced.has(Number(alias.value)))
      replaced.set(Number(alias.value), name);
  }
  return replaced;
}

function countTensors(type: MlirType): number {
  return type.kind === 'tuple' ? type.items.reduce((n, item) => n + countTensors(item), 0) : 1;
}

/**
 * Names that JAX programs give to the tree of weights: `params['w']`, `p['emb']`,
 * `state.params...`.
 */
function isParameterName(name: string): boolean {
  return /^(params?|weights?|variables|p|theta|(train_)?state\.params)([[.]|$)/.test(name);
}

function lineStarts(text: string): Int32Array {
  const starts = [0];
  for (let i = text.indexOf('\n'); i >= 0; i = text.indexOf('\n', i + 1)) starts.push(i + 1);
  return Int32Array.from(starts);
}
