/** State that all graphs of one ONNX model share while they are lowered. */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { NodeMeta, TensorType } from '../../graph/types.ts';
import { typeText } from '../../graph/value.ts';
import type { Infer } from '../complete/infer.ts';
import { sourcePosition } from '../complete/origin.ts';
import type { OnnxGraph, OnnxModel, OnnxNode } from './file/model.ts';

/** State that all graphs of one model share. */
export class ModelContext {
  private readonly unknown = new Map<string, { count: number; readonly first: number }>();
  private readonly types = new Map<string, TensorType>();
  private readonly used = new Set<string>();
  /** Version of ai.onnx that the file states. */
  readonly opset: number;

  constructor(
    readonly model: OnnxModel,
    readonly infer: Infer,
  ) {
    this.opset = model.opsets.get('') ?? 1;
    this.noteUses(model.graph);
  }

  /** Tells whether a node or a graph reads or returns a value of this name. */
  isUsed(name: string): boolean {
    return this.used.has(name);
  }

  private noteUses({ nodes, outputs }: OnnxGraph): void {
    for (const { name } of outputs) this.used.add(name);
    for (const { inputs, attributes } of nodes) {
      for (const name of inputs) this.used.add(name);
      for (const { graph } of attributes.values()) if (graph !== undefined) this.noteUses(graph);
    }
  }

  /** Equal types are one object. */
  intern(type: TensorType): TensorType {
    const key = typeText(type);
    const known = this.types.get(key);
    if (known !== undefined) return known;
    this.types.set(key, type);
    return type;
  }

  /** Notes an operator that neither a lowering nor the file types. */
  addUnknown(operator: string, index: number): void {
    const known = this.unknown.get(operator);
    if (known === undefined) this.unknown.set(operator, { count: 1, first: index });
    else known.count++;
  }

  /** All such operators in one error; undefined where there are none. */
  unknownError(): ShardwrightError | undefined {
    if (this.unknown.size === 0) return undefined;
    const entries = [...this.unknown];
    const first = Math.min(...entries.map(([, entry]) => entry.first));
    const list = entries.map(
      ([name, { count, first: node }]) =>
        `${name} (${count} ${count === 1 ? 'node' : 'nodes'}, first node ${node})`,
    );
    const what =
      entries.length === 1 ? '1 unknown operator' : `${entries.length} unknown operators`;
    return new ShardwrightError(
      'E_UNKNOWN_OP',
      `${what} without a type for the results: ${list.slice(0, 50).join(', ')}`,
      {
        hint: 'run onnx.shape_inference on the model, or export it with types',
        path: `graph.node[${first}]`,
      },
    );
  }
}

/** A name without characters that other notations cannot take. */
export function mangled(name: string): string {
  const plain = name.replace(/[^A-Za-z0-9_]/g, '_');
  return /^[A-Za-z_]/.test(plain) ? plain : `v_${plain}`;
}

/** Module path and source position that torch's exporter writes. */
export function originOf(node: OnnxNode): NodeMeta {
  const scopes = node.metadata.get('pkg.torch.onnx.name_scopes');
  const trace = node.metadata.get('pkg.torch.onnx.stack_trace');
  const names =
    scopes === undefined
      ? []
      : [...scopes.matchAll(/'([^'\n]{0,1024})'/g)].map((match) => match[1]);
  // The last scope is the node itself.
  const path = names.length >= 2 ? names[names.length - 2] : '';
  const source = trace === undefined ? undefined : sourcePosition(trace);
  return { ...(path !== '' ? { path } : {}), ...defined({ source }) };
}
