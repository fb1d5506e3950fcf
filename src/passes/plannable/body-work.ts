/**
 * Counts the work of the body of a region of per-device code on one device: its FLOPs, bytes and
 * collectives at local sizes, loops by their trips, branches by their weights. An axis that is not
 * one of the region's own shrinks every value of the body that is cut on it.
 */
import { defined } from '../../defined.ts';
import { scanPositions } from '../../graph/control.ts';
import { typesByName } from '../../graph/nodes.ts';
import { type Arg, DTYPE_BYTES, type Graph, type Node, type ValueType } from '../../graph/types.ts';
import { exampleShape, getOwn, isGraphRef, isList, isRef } from '../../graph/value.ts';
import { isTuple, type Typed } from '../../local-spmd/typed.ts';
import type { Typer } from '../../local-spmd/typer.ts';
import { type AxisType, cutOf, typedText } from '../../mesh/local-types/types.ts';
import { atSizes, tensorInputs } from '../../ops/record/context.ts';
import { bind } from '../../ops/record/infer.ts';
import type { TensorMeta, TypedContext } from '../../ops/record/record.ts';
import type { CollectiveSite, InternalCollective } from '../../ops/record/rule.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { spmdName } from '../../ops/spmd/operators.ts';
import { product } from '../../product.ts';
import { branchWeights } from './branch-weights.ts';

/** A collective of the body, each trip of a loop its own, those of all branches among them. */
interface BodyCollective {
  readonly kind: InternalCollective['kind'];
  readonly axis: string;
  readonly bytes: number;
  readonly site: CollectiveSite;
}

interface BodyCost {
  readonly matrix: number;
  readonly vector: number;
  readonly bytes: number;
  readonly collectives: readonly BodyCollective[];
}

/** How the body passes a cut on, on an axis that the typer has first. */
interface BodyCut {
  readonly inputs: readonly AxisType[];
  readonly typer: Typer;
}

/** A cut and into how many pieces. */
interface Taken {
  readonly cut: BodyCut;
  readonly pieces: number;
}

/** Where a body is counted, and at which cuts. */
interface BodyScope {
  readonly prefix: string;
  readonly taken: readonly Taken[];
  readonly types: ReadonlyMap<string, ValueType>;
}

export class BodyWork {
  private readonly known = new Map<string, BodyCost>();
  private readonly shapes: readonly (readonly number[])[];

  /** @param typer of the body on the region's own axes, for what its values print as */
  constructor(
    private readonly body: Graph,
    private readonly table: OperatorTable,
    private readonly typer: Typer,
    private readonly cuts: readonly BodyCut[],
    private readonly note: (text: string) => void,
  ) {
    this.shapes = body.nodes.flatMap(({ kind, type }) =>
      kind !== 'placeholder' ? [] : [type.kind === 'tensor' ? exampleShape(type) : []],
    );
  }

  /**
   * The cost at the sizes of a call, whose operands may be cut on axes that are none of the
   * region's.
   */
  of(ctx: Pick<TypedContext, 'inputs'>): BodyCost {
    return this.at(this.taken(ctx.inputs.map(({ shape }) => shape)));
  }

  at(taken: readonly Taken[]): BodyCost {
    const key = taken.map(({ cut, pieces }) => `${this.cuts.indexOf(cut)}x${pieces}`).join();
    let cost = this.known.get(key);
    if (cost === undefined) this.known.set(key, (cost = this.count(this.body, '', taken)));
    return cost;
  }

  /** The cuts that make these sizes of the operands out of those of the body. */
  private taken(local: readonly (readonly number[])[]): Taken[] {
    const left = this.shapes.map((shape, i) => shape.map((size, d) => size / local[i][d]));
    const found: Taken[] = [];
    // Cuts of more operands first: a cut of one of them alone is what is left.
    const width = ({ inputs }: BodyCut): number => inputs.filter((type) => type !== 'R').length;
    for (const cut of [...this.cuts].sort((a, b) => width(b) - width(a))) {
      const dims = cut.inputs.flatMap((type, i) =>
        cutOf(type) === undefined ? [] : [[i, cutOf(type)!] as const],
      );
      const pieces = Math.min(...dims.map(([i, d]) => left[i][d]));
      if (!(pieces > 1)) continue;
      for (const [i, d] of dims) left[i][d] /= pieces;
      found.push({ cut, pieces });
    }
    return found;
  }

  /** One run of a body. */
  private count(body: Graph, prefix: string, taken: readonly Taken[]): BodyCost {
    const types = typesByName(body);
    const collectives: BodyCollective[] = [];
    const sum = { matrix: 0, vector: 0, bytes: 0 };
    for (const node of body.nodes) {
      if (node.kind !== 'call' || node.target === 'operator.getitem') continue;
      for (const inner of this.bodyRuns(node, body, { prefix, taken, types })) {
        sum.matrix += inner.matrix;
        sum.vector += inner.vector;
        sum.bytes += inner.bytes;
        // A body may have many trips: no spread of all at once.
        for (const collective of inner.collectives) collectives.push(collective);
      }
      const record = this.table.get(node.target);
      const call = this.localCall(body, node, taken, types);
      if (record === undefined || call === undefined) continue;
      const { matrix, vector } = record.flops(call);
      sum.matrix += matrix;
      sum.vector += vector;
      sum.bytes += record.bytes(call);
      const kind = COLLECTIVES[spmdName(node.target) ?? ''];
      const [, axis, size] = node.args;
      if (kind === undefined || typeof axis !== 'string' || size === 1) continue;
      const moved = kind === 'all_gather' ? call.outputs[0] : call.inputs[0];
      const bytes = product(moved?.shape ?? []) * DTYPE_BYTES[moved?.dtype ?? 'f32'];
      collectives.push({ kind, axis, bytes, site: this.siteOf(body, node, prefix) });
    }
    return { ...sum, collectives };
  }

  /** The bodies of a call, each for all its trips. */
  private bodyRuns(node: Node, body: Graph, { prefix, taken, types }: BodyScope): BodyCost[] {
    const bodies = bodiesOf(node, body);
    const weights =
      node.target === 'cond' || node.target === 'case'
        ? branchWeights(
            node,
            bodies.map(([, graph]) => graph),
            this.table,
            this.note,
          )
        : undefined;
    return bodies.map(([name, graph], b): BodyCost => {
      const made = this.count(graph, `${prefix}${name}/`, taken);
      const trips = tripsOf(node, types);
      const runs = trips * (weights?.[b] ?? 1);
      const inner =
        weights === undefined
          ? made.collectives
          : made.collectives.map((c) => ({
              ...c,
              site: { ...c.site, times: weights[b] * (c.site.times ?? 1) },
            }));
      const collectives: BodyCollective[] = [];
      for (let t = 0; t < trips; t++) collectives.push(...inner);
      return {
        matrix: made.matrix * runs,
        vector: made.vector * runs,
        bytes: made.bytes * runs,
        collectives,
      };
    });
  }

  /** A call at the sizes that the cuts leave. */
  private localCall(
    body: Graph,
    node: Node,
    taken: readonly Taken[],
    types: ReadonlyMap<string, ValueType>,
  ): TypedContext | undefined {
    const record = this.table.get(node.target);
    const whole = bind(this.table, node, (name) => types.get(name) ?? { kind: 'none' });
    if (record === undefined || whole === undefined) return undefined;
    const local = (name: string, meta: TensorMeta, item = 0): TensorMeta => ({
      dtype: meta.dtype,
      shape: meta.shape.map((size, d) =>
        taken.reduce(
          (n, { cut, pieces }) =>
            this.cutOn(cut, body, name, item) === `S(${d})` ? n / pieces : n,
          size,
        ),
      ),
    });
    const names = tensorInputs(record, node.args, node.kwargs);
    return atSizes(
      whole,
      whole.inputs.map((meta, i) => local(names[i], meta)),
      whole.outputs.map((meta, k) => (meta === null ? null : local(node.name, meta, k))),
    );
  }

  /** The type of a value of the body on the axis of a cut. */
  private cutOn({ typer }: BodyCut, body: Graph, name: string, item: number): string | undefined {
    const typed: Typed | undefined = typer.types.get(body)?.get(name);
    const own = typed !== undefined && isTuple(typed) ? typed.items[item] : typed;
    return own === undefined || isTuple(own) ? undefined : own[0];
  }

  private siteOf(body: Graph, node: Node, prefix: string): CollectiveSite {
    const [, , , src, dst] = node.args;
    const word = (arg: Arg | undefined): string => (typeof arg === 'string' ? arg : 'V');
    const typed = this.typer.types.get(body)?.get(node.name);
    const { type, meta } = node;
    const printed =
      typed === undefined || isTuple(typed) || type.kind !== 'tensor'
        ? '?'
        : typedText(type.dtype, exampleShape(type), this.typer.localType(typed));
    return {
      node: `${prefix}${node.name}`,
      from: word(src),
      to: word(dst),
      type: printed,
      ...defined({ source: meta.source }),
    };
  }
}

const COLLECTIVES: Readonly<Record<string, InternalCollective['kind']>> = {
  all_reduce: 'all_reduce',
  all_gather: 'all_gather',
  reduce_scatter: 'reduce_scatter',
  all_to_all: 'all_to_all',
  permute: 'collective_permute',
};

/** The bodies that a call runs, with the names that it has for them. */
function bodiesOf({ args }: Node, { subgraphs }: Graph): (readonly [string, Graph])[] {
  const found = (arg: Arg): (readonly [string, Graph])[] => {
    if (isList(arg)) return arg.flatMap(found);
    const graph = isGraphRef(arg) ? getOwn(subgraphs, arg.name) : undefined;
    return graph === undefined || !isGraphRef(arg) ? [] : [[arg.name, graph]];
  };
  return args.flatMap(found);
}

function tripsOf({ target, args, kwargs }: Node, types: ReadonlyMap<string, Node['type']>): number {
  if (target !== 'scan' && target !== 'map' && target !== 'map_impl') return 1;
  const xs = args[scanPositions(target).xs];
  const first = xs !== undefined && isList(xs) ? xs[0] : undefined;
  const type = first !== undefined && isRef(first) ? types.get(first.name) : undefined;
  const [length] = type?.kind === 'tensor' ? type.shape : [getOwn(kwargs, 'length')];
  return typeof length === 'number' ? length : 1;
}
