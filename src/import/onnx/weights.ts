/** Makes initializers of an ONNX model into parameters, or into constants known at import. */

import { NameSet } from '../../graph/names.ts';
import type { Node, NodeMeta, Role, TensorType } from '../../graph/types.ts';
import { NO_KWARGS, tensorType } from '../../graph/value.ts';
import type { OnnxOperand } from './call.ts';
import type { ModelContext } from './context.ts';
import type { OnnxTensor } from './file/tensor.ts';

/**
 * Initializers and constant tensors of a model, bodies included. A scalar is known at import;
 * anything else becomes a placeholder of the main graph when a call uses it, so that sizes which
 * only shaped something leave no trace.
 */
export class Weights {
  /** By the record of the tensor: sibling bodies may use one name for two tensors. */
  private readonly operands = new Map<OnnxTensor, OnnxOperand>();
  private readonly known = new Map<
    string,
    { readonly tensor: OnnxTensor; readonly key: string; readonly type: TensorType }
  >();
  private readonly keys = new NameSet();
  private readonly used = new Map<OnnxTensor, Node>();

  constructor(
    private readonly context: ModelContext,
    /** Gives a name of the main graph that is free. */
    private readonly fresh: (wanted: string) => string,
  ) {}

  operand(tensor: OnnxTensor, key: string): OnnxOperand {
    const found = this.operands.get(tensor);
    if (found !== undefined) return found;
    const { values, dims, dtype } = tensor;
    const type = this.context.intern(tensorType(dtype, dims));
    const constant = values === undefined ? {} : { constant: { dtype, dims, values } };
    const scalar = values !== undefined && dims.length === 0;
    const made: OnnxOperand = { name: scalar ? '' : this.fresh(key), type, ...constant };
    this.operands.set(tensor, made);
    if (scalar) return made;
    this.known.set(made.name, { tensor, key: this.keys.take(key), type });
    return made;
  }

  /**
   * A call uses the value of this name: a weight becomes a placeholder. Its type; undefined for any
   * other name.
   */
  use(name: string): TensorType | undefined {
    const found = this.known.get(name);
    if (found === undefined) return undefined;
    const { tensor, key, type } = found;
    if (!this.used.has(tensor)) {
      const role: Role = /^(f|bf|c)/.test(type.dtype) ? 'parameter' : 'constant';
      const meta: NodeMeta = { role, roleName: key, inferred: true };
      this.used.set(tensor, {
        name,
        kind: 'placeholder',
        target: name,
        args: [],
        kwargs: NO_KWARGS,
        type,
        meta,
      });
    }
    return type;
  }

  /**
   * Placeholders of all used weights: initializers of the main graph in their order, then the
   * others by first use.
   */
  placeholders(initializers: readonly OnnxTensor[]): Node[] {
    const own = new Set(initializers);
    const first = initializers.flatMap((tensor) => this.used.get(tensor) ?? []);
    return [
      ...first,
      ...[...this.used].flatMap(([tensor, node]) => (own.has(tensor) ? [] : [node])),
    ];
  }
}
