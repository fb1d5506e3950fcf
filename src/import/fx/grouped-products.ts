/**
 * Takes the grouped products of transformers as those of PyTorch. Where a compiler could not take
 * PyTorch's own in float32, `transformers/integrations/moe.py` (transformers 5) calls an operator
 * of its own, a loop over the experts with the same operands and results: `grouped_mm_fallback(x,
 * w, offs)` is `aten._grouped_mm(x, w, offs)`, and the results of its backward call are two more.
 */

import { NameSet } from '../../graph/names.ts';
import type { Arg, ValueType } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import { firstItems } from '../../item-at.ts';
import type { DraftRef, FxClass, FxNode } from './record.ts';

const FORWARD = 'transformers.grouped_mm_fallback.default';
const BACKWARD = 'transformers.grouped_mm_fallback_backward.default';
const PRODUCT = 'aten._grouped_mm.default';

/** The class with PyTorch's grouped products, bodies included; float64 has none there. */
export function withGroupedProducts(source: FxClass): FxClass {
  const classes = source.classes.map(withGroupedProducts);
  const isOurs = ({ target }: FxNode): boolean => target === FORWARD || target === BACKWARD;
  if (!source.nodes.some(isOurs)) return { ...source, classes };
  return { ...source, nodes: new Grouping(source).run(), classes };
}

class Grouping {
  private readonly nodes: FxNode[] = [];
  private readonly names: NameSet;
  private readonly backward = new Map<string, FxNode>();

  constructor(private readonly source: FxClass) {
    this.names = new NameSet([...source.inputs, ...source.nodes].map(({ name }) => name));
  }

  run(): readonly FxNode[] {
    for (const node of this.source.nodes) {
      const [first, index] = node.args;
      const of = isNamed(first) ? this.backward.get(first.name) : undefined;
      if (of !== undefined && node.target === 'operator.getitem') this.gradient(of, node, index);
      else if (node.target === BACKWARD && node.args.length === 4 && this.hasKernel(node))
        this.backward.set(node.name, node);
      else if (node.target === FORWARD && dtypeOf(node.type) !== 'f64')
        this.nodes.push({ ...node, target: PRODUCT });
      else this.nodes.push(node);
    }
    return this.nodes;
  }

  /** Tells whether PyTorch has the products of a backward call: it has none of float64. */
  private hasKernel({ name }: FxNode): boolean {
    return this.source.nodes.every(({ target, args: [first], type }) => {
      const reads = target === 'operator.getitem' && isNamed(first) && first.name === name;
      return !reads || dtypeOf(type) !== 'f64';
    });
  }

  /** Writes result 0 or 1 of a backward call: the gradient of the rows, or of the weights. */
  private gradient(of: FxNode, reader: FxNode, index: Arg | undefined): void {
    const [rows, weights, bounds, grad] = firstItems(of.args, 4);
    const product = { ...reader, target: PRODUCT, type: withoutStride(reader.type) };
    if (index === 0) {
      const turned = this.transposed(reader, weights);
      this.nodes.push({ ...product, args: [grad, turned, bounds] });
    } else if (isTransposed(reader.type)) {
      // The gradient lies as the weights do: those of a linear layer are read transposed.
      const name = this.names.take(`${reader.name}_t`);
      const ref: DraftRef = { kind: 'value', name };
      const args = [this.transposed(reader, grad), rows, bounds];
      this.nodes.push({ ...product, name, ref, args, type: undefined });
      this.nodes.push({ ...reader, target: 'aten.transpose.int', args: [ref, -2, -1] });
    } else this.nodes.push({ ...product, args: [this.transposed(reader, rows), grad, bounds] });
  }

  /** A value with its last two dims exchanged. */
  private transposed(near: FxNode, value: Arg): Arg {
    const name = this.names.take(`${near.name}_operand`);
    const ref: DraftRef = { kind: 'value', name };
    const target = 'aten.transpose.int';
    const args = [value, -2, -1];
    this.nodes.push({ ...near, name, ref, target, args, type: undefined });
    return ref;
  }
}

function isNamed(arg: Arg | undefined): arg is Extract<Arg, { readonly kind: 'value' }> {
  return arg !== undefined && arg !== null && isRef(arg);
}

function dtypeOf(type: ValueType | undefined): string | undefined {
  return type?.kind === 'tensor' ? type.dtype : undefined;
}

function withoutStride(type: ValueType | undefined): ValueType | undefined {
  if (type?.kind !== 'tensor') return type;
  const { stride: _, ...rest } = type;
  return rest;
}

/** Tells whether the last two dims of a stack of matrices have changed places in memory. */
function isTransposed(type: ValueType | undefined): boolean {
  if (type?.kind !== 'tensor' || type.stride === undefined) return false;
  const [inner, last] = type.stride.slice(-2);
  return inner === 1 && last !== 1;
}
