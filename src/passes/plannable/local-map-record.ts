/**
 * Makes a `local_map` call an operator for planning. Its rules are the specs on the region's own
 * axes, and on all other axes the cuts that the body passes on, found by typing it on one of them;
 * a combination of rules holds where the body types on all axes together, as the lowering types it.
 * Its collectives are priced with the rule of their axis, its work is that of the body on one
 * device.
 */
import { defined } from '../../defined.ts';
import { type LocalMapCall, localMapCall, nestedAxes } from '../../graph/local-map.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { exampleShape } from '../../graph/value.ts';
import { typedAxes, typeGraph } from '../../local-spmd/type-graph.ts';
import { isTuple, type Known, type TypedAxis } from '../../local-spmd/typed.ts';
import { Typer } from '../../local-spmd/typer.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { type AxisType, cutOf, typeOfPlacement } from '../../mesh/local-types/types.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { StridedShard } from '../../mesh/placements/shards/strided.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { defineOp, type OperatorRecord } from '../../ops/record/record.ts';
import {
  type InternalCollective,
  P,
  R,
  type Rule,
  rule,
  type RuleSlot,
  S,
} from '../../ops/record/rule.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { product } from '../../product.ts';
import { BodyWork } from './body-work.ts';

/** A region that was opened: its call, and the body that each device runs. */
export interface OpenedRegion {
  readonly call: Node;
  readonly body: Graph;
}

/** Assignments of cuts to inputs that are tried on other axes. */
const MOST_TRIED = 256;

/** Any axis of the program that is none of a region's. */
const OTHER = 'other__';

/** @param note told what was not tried, in one sentence */
export function localMapRecord(
  target: string,
  node: Node,
  body: Graph,
  table: OperatorTable,
  mesh: DeviceMesh,
  note: (text: string) => void = () => undefined,
): OperatorRecord {
  const call = localMapCall(node);
  const { axes, inSpecs } = call;
  const items = node.type.kind === 'tuple' ? node.type.items : [];
  const metas = items.flatMap((type) =>
    type.kind === 'tensor' ? [{ dtype: type.dtype, shape: exampleShape(type) }] : [],
  );
  const others = passedOn(node, body, table, mesh, note);
  const typer = new Typer(
    table,
    axes.flatMap(({ name, size }): TypedAxis[] =>
      size > 1 ? [{ name, size, meaning: 'manual' }] : [],
    ),
  );
  typer.run(
    body,
    inSpecs.map((spec) => axes.flatMap(({ size }, a) => (size > 1 ? [inside(spec[a])] : []))),
  );
  const cuts = others.filter(({ inputs }) => inputs.some((type) => cutOf(type) !== undefined));
  const work = new BodyWork(body, table, typer, cuts, note);
  const written = work.at([]).collectives;
  const collectivesOn = (name: string): InternalCollective[] =>
    written.flatMap(({ kind, axis, site }, c): InternalCollective[] =>
      axis === name ? [{ kind, site, bytes: (ctx) => work.of(ctx).collectives[c].bytes }] : [],
    );
  return defineOp(target, {
    schema: 'Tensor[] operands',
    cls: 'other',
    results: 'tuple',
    infer: () => metas,
    shard: () => [
      ...ownRules(call, collectivesOn),
      ...others.map(({ rule, axis }) =>
        axis === undefined ? rule : { ...rule, collectives: collectivesOn(axis) },
      ),
    ],
    holds: (space, ids) => holds(call, body, table, space, ids),
    flops: (ctx) => ({ matrix: work.of(ctx).matrix, vector: work.of(ctx).vector }),
    bytes: (ctx) => work.of(ctx).bytes,
  });
}

/** The rules on the region's own axes, one for each: its specs. */
function ownRules(
  { axes, inSpecs, outSpecs }: LocalMapCall,
  collectivesOn: (axis: string) => readonly InternalCollective[],
): Rule[] {
  return axes.flatMap(({ name, size }, a): Rule[] =>
    size === 1
      ? []
      : [
          rule(
            inSpecs.map((spec, i) => slotOf(spec[a], `in${i}`)),
            outSpecs.map((spec, k) => slotOf(spec[a], `out${k}`)),
            {
              origin: 'ext',
              axes: [name],
              rewrite: 'local-map',
              collectives: collectivesOn(name),
            },
          ),
        ],
  );
}

/** The type of an operand inside the region, where a cut says nothing. */
function inside(type: string): AxisType {
  return cutOf(type as AxisType) === undefined ? (type as AxisType) : 'V';
}

/** Cuts of the operands have nothing to do with each other: each is a group of its own. */
function slotOf(type: string, group: string): RuleSlot {
  const dim = cutOf(type as AxisType);
  if (dim !== undefined) return S(dim, { even: true, slicing: 'contiguous', tie: group });
  return type === 'P' ? P('sum') : R;
}

/**
 * Types of the operands inside of a region by mesh dim: on its own axes what the specs say, on the
 * others how they are placed. Undefined for a placement that is not a type.
 */
export function operandTypes(
  { axes, inSpecs }: LocalMapCall,
  space: ShardingSpace,
  inputs: readonly number[],
): (AxisType | undefined)[][] {
  return inputs.map((id, i) =>
    space.get(id).placements.map((placement, m) => {
      const a = axes.findIndex(({ name }) => name === space.mesh.names[m]);
      return a >= 0 ? inside(inSpecs[i][a]) : plainType(placement);
    }),
  );
}

/** Type of a placement at the boundary of a region: no cut behind a dim that is whole. */
function plainType(placement: Placement): AxisType | undefined {
  return placement instanceof StridedShard ? undefined : typeOfPlacement(placement);
}

/**
 * Tells whether the body passes on what the operands are on all axes that are none of the region's,
 * and its results are then as they are placed. On a dim that both cut, the region's axes must come
 * first in the mesh: the others cut what one rank of the region holds.
 */
function holds(
  call: LocalMapCall,
  body: Graph,
  table: OperatorTable,
  space: ShardingSpace,
  ids: readonly number[],
): boolean {
  const { mesh } = space;
  const own = call.axes.flatMap(({ name, size }, a) =>
    size > 1 && mesh.names.includes(name) ? [[a, mesh.indexOf(name)] as const] : [],
  );
  const isOwn = (m: number): boolean => call.axes.some(({ name }) => name === mesh.names[m]);
  const inOrder = [...call.inSpecs, ...call.outSpecs].every((spec, t) =>
    space
      .get(ids[t])
      .placements.every(
        ({ dim }, m) =>
          dim === undefined ||
          isOwn(m) ||
          own.every(([a, at]) => at < m || cutOf(spec[a] as AxisType) !== dim),
      ),
  );
  if (!inOrder) return false;
  const inputs = operandTypes(call, space, ids.slice(0, call.inSpecs.length));
  if (inputs.some((types) => types.includes(undefined))) return false;
  const axes = typedAxes(mesh, (axis) => (isOwn(mesh.indexOf(axis)) ? 'manual' : 'strict'));
  const at = axes.map(({ name }) => mesh.indexOf(name));
  const typer = typeGraph(
    table,
    body,
    axes,
    inputs.map((types) => at.map((m) => types[m])),
    { pending: true },
  );
  if (typer.violations.length > 0) return false;
  return body.outputs.every(({ value }, k) => {
    const typed = value === null ? undefined : typer.types.get(body)?.get(value);
    if (typed === undefined || isTuple(typed)) return false;
    const { placements } = space.get(ids[call.inSpecs.length + k]);
    return at.every((m, a) => {
      const type = typed[a] === 'number' ? 'R' : typed[a];
      return isOwn(m) || type === plainType(placements[m]);
    });
  });
}

/** A cut that the body passes on: its rule, and what each value of the body is on the axis then. */
interface PassedCut {
  readonly rule: Rule;
  /** The axis that it is for, where a region inside of this one is per device on it. */
  readonly axis?: string;
  readonly inputs: readonly AxisType[];
  readonly typer: Typer;
}

/**
 * On an axis that is none of the region's: inputs cut so that the body passes the cuts on, and what
 * its results are then.
 */
function passedOn(
  node: Node,
  body: Graph,
  table: OperatorTable,
  mesh: DeviceMesh,
  note: (text: string) => void,
): PassedCut[] {
  const { axes, inSpecs } = localMapCall(node);
  const placeholders = body.nodes.filter(({ kind }) => kind === 'placeholder');
  const own = axes.flatMap(({ name, size }): TypedAxis[] =>
    size > 1 ? [{ name, size, meaning: 'manual' }] : [],
  );
  const others = mesh.dims.filter(
    ({ name, size }) => size > 1 && axes.every((axis) => axis.name !== name),
  );
  const inner = new Set(nestedAxes(body, axes).map(({ name }) => name));
  const plain = new Set(others.flatMap(({ name, size }) => (inner.has(name) ? [] : [size])));
  const tried = assignments(node, placeholders, mesh, note);
  const whole = placeholders.map((): AxisType => 'R');
  const asked = [
    ...[...plain].flatMap((size) => tried.map((types) => ({ size, types, axis: undefined }))),
    // An inner region may want its operands whole as well.
    ...others.flatMap(({ name: axis, size }) =>
      inner.has(axis) ? [whole, ...tried].map((types) => ({ size, types, axis })) : [],
    ),
  ];
  const found = new Map<string, PassedCut>();
  for (const { size, types, axis } of asked) {
    const key = `${axis ?? ''} ${types.join()}`;
    const typer = new Typer(table, [{ name: axis ?? OTHER, size, meaning: 'strict' }, ...own], {
      autoCast: false,
      pending: true,
    });
    const results = typer.run(
      body,
      types.map((type, i): Known[] => [
        type,
        ...axes.flatMap((axis, a): Known[] => (axis.size === 1 ? [] : [inside(inSpecs[i][a])])),
      ]),
    );
    if (typer.violations.length > 0 || found.has(key)) continue;
    const left = results.flatMap((typed): AxisType[] => {
      const type = typed === null || isTuple(typed) ? undefined : typed[0];
      if (type === 'number') return ['R'];
      return type === 'R' || type === 'P' || (type !== undefined && cutOf(type) !== undefined)
        ? [type]
        : [];
    });
    if (left.length < results.length) continue;
    const made = rule(
      types.map((type, i) => slotOf(type, `in${i}`)),
      left.map((type, k) => slotOf(type, `out${k}`)),
      { origin: 'ext', rewrite: 'local-map', ...(axis === undefined ? {} : { axes: [axis] }) },
    );
    found.set(key, { rule: made, inputs: types, typer, ...defined({ axis }) });
  }
  return [...found.values()];
}

/**
 * Cuts of the inputs on one axis that are tried: all of them where they are few, else those of dims
 * of one size, which are one logical dim.
 */
function assignments(
  node: Node,
  placeholders: readonly Node[],
  mesh: DeviceMesh,
  note: (text: string) => void,
): AxisType[][] {
  const { axes, inSpecs } = localMapCall(node);
  // Of a dim that the region's own axes cut, only mesh dims after them cut what one rank holds.
  const isLast = (i: number, d: number): boolean =>
    axes.some(({ name }, a) => inSpecs[i][a] === `S(${d})` && mesh.names.at(-1) === name);
  const free = placeholders.map(({ type }, i): readonly (readonly [AxisType, number])[] => {
    const shape = type.kind === 'tensor' ? exampleShape(type) : [];
    return shape.flatMap((size, d) =>
      size > 1 && !isLast(i, d) ? [[`S(${d})`, size] as const] : [],
    );
  });
  const combinations = (choices: readonly (readonly AxisType[])[]): AxisType[][] =>
    choices.reduce<AxisType[][]>(
      (tried, list) => tried.flatMap((before) => list.map((type) => [...before, type])),
      [[]],
    );
  const count = (choices: readonly (readonly AxisType[])[]): number =>
    product(choices.map((list) => list.length));
  const isCut = (types: readonly AxisType[]): boolean => types.some((type) => type !== 'R');
  const all = free.map((list): AxisType[] => ['R', ...list.map(([type]) => type)]);
  if (count(all) <= MOST_TRIED) return combinations(all).filter(isCut);
  const sizes = [...new Set(free.flatMap((list) => list.map(([, size]) => size)))];
  return sizes.flatMap((size) => {
    const own = free.map((list): AxisType[] => [
      'R',
      ...list.flatMap(([type, s]) => (s === size ? [type] : [])),
    ]);
    if (count(own) <= MOST_TRIED * 4) return combinations(own).filter(isCut);
    note(
      `Cuts of the dims of size ${size} through ${node.name} were not tried: its ` +
        `${placeholders.length} inputs have too many.`,
    );
    return [];
  });
}
