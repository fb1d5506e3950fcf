/**
 * Takes PyTorch's `flex_attention` and `flex_attention_backward` as the operators of
 * `ops/aten/products/flex-attention.ts`: arguments by name, the tuple of the block mask taken
 * apart, and the nested gradients of the backward call behind the others. Bodies that ask for
 * their batch or head get the numbers of both as operands, which a plan can cut. Source of the
 * arguments: `torch/_higher_order_ops/flex_attention.py`, `BlockMask.as_tuple` of PyTorch 2.13.
 */

import { NameSet } from '../../graph/names.ts';
import type { Arg, Dim, ValueType } from '../../graph/types.ts';
import { eachOperand, isList, isRef } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import type { DraftRef, FxClass, FxNode, Places } from './record.ts';
import { WITH_OPTIONS } from './text/target.ts';

const FORWARD = 'flex_attention';
const BACKWARD = 'flex_attention_backward';

/** The option in which the Python package states the share of pairs that a block mask keeps. */
const KEPT = 'SHARDWRIGHT_KEPT';

/** The class with each call of flex attention in its own form, bodies included. */
export function withFlexAttention(source: FxClass, places: Places): FxClass {
  const classes = source.classes.map((nested) => withFlexAttention(nested, places));
  if (!source.nodes.some(({ target }) => WITH_OPTIONS.has(target))) return { ...source, classes };
  return { ...source, nodes: new Rewriting(source, places).run(), classes };
}

class Rewriting {
  private readonly nodes: FxNode[] = [];
  private readonly names: NameSet;
  private readonly types: ReadonlyMap<string, ValueType | undefined>;
  /** Attributes by the names of their nodes: which body an argument is. */
  private readonly attributes: ReadonlyMap<string, string>;
  /** Numbers of batches and of heads that were written, by their size. */
  private readonly numbered = new Map<string, DraftRef>();
  /** Names of lines that read the gradients of what the score function reads, with their call. */
  private readonly gradients = new Map<string, FxNode>();

  constructor(
    private readonly source: FxClass,
    private readonly places: Places,
  ) {
    const all = [...source.inputs, ...source.nodes];
    this.names = new NameSet(all.map(({ name }) => name));
    this.types = new Map(all.map(({ name, type }) => [name, type]));
    this.attributes = new Map(
      source.nodes.flatMap(({ kind, name, target }) =>
        kind === 'get_attr' ? [[name, target] as const] : [],
      ),
    );
  }

  run(): readonly FxNode[] {
    for (const node of this.source.nodes) {
      if (node.target === FORWARD) this.forward(node);
      else if (node.target === BACKWARD) this.backward(node);
      else this.read(node);
    }
    return this.nodes;
  }

  private forward(node: FxNode): void {
    const [score = null, mask = [], scale, options = [], ...rest] = node.args.slice(3);
    const kwargs = this.shared(node, { score_mod: score }, { mask, scale, options, rest });
    this.nodes.push({ ...node, args: node.args.slice(0, 3), kwargs });
  }

  private backward(node: FxNode): void {
    const tensors = node.args.slice(0, 7);
    const [score = null, joint = null, mask = [], scale, options = [], ...rest] =
      node.args.slice(7);
    const bodies = { score_mod: score, joint_mod: joint };
    const kwargs = this.shared(node, bodies, { mask, scale, options, rest });
    const wanted = listOf(kwargs.score_buffers).map((_, i) => this.isRead(node, i));
    this.nodes.push({ ...node, args: tensors, kwargs: { ...kwargs, wanted } });
    for (const reader of this.source.nodes)
      if (indexOf(reader, node.name) === 3) this.gradients.set(reader.name, node);
  }

  /** A line that reads one of the nested gradients reads it of the call; others stay. */
  private read(node: FxNode): void {
    if (this.gradients.has(node.name)) return;
    const [tuple] = node.args;
    const call =
      tuple !== undefined && tuple !== null && isRef(tuple)
        ? this.gradients.get(tuple.name)
        : undefined;
    const index = tuple === undefined || call === undefined ? undefined : node.args[1];
    this.nodes.push(
      call !== undefined && typeof index === 'number'
        ? { ...node, args: [call.ref, 3 + index] }
        : node,
    );
  }

  private isRead({ name }: FxNode, index: number): boolean {
    const tuples = this.source.nodes.filter((reader) => indexOf(reader, name) === 3);
    return tuples.some((tuple) =>
      this.source.nodes.some((reader) => indexOf(reader, tuple.name) === index),
    );
  }

  /** Arguments that both calls have behind their tensors. */
  private shared(
    node: FxNode,
    bodies: Readonly<Record<string, Arg>>,
    given: {
      readonly mask: Arg;
      readonly scale: Arg | undefined;
      readonly options: Arg;
      readonly rest: readonly Arg[];
    },
  ): Record<string, Arg> {
    const members = listOf(given.mask);
    const maskMod = members.at(-1) ?? null;
    const [first, second, ...tensors] = members.slice(0, -1);
    const sizes = [first, second, ...tensors.splice(-2)];
    if (sizes.length !== 4 || !sizes.every((size) => typeof size === 'number'))
      throw this.places.error(
        'E_UNSUPPORTED',
        `the block mask of ${node.name} is not one of PyTorch 2.8 to 2.13 with plain sizes`,
        node.offset,
        'capture the model with the Python package, or with fixed sizes',
        node.name,
      );
    // A mask that was made before the program runs is made again from its function.
    const isMade = tensors.some((tensor) => isTensor(tensor));
    const options = listOf(given.options);
    const kept = options.find((pair) => isList(pair) && pair[0] === KEPT);
    const [read, asked] = given.rest;
    return {
      ...bodies,
      mask_mod: maskMod,
      scale: given.scale ?? null,
      ...this.placesOf(node, bodies, maskMod),
      score_buffers: this.tensors(node, read),
      mask_buffers: this.tensors(node, asked),
      blocks: isMade ? tensors.map((tensor) => (isTensor(tensor) ? tensor : null)) : [],
      sizes,
      options: options.filter((pair) => pair !== kept),
      ...(kept !== undefined && isList(kept) ? { kept: itemAt(kept, 1) } : {}),
    };
  }

  /** Tensors that a function of the user reads. */
  private tensors(node: FxNode, given: Arg | undefined): readonly Arg[] {
    const list = listOf(given ?? []);
    if (list.every(isTensor)) return list;
    throw this.places.error(
      'E_UNSUPPORTED',
      `a function of ${node.name} reads a number that is no tensor`,
      node.offset,
      'capture the model with fixed sizes',
      node.name,
    );
  }

  /** The numbers of batches and heads, where a body asks for its own. */
  private placesOf(
    node: FxNode,
    bodies: Readonly<Record<string, Arg>>,
    maskMod: Arg,
  ): Record<string, Arg> {
    const asks = (dim: 0 | 1): boolean =>
      this.asks(maskMod, dim) || Object.values(bodies).some((body) => this.asks(body, 1 + dim));
    const made: Record<string, Arg> = {};
    if (asks(0)) made.rows = this.numbers(node, 0);
    if (asks(1)) made.heads = this.numbers(node, 1);
    return made;
  }

  /** Tells whether a body reads its input at a position. */
  private asks(body: Arg, position: number): boolean {
    if (body === null || !isRef(body)) return false;
    const name = this.attributes.get(body.name);
    const nested = this.source.classes.find((one) => one.name === name);
    const input = nested?.inputs[position];
    if (nested === undefined || input === undefined) return false;
    let reads = nested.returns.some(({ value }) => value === input.name);
    for (const inner of nested.nodes)
      eachOperand(inner, (operand) => (reads ||= operand === input.name));
    return reads;
  }

  /** `0, 1, 2 ...` along a dim of the query. */
  private numbers(node: FxNode, dim: 0 | 1): DraftRef {
    const [query] = node.args;
    const type = query !== undefined && query !== null && isRef(query) ? query.name : undefined;
    const known = type === undefined ? undefined : this.types.get(type);
    if (known?.kind !== 'tensor' || known.shape.length !== 4)
      throw this.places.error(
        'E_TYPE',
        `the query of ${node.name} has no type of 4 dims in the text`,
        node.offset,
        'print the graph with types (print_readable does)',
        node.name,
      );
    const size = itemAt(known.shape, dim);
    const key = `${dim} ${typeof size === 'number' ? size : size.sym}`;
    const hit = this.numbered.get(key);
    if (hit !== undefined) return hit;
    const name = this.names.take(`${node.name}_${dim === 0 ? 'rows' : 'heads'}`);
    const ref: DraftRef = { kind: 'value', name };
    this.nodes.push({
      ...node,
      name,
      ref,
      target: 'aten.arange.default',
      args: [sizeArg(size)],
      kwargs: {},
      type: { kind: 'tensor', dtype: 'i64', shape: [size] },
    });
    this.numbered.set(key, ref);
    return ref;
  }
}

function sizeArg(size: Dim): Arg {
  return typeof size === 'number' ? size : { kind: 'size', size };
}

function listOf(arg: Arg | undefined): readonly Arg[] {
  return arg !== undefined && isList(arg) ? arg : [];
}

function isTensor(arg: Arg | undefined): boolean {
  return arg !== undefined && arg !== null && isRef(arg);
}

/** The index of the result that a line reads of a call; undefined where it reads none. */
function indexOf({ target, args }: FxNode, call: string): number | undefined {
  const [tuple, index] = args;
  const isOf =
    target === 'operator.getitem' && tuple !== undefined && tuple !== null && isRef(tuple);
  return isOf && tuple.name === call && typeof index === 'number' ? index : undefined;
}
