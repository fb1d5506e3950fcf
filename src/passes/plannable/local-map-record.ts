/**
 * A region of per-device code as an operator for planning. In: a `local_map` call and its body. Out: a record whose rules are the
 * specs on the region's own axes, and on all other axes the cuts that the body passes on unchanged, found by typing it. Its
 * collectives are priced with the rule of their axis, its work is that of the body on one device.
 */
import { localMapCall } from '../../graph/local-map.ts';
import { DTYPE_BYTES, type Arg, type Graph, type Node } from '../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef } from '../../graph/value.ts';
import { isTuple, type Known, type TypedAxis } from '../../local-spmd/typed.ts';
import { Typer } from '../../local-spmd/typer.ts';
import { cutOf, type AxisType } from '../../mesh/local-types/types.ts';
import { bind } from '../../ops/record/infer.ts';
import { defineOp, type OperatorRecord } from '../../ops/record/record.ts';
import { P, R, rule, S, type InternalCollective, type Rule, type RuleSlot } from '../../ops/record/rule.ts';
import { spmdName } from '../../ops/spmd/operators.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { shapeOf } from '../sizes/dims.ts';

/** A region that was opened: its call, and the body that each device runs. */
export interface OpenedRegion {
  readonly call: Node;
  readonly body: Graph;
}

/** Assignments of cuts to inputs that are tried on other axes. */
const MOST_TRIED = 256;

export function localMapRecord(target: string, node: Node, body: Graph, table: OperatorTable): OperatorRecord {
  const { axes, inSpecs, outSpecs } = localMapCall(node);
  const items = node.type.kind === 'tuple' ? node.type.items : [];
  const metas = items.flatMap((type) => (type.kind === 'tensor' ? [{ dtype: type.dtype, shape: shapeOf(type) }] : []));
  const inside = countedIn(body, table, 1);
  const own = axes.flatMap(({ name, size }, a): Rule[] =>
    size === 1 ? [] : [
      rule(inSpecs.map((spec, i) => slotOf(spec[a], `in${i}`)), outSpecs.map((spec, k) => slotOf(spec[a], `out${k}`)), {
        origin: 'ext', axes: [name], rewrite: 'local-map',
        collectives: inside.collectives.filter((c) => c.axis === name).map(({ kind, bytes }): InternalCollective => ({ kind, bytes: () => bytes })),
      }),
    ],
  );
  const others = passedOn(node, body, table);
  return defineOp(target, {
    schema: 'Tensor[] operands',
    cls: 'other',
    results: 'tuple',
    infer: () => metas,
    shard: () => [...own, ...others],
    flops: () => ({ matrix: inside.matrix, vector: inside.vector }),
    bytes: () => inside.bytes,
  });
} // prettier-ignore

/** Cuts of the operands have nothing to do with each other: each is a group of its own. */
function slotOf(type: string, group: string): RuleSlot {
  const dim = cutOf(type as AxisType);
  if (dim !== undefined) return S(dim, { even: true, slicing: 'contiguous', tie: group });
  return type === 'P' ? P('sum') : R;
}

interface Counted {
  readonly matrix: number;
  readonly vector: number;
  readonly bytes: number;
  readonly collectives: readonly { readonly kind: InternalCollective['kind']; readonly axis: string; readonly bytes: number }[];
} // prettier-ignore

/** Work and collectives of a body on one device, loops by their trips. */
function countedIn(body: Graph, table: OperatorTable, times: number): Counted {
  const types = new Map(body.nodes.map((n) => [n.name, n.type]));
  const sum = { matrix: 0, vector: 0, bytes: 0, collectives: [] as Counted['collectives'][number][] };
  for (const node of body.nodes) {
    if (node.kind !== 'call' || node.target === 'operator.getitem') continue;
    const inner = (arg: Arg): void => {
      if (isList(arg)) arg.forEach(inner);
      else if (isGraphRef(arg)) {
        const graph = getOwn(body.subgraphs, arg.name);
        if (graph === undefined) return;
        const made = countedIn(graph, table, times * tripsOf(node, types));
        sum.matrix += made.matrix;
        sum.vector += made.vector;
        sum.bytes += made.bytes;
        sum.collectives.push(...made.collectives);
      }
    };
    node.args.forEach(inner);
    const record = table.get(node.target);
    const call = bind(table, node, (name) => types.get(name) ?? { kind: 'none' });
    if (record === undefined || call === undefined) continue;
    const { matrix, vector } = record.flops(call);
    sum.matrix += matrix * times;
    sum.vector += vector * times;
    sum.bytes += record.bytes(call) * times;
    const kind = COLLECTIVES[spmdName(node.target) ?? ''];
    const [, axis, size] = node.args;
    if (kind === undefined || typeof axis !== 'string' || size === 1) continue;
    const moved = kind === 'all_gather' ? call.outputs[0] : call.inputs[0];
    const bytes = (moved?.shape ?? []).reduce((n, d) => n * d, 1) * DTYPE_BYTES[moved?.dtype ?? 'f32'];
    for (let t = 0; t < times; t++) sum.collectives.push({ kind, axis, bytes });
  }
  return sum;
}

const COLLECTIVES: Readonly<Record<string, InternalCollective['kind']>> = {
  all_reduce: 'all_reduce',
  all_gather: 'all_gather',
  reduce_scatter: 'reduce_scatter',
  all_to_all: 'all_to_all',
  permute: 'collective_permute',
};

function tripsOf({ target, args, kwargs }: Node, types: ReadonlyMap<string, Node['type']>): number {
  if (target !== 'scan' && target !== 'map' && target !== 'map_impl') return 1;
  const xs = args[target === 'scan' ? 2 : 1];
  const first = xs !== undefined && isList(xs) ? xs[0] : undefined;
  const type = first !== undefined && isRef(first) ? types.get(first.name) : undefined;
  const [length] = type?.kind === 'tensor' ? type.shape : [getOwn(kwargs, 'length')];
  return typeof length === 'number' ? length : 1;
}

/** On an axis that is none of the region's: inputs cut so that the body passes the cuts on, and what its results are then. */
function passedOn(node: Node, body: Graph, table: OperatorTable): Rule[] {
  const { axes, inSpecs, outSpecs } = localMapCall(node);
  const placeholders = body.nodes.filter(({ kind }) => kind === 'placeholder');
  const choices = placeholders.map(({ type }, i): AxisType[] => {
    const rank = type.kind === 'tensor' ? type.shape.length : 0;
    const dims = Array.from({ length: rank }, (_, d): AxisType => `S(${d})`);
    // A dim that the region's own axes cut would be cut in another order than the mesh has.
    return ['R', ...dims.filter((cut) => !inSpecs[i].includes(cut))];
  });
  if (choices.reduce((n, list) => n * list.length, 1) > MOST_TRIED) return [];
  let tried: AxisType[][] = [[]];
  for (const list of choices) tried = tried.flatMap((before) => list.map((type) => [...before, type]));
  const other: TypedAxis = { name: 'other__', size: 2, meaning: 'strict' };
  const typed: TypedAxis[] = [other, ...axes.flatMap(({ name, size }): TypedAxis[] => (size > 1 ? [{ name, size, meaning: 'manual' }] : []))]; // prettier-ignore
  return tried.flatMap((types): Rule[] => {
    if (types.every((type) => type === 'R')) return [];
    const typer = new Typer(table, typed, { autoCast: false });
    const inputs = types.map((type, i): Known[] => [type, ...axes.flatMap(({ size }, a): Known[] => (size === 1 ? [] : [cutOf(inSpecs[i][a] as AxisType) === undefined ? (inSpecs[i][a] as AxisType) : 'V']))]); // prettier-ignore
    const found = typer.run(body, inputs);
    if (typer.violations.length > 0) return [];
    const results = found.map((t, k): AxisType | undefined => {
      const type = t === null || isTuple(t) ? undefined : t[0];
      const plain = type === 'number' ? 'R' : type;
      return plain === undefined || (cutOf(plain) !== undefined && outSpecs[k].includes(plain)) ? undefined : plain;
    });
    const known = results.flatMap((type) => (type === undefined || (type !== 'R' && cutOf(type) === undefined) ? [] : [type])); // prettier-ignore
    if (known.length !== results.length) return [];
    return [
      rule(
        types.map((type, i) => slotOf(type, `in${i}`)),
        known.map((type, k) => slotOf(type, `out${k}`)),
        { origin: 'ext', rewrite: 'local-map' },
      ),
    ];
  });
}
