/**
 * Rewrites `as_strided` and `as_strided_scatter` into views of values, where the strides allow it.
 */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { FreeNames } from '../../graph/names.ts';
import { linePosition, typesByName } from '../../graph/nodes.ts';
import type { Arg, Graph, Node, TensorType, ValueRef } from '../../graph/types.ts';
import {
  contiguousStride,
  getOwn,
  isList,
  isRef,
  NO_KWARGS,
  ref,
  setOwn,
  tensorType,
} from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import { elements } from '../../ops/record/record.ts';
import { product } from '../../product.ts';

/**
 * `as_strided` and `as_strided_scatter` speak of memory; a graph here speaks of values. Where the
 * strides are those of a view (an order of dims, other sizes, rows of a dim), the call is written
 * as that view: permute, view, slice, expand, and the scatter as slices that are overwritten. The
 * result keeps its name; the steps come before it.
 *
 * @throws E_UNSUPPORTED where elements overlap or skip in a way that no view has
 */
export function withoutStrides(graph: Graph): Graph {
  const bodies: Record<string, Graph> = {};
  let changed = false;
  for (const name of Object.keys(graph.subgraphs)) {
    const body = getOwn(graph.subgraphs, name)!;
    const made = withoutStrides(body);
    changed ||= made !== body;
    setOwn(bodies, name, made);
  }
  if (!graph.nodes.some((node) => TARGETS.has(node.target)))
    return changed ? { ...graph, subgraphs: bodies } : graph;
  return { ...graph, nodes: new Rewriter(graph).run(), subgraphs: bodies };
}

const TARGETS = new Set([
  'aten.as_strided.default',
  'aten.as_strided_.default',
  'aten.as_strided_copy.default',
  'aten.as_strided_scatter.default',
]);

/** Sizes, strides and first element of a value in some memory. */
interface Layout {
  readonly shape: readonly number[];
  readonly stride: readonly number[];
  readonly offset: number;
}

/**
 * The memory as an array of values: its sizes, slowest first, and what the wanted elements are in
 * it.
 */
interface Box {
  readonly sizes: readonly number[];
  /** By dim of `sizes`: first row and number of rows. */
  readonly rows: readonly (readonly [start: number, count: number])[];
  /** By dim of the wanted value: the dim of `sizes` that it is, or how it repeats. */
  readonly dims: readonly (number | 'one' | 'repeated')[];
}

class Rewriter {
  private readonly nodes: Node[] = [];
  private readonly types = new Map<string, TensorType>();
  private readonly names: FreeNames;

  constructor(private readonly graph: Graph) {
    this.names = new FreeNames(typesByName(graph));
    for (const { name, type } of graph.nodes)
      if (type.kind === 'tensor') this.types.set(name, type);
  }

  run(): Node[] {
    for (const node of this.graph.nodes) {
      if (!TARGETS.has(node.target)) this.nodes.push(node);
      else if (node.target.includes('scatter')) this.scatter(node);
      else this.view(node);
    }
    return this.nodes;
  }

  private view(node: Node): void {
    const { memory, box, wanted } = this.read(node, 1);
    let value = this.reshaped(node, memory, box.sizes);
    box.rows.forEach(([start, count], d) => {
      if (count < itemAt(box.sizes, d))
        value = this.call(
          node,
          'slice.Tensor',
          [value, d, start, start + count],
          this.sizes(value).with(d, count),
        );
    });
    // Dims in the order that is asked for, those of one row left out, then put in again.
    const order = box.dims.flatMap((dim) => (typeof dim === 'number' ? [dim] : []));
    const left = box.sizes.map((_, d) => d).filter((d) => !order.includes(d));
    value = this.permuted(node, value, [...left, ...order]);
    const ones = wanted.shape.map((n, d) => (typeof box.dims[d] === 'number' ? n : 1));
    value = this.reshaped(node, value, ones);
    if (box.dims.includes('repeated'))
      value = this.call(node, 'expand.default', [value, [...wanted.shape]], wanted.shape);
    this.named(node, value);
  }

  /**
   * The memory with the elements of `src` written over those of the view; seen as the first
   * argument again.
   */
  private scatter(node: Node): void {
    const { self, memory, box, wanted, order } = this.read(node, 2);
    const [, src] = node.args;
    if (src === undefined || !isRef(src) || box.dims.includes('repeated'))
      throw this.unsupported(node, 'writes an element twice');
    const places = wanted.shape.flatMap((_, d) => (typeof box.dims[d] === 'number' ? [d] : []));
    const kept = places.map((d) => itemAt(wanted.shape, d));
    let part = this.reshaped(node, src, kept);
    const target = places.map((d) => box.dims[d] as number);
    part = this.permuted(
      node,
      part,
      target.map((_, k) => k).sort((a, b) => itemAt(target, a) - itemAt(target, b)),
    );
    part = this.reshaped(
      node,
      part,
      box.rows.map(([, count]) => count),
    );
    let value = this.overwritten(node, this.reshaped(node, memory, box.sizes), part, box, 0);
    value = this.reshaped(
      node,
      value,
      order.map((d) => itemAt(this.sizes(self), d)),
    );
    value = this.permuted(
      node,
      value,
      order.map((_, k) => order.indexOf(k)),
    );
    this.named(node, value);
  }

  /** From dim `d` on, rows that are not written stay. */
  private overwritten(node: Node, whole: ValueRef, part: ValueRef, box: Box, d: number): ValueRef {
    const at = box.rows.findIndex(([, count], k) => k >= d && count < itemAt(box.sizes, k));
    if (at < 0) return part;
    const [start, count] = itemAt(box.rows, at);
    const sizes = this.sizes(whole);
    const inner = this.call(
      node,
      'slice.Tensor',
      [whole, at, start, start + count],
      sizes.with(at, count),
    );
    const written = this.overwritten(node, inner, part, box, at + 1);
    return this.call(
      node,
      'slice_scatter.default',
      [whole, written, at, start, start + count],
      sizes,
    );
  }

  /**
   * The memory of the first argument in its own order, and the box that size, stride and offset
   * from argument `at` on name.
   */
  private read(
    node: Node,
    at: number,
  ): { self: ValueRef; memory: ValueRef; box: Box; wanted: Layout; order: number[] } {
    const [self] = node.args;
    const size = numbers(node.args[at] ?? node.kwargs['size']);
    const stride = numbers(node.args[at + 1] ?? node.kwargs['stride']);
    const offset = node.args[at + 2] ?? node.kwargs['storage_offset'] ?? 0;
    if (!isRef(self) || size === undefined || stride === undefined || typeof offset !== 'number')
      throw this.unsupported(node, 'needs sizes and strides that are numbers');
    const own = this.types.get(self.name);
    const shape = numbers(own?.shape);
    const steps = numbers(own?.stride ?? contiguousStride(shape ?? []) ?? undefined);
    if (shape === undefined || steps === undefined)
      throw this.unsupported(node, `reads ${self.name}, whose strides are not known`);
    const order = shape
      .map((_, d) => d)
      .sort((a, b) => itemAt(steps, b) - itemAt(steps, a) || a - b);
    const dense = order.every(
      (d, k) =>
        shape[d] === 1 || steps[d] === product(order.slice(k + 1).map((e) => itemAt(shape, e))),
    );
    if (!dense)
      throw this.unsupported(node, `reads ${self.name}, whose elements do not fill their memory`);
    const wanted = { shape: size, stride, offset };
    const box = boxOf(wanted, elements(shape));
    if (box === undefined)
      throw this.unsupported(
        node,
        `has sizes [${size.join(', ')}] and strides [${stride.join(', ')}], which no view has`,
      );
    return { self, memory: this.permuted(node, self, order), box, wanted, order };
  }

  private sizes({ name }: ValueRef): number[] {
    return [...(numbers(this.types.get(name)?.shape) ?? [])];
  }

  private permuted(node: Node, value: ValueRef, order: readonly number[]): ValueRef {
    if (order.every((d, k) => d === k)) return value;
    const sizes = this.sizes(value);
    return this.call(
      node,
      'permute.default',
      [value, [...order]],
      order.map((d) => itemAt(sizes, d)),
    );
  }

  private reshaped(node: Node, value: ValueRef, shape: readonly number[]): ValueRef {
    if (this.sizes(value).join() === shape.join()) return value;
    return this.call(node, 'reshape.default', [value, [...shape]], shape);
  }

  private call(
    node: Node,
    target: string,
    args: readonly Arg[],
    shape: readonly number[],
  ): ValueRef {
    const type = tensorType(this.types.get(node.name)?.dtype ?? 'f32', shape);
    const name = this.names.near(node.name);
    this.types.set(name, type);
    const { name: _, ...rest } = node;
    this.nodes.push({ ...rest, name, target: `aten.${target}`, args, kwargs: NO_KWARGS, type });
    return ref(name);
  }

  /** The last step takes the name of the call; without any, it is an alias. */
  private named(node: Node, value: ValueRef): void {
    const last = this.nodes.at(-1);
    if (last?.name === value.name && !this.graph.nodes.includes(last)) {
      this.nodes[this.nodes.length - 1] = { ...last, name: node.name, type: node.type };
      return;
    }
    this.nodes.push({ ...node, target: 'aten.alias.default', args: [value], kwargs: NO_KWARGS });
  }

  private unsupported(node: Node, why: string): ShardwrightError {
    return new ShardwrightError('E_UNSUPPORTED', `${node.name}: ${node.target} ${why}`, {
      node: node.name,
      ...defined({ position: linePosition(node.meta.line) }),
      hint:
        'write the view of the values in the model (permute, reshape, slice, unfold) instead ' +
        'of its memory',
    });
  }
}

function numbers(list: unknown): number[] | undefined {
  if (!Array.isArray(list) && !isList(list as Arg)) return undefined;
  const values = list as readonly unknown[];
  return values.every((n) => typeof n === 'number') ? [...values] : undefined;
}

/**
 * The memory of `count` elements cut into dims such that the wanted elements are rows of each;
 * undefined where they are not.
 */
function boxOf({ shape, stride, offset }: Layout, count: number): Box | undefined {
  const real = shape.map((_, d) => d).filter((d) => itemAt(shape, d) > 1 && itemAt(stride, d) > 0);
  real.sort((a, b) => itemAt(stride, b) - itemAt(stride, a));
  const sizes: number[] = [];
  const rows: (readonly [number, number])[] = [];
  const dims: (number | 'one' | 'repeated')[] = shape.map((n, d) =>
    n > 1 && stride[d] === 0 ? 'repeated' : 'one',
  );
  let span = count;
  let rest = offset;
  for (const d of real) {
    const [step, wanted] = [itemAt(stride, d), itemAt(shape, d)];
    const size = span / step;
    const start = Math.floor(rest / step);
    if (!Number.isInteger(size) || start + wanted > size) return undefined;
    dims[d] = sizes.length;
    sizes.push(size);
    rows.push([start, wanted]);
    rest -= start * step;
    span = step;
  }
  if (rest >= span) return undefined;
  if (span > 1) {
    sizes.push(span);
    rows.push([rest, 1]);
  }
  return { sizes, rows, dims };
}
