/**
 * A region of per-device code as an operator for planning. In: a `local_map` call and its body.
 * Out: a record whose rules are the specs on the region's own axes, and on all other axes the cuts
 * that the body passes on unchanged, found by typing it. Its collectives are priced with the rule
 * of their axis, its work is that of the body on one device.
 */
import { localMapCall } from '../../graph/local-map.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { isTuple, type Known, type TypedAxis } from '../../local-spmd/typed.ts';
import { Typer } from '../../local-spmd/typer.ts';
import { type AxisType, cutOf } from '../../mesh/local-types/types.ts';
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
import { shapeOf } from '../sizes/dims.ts';
import { BodyWork } from './body-work.ts';

/** A region that was opened: its call, and the body that each device runs. */
export interface OpenedRegion {
  readonly call: Node;
  readonly body: Graph;
}

/** Assignments of cuts to inputs that are tried on other axes. */
const MOST_TRIED = 256;

/** @param note told what was not tried, in one sentence */
export function localMapRecord(
  target: string,
  node: Node,
  body: Graph,
  table: OperatorTable,
  note: (text: string) => void = () => undefined,
): OperatorRecord {
  const { axes, inSpecs, outSpecs } = localMapCall(node);
  const items = node.type.kind === 'tuple' ? node.type.items : [];
  const metas = items.flatMap((type) =>
    type.kind === 'tensor' ? [{ dtype: type.dtype, shape: shapeOf(type) }] : [],
  );
  const others = passedOn(node, body, table, note);
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
  const work = new BodyWork(body, table, typer, others, note);
  const written = work.at([]).collectives;
  const own = axes.flatMap(({ name, size }, a): Rule[] =>
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
              collectives: written.flatMap(({ kind, axis, site }, c): InternalCollective[] =>
                axis === name
                  ? [{ kind, site, bytes: (ctx) => work.of(ctx).collectives[c].bytes }]
                  : [],
              ),
            },
          ),
        ],
  );
  return defineOp(target, {
    schema: 'Tensor[] operands',
    cls: 'other',
    results: 'tuple',
    infer: () => metas,
    shard: () => [...own, ...others.map((other) => other.rule)],
    flops: (ctx) => ({ matrix: work.of(ctx).matrix, vector: work.of(ctx).vector }),
    bytes: (ctx) => work.of(ctx).bytes,
  });
}

/** What an operand of a type is inside the region: a cut says nothing there. */
function inside(type: string): AxisType {
  return cutOf(type as AxisType) === undefined ? (type as AxisType) : 'V';
}

/** Cuts of the operands have nothing to do with each other: each is a group of its own. */
function slotOf(type: string, group: string): RuleSlot {
  const dim = cutOf(type as AxisType);
  if (dim !== undefined) return S(dim, { even: true, slicing: 'contiguous', tie: group });
  return type === 'P' ? P('sum') : R;
}

/** A cut that the body passes on: its rule, and what each value of the body is on the axis then. */
interface PassedCut {
  readonly rule: Rule;
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
  note: (text: string) => void,
): PassedCut[] {
  const { axes, inSpecs, outSpecs } = localMapCall(node);
  const placeholders = body.nodes.filter(({ kind }) => kind === 'placeholder');
  const other: TypedAxis = { name: 'other__', size: 2, meaning: 'strict' };
  const typed: TypedAxis[] = [
    other,
    ...axes.flatMap(({ name, size }): TypedAxis[] =>
      size > 1 ? [{ name, size, meaning: 'manual' }] : [],
    ),
  ];
  return assignments(node, placeholders, inSpecs, note).flatMap((types): PassedCut[] => {
    const typer = new Typer(table, typed, { autoCast: false, pending: true });
    const inputs = types.map((type, i): Known[] => [
      type,
      ...axes.flatMap(({ size }, a): Known[] => (size === 1 ? [] : [inside(inSpecs[i][a])])),
    ]);
    const found = typer.run(body, inputs);
    if (typer.violations.length > 0) return [];
    const results = found.map((t, k): AxisType | undefined => {
      const type = t === null || isTuple(t) ? undefined : t[0];
      const plain = type === 'number' ? 'R' : type;
      return plain === undefined || (cutOf(plain) !== undefined && outSpecs[k].includes(plain))
        ? undefined
        : plain;
    });
    const known = results.flatMap((type) =>
      type === undefined || (type !== 'R' && type !== 'P' && cutOf(type) === undefined)
        ? []
        : [type],
    );
    if (known.length !== results.length) return [];
    const made = rule(
      types.map((type, i) => slotOf(type, `in${i}`)),
      known.map((type, k) => slotOf(type, `out${k}`)),
      { origin: 'ext', rewrite: 'local-map' },
    );
    return [{ rule: made, inputs: types, typer }];
  });
}

/**
 * Cuts of the inputs on one axis that are tried: all of them where they are few, else those of dims
 * of one size, which are one logical dim.
 */
function assignments(
  node: Node,
  placeholders: readonly Node[],
  inSpecs: readonly (readonly string[])[],
  note: (text: string) => void,
): AxisType[][] {
  const free = placeholders.map(({ type }, i): readonly (readonly [AxisType, number])[] => {
    const shape = type.kind === 'tensor' ? shapeOf(type) : [];
    // A dim that the region's own axes cut would be cut in another order than the mesh has.
    return shape.flatMap((size, d) =>
      size > 1 && !inSpecs[i].includes(`S(${d})`) ? [[`S(${d})`, size] as const] : [],
    );
  });
  const product = (choices: readonly (readonly AxisType[])[]): AxisType[][] =>
    choices.reduce<AxisType[][]>(
      (tried, list) => tried.flatMap((before) => list.map((type) => [...before, type])),
      [[]],
    );
  const count = (choices: readonly (readonly AxisType[])[]): number =>
    choices.reduce((n, list) => n * list.length, 1);
  const isCut = (types: readonly AxisType[]): boolean => types.some((type) => type !== 'R');
  const all = free.map((list): AxisType[] => ['R', ...list.map(([type]) => type)]);
  if (count(all) <= MOST_TRIED) return product(all).filter(isCut);
  const sizes = [...new Set(free.flatMap((list) => list.map(([, size]) => size)))];
  return sizes.flatMap((size) => {
    const own = free.map((list): AxisType[] => [
      'R',
      ...list.flatMap(([type, s]) => (s === size ? [type] : [])),
    ]);
    if (count(own) <= MOST_TRIED * 4) return product(own).filter(isCut);
    note(
      `Cuts of the dims of size ${size} through ${node.name} were not tried: its ` +
        `${placeholders.length} inputs have too many.`,
    );
    return [];
  });
}
