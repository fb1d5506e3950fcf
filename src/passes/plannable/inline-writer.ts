/**
 * Writes the nodes of an opened program: unique names, types by name, the scope of each node, marks
 * that never run.
 */

import { ShardwrightError } from '../../errors.ts';
import { NameSet } from '../../graph/names.ts';
import type { Arg, Node, TensorType, ValueType } from '../../graph/types.ts';
import { isRef, ref, tensorType } from '../../graph/value.ts';
import { Loops } from './loops.ts';

const MAX_NODES = 500_000;

export class InlineWriter {
  readonly nodes: Node[] = [];
  readonly names = new NameSet();
  readonly loops = new Loops();
  private readonly types = new Map<string, ValueType>();

  isTensor(arg: Arg): boolean {
    return isRef(arg) && this.types.get(arg.name)?.kind === 'tensor';
  }

  /** @throws E_UNSUPPORTED for a value that is not a tensor, named by the call that needs one */
  tensor(name: string, node: Node): TensorType {
    const type = this.types.get(name);
    if (type?.kind !== 'tensor')
      throw new ShardwrightError('E_UNSUPPORTED', `'${name}' of ${node.target} is not a tensor`, {
        node: node.name,
      });
    return tensorType(type.dtype, type.shape);
  }

  unique(base: string): string {
    return this.names.take(base);
  }

  /** A node that places values and never runs. */
  mark(name: string, target: string, args: readonly Arg[], type: ValueType, scope: number): Arg {
    this.emit({ name, kind: 'call', target, args, kwargs: {}, type, meta: {} }, scope, false);
    return ref(name);
  }

  /** The results of a call, read out of its tuple. */
  members(call: string, types: readonly ValueType[], base: string, scope: number): Arg[] {
    return types.map((type, k): Arg => {
      const name = this.unique(`${base}.${k}`);
      const args = [ref(call), k];
      this.emit(
        { name, kind: 'call', target: 'operator.getitem', args, kwargs: {}, type, meta: {} },
        scope,
      );
      return ref(name);
    });
  }

  /** @throws E_LIMIT for a program of more than 500,000 nodes with its bodies in line */
  emit(node: Node, scope: number, runs = true): void {
    if (this.nodes.length >= MAX_NODES)
      throw new ShardwrightError(
        'E_LIMIT',
        `the program has more than ${MAX_NODES} nodes with its bodies in line`,
        {},
      );
    this.nodes.push(node);
    this.names.add(node.name);
    this.types.set(node.name, node.type);
    this.loops.place(node.name, scope, runs);
  }
}
