/**
 * Takes a joint program and gives its routed blocks the sizes that they have on one device, which
 * sorts its own share of the tokens.
 */

import { internalError } from '../../errors.ts';
import type { Arg, Dim, Graph, Node, ValueType } from '../../graph/types.ts';
import { eachOperand, elementCount, isList, sameShape, tensorType } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import type { Block } from './routed-blocks.ts';

/** The routed blocks of a program. */
interface RoutedSizes {
  readonly found: readonly Block[];
  /** Their calls of both passes, by node. */
  readonly isRouted: readonly boolean[];
  readonly experts: number;
  /** Copies of each token: one for each of its experts. */
  readonly active: number;
}

/**
 * The program with what routed blocks read, make and give back at the tokens of one device, and so
 * shared experts beside them. Sizes of other calls stay: whoever prices the blocks does not read
 * them.
 *
 * @param ways devices that cut the tokens between them
 */
export function atDeviceTokens(graph: Graph, routed: RoutedSizes, ways: number): Graph {
  const sizes = new TokenSizes(graph, routed, ways);
  return { ...graph, nodes: graph.nodes.map((node, i) => sizes.ofDevice(node, i)) };
}

/** Replaces numbers of tokens, and of their copies, by those of a device. */
class TokenSizes {
  private readonly stream: readonly Dim[];
  /** Tokens and copies of all devices, with those of one. */
  private readonly sizes: ReadonlyMap<number, number>;
  private readonly made = new Map<string, ValueType>();

  constructor(
    graph: Graph,
    private readonly routed: RoutedSizes,
    private readonly ways: number,
  ) {
    const { entry } = itemAt(routed.found, 0);
    const type = graph.nodes.find(({ name }) => name === entry)?.type;
    if (type?.kind !== 'tensor') throw internalError(`'${entry}' is not a tensor`);
    this.stream = type.shape;
    const tokens = (elementCount(type) ?? 0) / Number(type.shape.at(-1));
    this.sizes = new Map(
      [tokens, tokens * routed.active].map((count) => [count, count / ways] as const),
    );
  }

  ofDevice(node: Node, i: number): Node {
    const { path = '' } = node.meta;
    const isInScope =
      itemAt(this.routed.isRouted, i) ||
      this.routed.found.some(({ scope }) => path.startsWith(`${scope}.`));
    const type = this.typeOf(node, node.type, isInScope);
    this.made.set(node.name, type);
    if (!isInScope) return type === node.type ? node : { ...node, type };
    return { ...node, type, args: node.args.map((arg) => this.literal(arg)) };
  }

  private typeOf(node: Node, type: ValueType, isInScope: boolean): ValueType {
    if (type.kind === 'tuple')
      return { ...type, items: type.items.map((item) => this.typeOf(node, item, isInScope)) };
    if (type.kind !== 'tensor') return type;
    const { shape, dtype } = type;
    if (sameShape(shape, this.stream)) {
      const width = itemAt(shape, shape.length - 1);
      const tokens = (elementCount(type) ?? 0) / Number(width);
      return tensorType(dtype, [1, tokens / this.ways, width]);
    }
    // Weights of experts and their gradients are stacks.
    if (!isInScope || (shape.length === 3 && shape[0] === this.routed.experts)) return type;
    const turned = this.turned(node);
    if (turned !== undefined) return tensorType(dtype, turned);
    const at = shape.findIndex((size) => this.sizes.has(Number(size)));
    if (at < 0) return type;
    const own = this.sizes.get(Number(shape[at])) ?? itemAt(shape, at);
    return tensorType(dtype, shape.toSpliced(at, 1, own));
  }

  /** The shape of a matrix that shows another one turned around; undefined for other calls. */
  private turned(node: Node): readonly Dim[] | undefined {
    if (!TURNS.has(node.target)) return undefined;
    let operand: ValueType | undefined;
    eachOperand(node, (name) => (operand = this.made.get(name)));
    return operand?.kind === 'tensor' && operand.shape.length === 2
      ? operand.shape.toReversed()
      : undefined;
  }

  /** Sizes of tensors stand in lists. */
  private literal(arg: Arg): Arg {
    if (typeof arg !== 'object' || !isList(arg)) return arg;
    return arg.map((item) =>
      typeof item === 'number' ? (this.sizes.get(item) ?? item) : this.literal(item),
    );
  }
}

const TURNS: ReadonlySet<string> = new Set([
  'aten.t.default',
  'aten.transpose.int',
  'aten.permute.default',
]);
