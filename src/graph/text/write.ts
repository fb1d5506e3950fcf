/** Prints a graph as canonical `swgraph 1` text. */

import { checkKinds } from '../../arguments.ts';
import { checkOptions } from '../../errors.ts';
import type {
  Arg,
  Dim,
  GivenSharding,
  Graph,
  Node,
  NodeMeta,
  Output,
  Sym,
  TensorType,
  ValueType,
} from '../types.ts';
import { getOwn, isContiguousStride, isList, symText, typeText } from '../value.ts';
import { type ExampleSizes, exampleSizes, impliedText } from './sizes.ts';

interface PrintOptions {
  /**
   * False leaves out `source=` tags and notes, which say nothing of the program; the graph hash
   * does so.
   */
  readonly source?: boolean;
}

interface Print extends Required<PrintOptions> {
  readonly size: SizeText;
}

/** A symbolic size as text. */
type SizeText = (sym: Sym) => string;

/**
 * The canonical `swgraph 1` text of a graph. `parseGraph(printGraph(g))` equals `g` in every field
 * but `meta.line`. A row-major stride is not printed, as it is not kept in a type either (see
 * `tensorType`).
 */
export function printGraph(graph: Graph, options: PrintOptions = {}): string {
  checkKinds('printGraph', { graph: [graph, 'graph'] });
  checkOptions('printGraph', options, { source: true });
  const lines: string[] = ['swgraph 1'];
  const sizes = exampleSizes(graph);
  printDims(graph, '', lines, sizes);
  printBody(
    graph,
    '',
    { source: options.source ?? true, size: (sym) => impliedText(sym, sizes) },
    lines,
    true,
  );
  lines.push('');
  return lines.join('\n');
}

/** `sizes`: examples of the dims, which only the outermost graph states. */
function printDims(graph: Graph, indent: string, lines: string[], sizes?: ExampleSizes): void {
  for (const name of Object.keys(graph.dims ?? {})) {
    const { min, max, multiple } = getOwn(graph.dims ?? {}, name)!;
    const tail = multiple === undefined ? '' : ` multiple ${multiple}`;
    const example = sizes?.stated.get(name) ?? '';
    lines.push(
      `${indent}dim ${nameText(name)} in [${min}, ` +
        `${max === Infinity ? 'inf' : max}]${tail}${example}`,
    );
  }
}

function printBody(
  graph: Graph,
  indent: string,
  options: Print,
  lines: string[],
  top: boolean,
): void {
  const inner = `${indent}  `;
  lines.push(`${indent}graph @${nameText(graph.name)} {`);
  if (!top) printDims(graph, inner, lines);
  if (options.source)
    for (const note of graph.notes ?? []) lines.push(`${inner}note ${JSON.stringify(note)}`);
  for (const group of graph.ties ?? [])
    lines.push(`${inner}tie ${group.map((name) => JSON.stringify(name)).join(' ')}`);
  if (graph.mesh !== undefined) lines.push(`${inner}mesh ${JSON.stringify(graph.mesh)}`);
  for (const given of graph.given ?? []) lines.push(inner + givenText(given));
  for (const node of graph.nodes) lines.push(inner + nodeText(node, options, options.size));
  for (const output of graph.outputs) lines.push(inner + outputText(output));
  for (const name of Object.keys(graph.subgraphs)) {
    const body = getOwn(graph.subgraphs, name)!;
    // The key is the name that calls use; the body's own name follows where it differs.
    if (body.name !== name) lines.push(`${inner}body @${nameText(name)}`);
    printBody(body, inner, options, lines, false);
  }
  lines.push(`${indent}}`);
}

/** One node as a line of graph text, without indentation. */
export function nodeText(node: Node, options: PrintOptions = {}, size: SizeText = symText): string {
  const tags = tagText(node, options.source ?? true, size);
  const type = typeText(node.type, size);
  if (node.kind === 'placeholder')
    return `in %${nameText(node.name)}: ${type} ${roleText(node.meta)}${tags}`;
  const args =
    node.kind === 'get_attr'
      ? [JSON.stringify(node.target)]
      : node.args.map((arg) => argText(arg, size));
  for (const key of Object.keys(node.kwargs))
    args.push(`${nameText(key)}=${argText(node.kwargs[key], size)}`);
  const target = node.kind === 'get_attr' ? 'get_attr' : nameText(node.target);
  return `%${nameText(node.name)} = ${target}(${args.join(', ')}): ${type}${tags}`;
}

function givenText({ value, output, sharding, strength, priority }: GivenSharding): string {
  const on = value !== undefined ? `%${nameText(value)}` : `output ${output ?? 0}`;
  return (
    `given ${on} ${JSON.stringify(sharding)} ` +
    `${strength}${priority === undefined ? '' : ` priority ${priority}`}`
  );
}

function outputText(output: Output): string {
  const value = output.value === null ? 'none' : `%${nameText(output.value)}`;
  if (output.role === 'output') return `out ${value} output ${output.index ?? 0}`;
  const state = output.role === 'newstate' ? ` ${JSON.stringify(output.stateName ?? '')}` : '';
  return `out ${value} ${output.role} ${JSON.stringify(output.of ?? '')}${state}`;
}

function roleText(meta: NodeMeta): string {
  if (meta.role === 'tangent' || meta.role === 'arg') return `${meta.role} ${meta.roleIndex ?? 0}`;
  if (meta.role === 'state')
    return `state ${JSON.stringify(meta.roleName ?? '')} ${JSON.stringify(meta.stateName ?? '')}`;
  return `${meta.role ?? 'input'} ${JSON.stringify(meta.roleName ?? '')}`;
}

function tagText(node: Node, source: boolean, size: SizeText): string {
  const { meta } = node;
  let text = '';
  if (meta.phase !== undefined) text += ` ${meta.phase}`;
  if (meta.savedOnly === true) text += ' savedOnly';
  if (meta.inferred === true) text += ' inferred';
  if (meta.save !== undefined) text += ` save=${meta.save}`;
  // A tangent may carry the name of its output, and an arg its name.
  if (
    meta.roleName !== undefined &&
    (meta.role === 'tangent' || meta.role === 'arg' || meta.role === undefined)
  )
    text += ` name=${JSON.stringify(meta.roleName)}`;
  if (meta.roleIndex !== undefined && meta.role !== 'tangent' && meta.role !== 'arg')
    text += ` index=${meta.roleIndex}`;
  if (meta.path !== undefined) text += ` path=${JSON.stringify(meta.path)}`;
  if (meta.of !== undefined) text += ` of=${JSON.stringify(meta.of)}`;
  if (meta.repeats !== undefined) text += ` repeats=${JSON.stringify(meta.repeats)}`;
  if (meta.original !== undefined) text += ` original=${JSON.stringify(meta.original)}`;
  const stride = nested(node.type, (type) => strideText(type, size));
  if (stride !== null) text += ` stride=${stride}`;
  const given = nested(node.type, (type) =>
    type.given === undefined ? null : JSON.stringify(type.given),
  );
  if (given !== null) text += ` placement=${given}`;
  if (source && meta.source !== undefined) text += ` source=${JSON.stringify(meta.source)}`;
  return text === '' ? '' : ` ;${text}`;
}

/**
 * A property of tensor types as text, nested like the tuple that holds them; null where no tensor
 * has it.
 */
function nested(type: ValueType, text: (tensor: TensorType) => string | null): string | null {
  if (type.kind === 'tensor') return text(type);
  if (type.kind !== 'tuple') return null;
  const items = type.items.map((item) => nested(item, text));
  if (items.every((item) => item === null)) return null;
  return `[${items.map((item) => item ?? 'none').join(', ')}]`;
}

function strideText(type: TensorType, size: SizeText): string | null {
  if (type.stride === undefined || isContiguousStride(type.shape, type.stride)) return null;
  const steps = type.stride.map((dim: Dim) =>
    typeof dim === 'number' ? String(dim) : `$(${size(dim)})`,
  );
  return `[${steps.join(', ')}]`;
}

/** An argument as graph text. */
function argText(arg: Arg, size: SizeText = symText): string {
  switch (typeof arg) {
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(arg);
    case 'string':
      return JSON.stringify(arg);
    default:
      break;
  }
  if (arg === null) return 'none';
  if (isList(arg)) return `[${arg.map((member) => argText(member, size)).join(', ')}]`;
  switch (arg.kind) {
    case 'value':
      return `%${nameText(arg.name)}`;
    case 'graph':
      return `@${nameText(arg.name)}`;
    case 'float':
      return floatText(arg.value);
    case 'dtype':
      return `dtype:${arg.dtype}`;
    case 'device':
    case 'layout':
      return `${arg.kind}:${wordText(arg.word)}`;
    case 'size':
      return `$(${size(arg.size)})`;
    case 'slice': {
      const parts = [arg.start, arg.stop, arg.step].map((part) => argText(part, size));
      return `slice(${parts.join(', ')})`;
    }
  }
}

/**
 * Shortest decimal that reads back to the same double, with `.` or `e` so that it is not an
 * integer.
 */
function floatText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (value === Infinity) return 'inf';
  if (value === -Infinity) return '-inf';
  if (Object.is(value, -0)) return '-0.0';
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_.]*$/;
const WORD = /^[A-Za-z0-9_.:-]+$/;

/** A plain name, or a JSON string where the name has other characters. */
function nameText(name: string): string {
  return NAME.test(name) ? name : JSON.stringify(name);
}

function wordText(word: string): string {
  return WORD.test(word) ? word : JSON.stringify(word);
}
