import { ShardwrightError } from '../../../src/errors.ts';
import { controlCall } from '../../../src/graph/control.ts';
import { lintGraph } from '../../../src/graph/lint.ts';
import type { Arg, DType, Graph, Node, Output, ValueType } from '../../../src/graph/types.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { bind, inferCall } from '../../../src/ops/record/infer.ts';

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

export const ref = (t: Tensor | string): Arg => ({
  kind: 'value',
  name: typeof t === 'string' ? t : t.name,
});
export const float = (value: number): Arg => ({ kind: 'float', value });
export const dtypeArg = (dtype: DType): Arg => ({ kind: 'dtype', dtype });

const MAX_ELEMENTS = 3000;

/**
 * A program under construction: inputs may be added at any time, calls are typed as they are made.
 */
export class ProgramBuilder {
  readonly tensors: Tensor[] = [];
  private readonly inputs: Node[] = [];
  /** Inputs of a body. */
  protected readonly arguments: Node[] = [];
  private readonly calls: Node[] = [];
  private readonly subgraphs: Record<string, Graph> = {};
  private readonly types = new Map<string, ValueType>();
  private count = 0;

  /** @param prefix of names: those of a body must differ from those of another */
  constructor(
    readonly draw: Draw,
    private readonly prefix = '',
  ) {}

  input(dtype: DType, shape: readonly number[], role: 'input' | 'parameter' = 'input'): Tensor {
    const name = `x${this.inputs.length}`;
    const type: ValueType = { kind: 'tensor', dtype, shape: [...shape] };
    this.inputs.push({
      name,
      kind: 'placeholder',
      target: name,
      args: [],
      kwargs: {},
      type,
      meta: { role, roleName: name },
    });
    this.types.set(name, type);
    return { name, dtype, shape };
  }

  /** An input of a body. */
  protected argument(dtype: DType, shape: readonly number[]): Tensor {
    const name = `${this.prefix}a${this.count++}`;
    const type: ValueType = { kind: 'tensor', dtype, shape: [...shape] };
    this.arguments.push({
      name,
      kind: 'placeholder',
      target: name,
      args: [],
      kwargs: {},
      type,
      meta: { role: 'arg' },
    });
    this.types.set(name, type);
    return { name, dtype, shape };
  }

  /** Adds a body, under a name of its own. */
  subgraph(graph: Graph): Arg {
    const name = `${graph.name}_${Object.keys(this.subgraphs).length}`;
    this.subgraphs[name] = { ...graph, name };
    return { kind: 'graph', name };
  }

  /** A call with bodies; its results become tensors of the program. */
  control(target: string, args: readonly Arg[], kwargs: Readonly<Record<string, Arg>> = {}): void {
    const typeOf = (name: string): ValueType => this.types.get(name) ?? { kind: 'none' };
    const call = controlCall({ target, args, kwargs }, this.subgraphs, typeOf);
    if (call === undefined) throw new Error(`${target} is not a call with bodies`);
    const name = `${this.prefix}v${this.count++}`;
    this.calls.push({ name, kind: 'call', target, args, kwargs, type: call.result, meta: {} });
    if (call.result.kind !== 'tuple') throw new Error(`${target} gives no tuple`);
    call.result.items.forEach((type, k) => {
      if (type.kind !== 'tensor') throw new Error(`${target} gives a ${type.kind}`);
      const member = `${name}_${k}`;
      this.calls.push({
        name: member,
        kind: 'call',
        target: 'operator.getitem',
        args: [ref(name), k],
        kwargs: {},
        type,
        meta: {},
      });
      this.types.set(member, type);
      this.tensors.push({ name: member, dtype: type.dtype, shape: type.shape.map(Number) });
    });
  }

  /** The finished body. */
  body(name: string, returns: readonly Tensor[]): Graph {
    const placeholders = this.arguments.map((node, roleIndex): Node => ({
      ...node,
      meta: { role: 'arg', roleIndex },
    }));
    const outputs = returns.map((t, index): Output => ({ value: t.name, role: 'output', index }));
    return { name, nodes: [...placeholders, ...this.calls], outputs, subgraphs: this.subgraphs };
  }

  /** Members of the result; undefined when the call is refused or too large. */
  tuple(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>> = {},
  ): (Tensor | null)[] | undefined {
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
    if (
      metas.some(
        (m) =>
          m !== null && (m.shape.includes(0) || m.shape.reduce((a, b) => a * b, 1) > MAX_ELEMENTS),
      )
    )
      return undefined;
    const name = `${this.prefix}v${this.count++}`;
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
      this.calls.push({
        name: member,
        kind: 'call',
        target: 'operator.getitem',
        args: [ref(name), k],
        kwargs: {},
        type: memberType,
        meta: {},
      });
      this.types.set(member, memberType);
      const made = { name: member, dtype: meta.dtype, shape: meta.shape };
      this.tensors.push(made);
      return made;
    });
  }

  call(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>> = {},
  ): Tensor | undefined {
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
        else if (arg !== null && typeof arg === 'object' && 'kind' in arg && arg.kind === 'value')
          used.add(arg.name);
      };
      [...args, ...Object.values(kwargs)].forEach(note);
    }
    const ends = this.calls.filter((node) => node.type.kind === 'tensor' && !used.has(node.name));
    const outputs = ends.map((node, index): Output => ({
      value: node.name,
      role: 'output',
      index,
    }));
    const graph: Graph = {
      name,
      nodes: [...this.inputs, ...this.calls],
      outputs,
      subgraphs: this.subgraphs,
    };
    lintGraph(graph, (node, typeOf) => inferCall(TABLE, node, typeOf));
    return graph;
  }
}
