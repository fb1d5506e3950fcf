import { ShardwrightError } from '../../../src/errors.ts';
import { lintGraph } from '../../../src/graph/lint.ts';
import type { Arg, DType, Graph, Node, Output, ValueType } from '../../../src/graph/types.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { bind, inferCall } from '../../../src/ops/infer.ts';

export const TABLE = builtinOperators();

export interface Tensor {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
}

export type Draw = {
  /** 0 .. n-1. */
  readonly below: (n: number) => number;
  readonly pick: <T>(list: readonly T[]) => T;
  readonly chance: (p: number) => boolean;
};

export function drawOf(seed: number): Draw {
  let state = Math.imul(seed + 77, 0x9e3779b1) >>> 0 || 1;
  const next = (): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (Math.imul(state, 0x2c1b3c6d) >>> 0) / 2 ** 32;
  };
  for (let i = 0; i < 4; i++) next();
  return {
    below: (n) => Math.floor(next() * n),
    pick: (list) => list[Math.floor(next() * list.length)],
    chance: (p) => next() < p,
  };
}

export const ref = (t: Tensor | string): Arg => ({ kind: 'value', name: typeof t === 'string' ? t : t.name });
export const float = (value: number): Arg => ({ kind: 'float', value });
export const dtypeArg = (dtype: DType): Arg => ({ kind: 'dtype', dtype });

const MAX_ELEMENTS = 3000;

/** A program under construction: inputs may be added at any time, calls are typed as they are made. */
export class ProgramBuilder {
  readonly tensors: Tensor[] = [];
  private readonly inputs: Node[] = [];
  private readonly calls: Node[] = [];
  private readonly types = new Map<string, ValueType>();
  private count = 0;

  constructor(readonly draw: Draw) {}

  input(dtype: DType, shape: readonly number[], role: 'input' | 'parameter' = 'input'): Tensor {
    const name = `x${this.inputs.length}`;
    const type: ValueType = { kind: 'tensor', dtype, shape: [...shape] };
    this.inputs.push({ name, kind: 'placeholder', target: name, args: [], kwargs: {}, type, meta: { role, roleName: name } }); // prettier-ignore
    this.types.set(name, type);
    return { name, dtype, shape };
  }

  /** Members of the result; undefined when the call is refused or too large. */
  tuple(target: string, args: readonly Arg[], kwargs: Readonly<Record<string, Arg>> = {}): (Tensor | null)[] | undefined {
    const typeOf = (name: string): ValueType => this.types.get(name) ?? { kind: 'none' };
    const call = { target, args, kwargs };
    let metas;
    try {
      metas = bind(TABLE, call, typeOf)?.outputs;
    } catch (error) {
      if (error instanceof ShardwrightError && error.code === 'E_TYPE') return undefined;
      throw error;
    }
    const type = inferCall(TABLE, call, typeOf);
    if (metas === undefined || type === undefined) throw new Error(`no operator ${target}`);
    if (metas.some((m) => m !== null && (m.shape.includes(0) || m.shape.reduce((a, b) => a * b, 1) > MAX_ELEMENTS)))
      return undefined;
    const name = `v${this.count++}`;
    this.calls.push({ name, kind: 'call', target, args, kwargs, type, meta: {} });
    this.types.set(name, type);
    if (type.kind !== 'tuple') {
      const [meta] = metas;
      if (meta === null) throw new Error('a single result is absent');
      const made = { name, dtype: meta.dtype, shape: meta.shape };
      this.tensors.push(made);
      return [made];
    }
    return metas.map((meta, k) => {
      if (meta === null) return null;
      const member = `${name}_${k}`;
      const memberType: ValueType = { kind: 'tensor', dtype: meta.dtype, shape: [...meta.shape] };
      this.calls.push({ name: member, kind: 'call', target: 'operator.getitem', args: [ref(name), k], kwargs: {}, type: memberType, meta: {} }); // prettier-ignore
      this.types.set(member, memberType);
      const made = { name: member, dtype: meta.dtype, shape: meta.shape };
      this.tensors.push(made);
      return made;
    });
  } // prettier-ignore

  call(target: string, args: readonly Arg[], kwargs: Readonly<Record<string, Arg>> = {}): Tensor | undefined {
    return this.tuple(target, args, kwargs)?.[0] ?? undefined;
  }

  get callCount(): number {
    return this.calls.length;
  }

  build(name: string): Graph {
    const used = new Set<string>();
    for (const { args, kwargs } of this.calls) {
      const note = (arg: Arg): void => {
        if (Array.isArray(arg)) (arg as readonly Arg[]).forEach(note);
        else if (arg !== null && typeof arg === 'object' && 'kind' in arg && arg.kind === 'value') used.add(arg.name);
      };
      [...args, ...Object.values(kwargs)].forEach(note);
    }
    const ends = this.calls.filter((node) => node.type.kind === 'tensor' && !used.has(node.name));
    const outputs = ends.map((node, index): Output => ({ value: node.name, role: 'output', index }));
    const graph: Graph = { name, nodes: [...this.inputs, ...this.calls], outputs, subgraphs: {} };
    lintGraph(graph, (node, typeOf) => inferCall(TABLE, node, typeOf));
    return graph;
  }
}
