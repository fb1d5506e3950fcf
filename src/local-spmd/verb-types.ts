/**
 * Types the verbs of typed per-device code: collectives, casts and statements. A call whose operand
 * does not have the type that its verb needs is a violation. Source:
 * `mesh/local-types/primitives.ts`.
 */
import { ShardwrightError } from '../errors.ts';
import type { Frame } from '../graph/interpret.ts';
import type { Graph, Node, ValueType } from '../graph/types.ts';
import { isRef } from '../graph/value.ts';
import { afterVerb, touchedBy } from '../mesh/local-types/other-axes.ts';
import { primitive, type PrimitiveName, redistribution } from '../mesh/local-types/primitives.ts';
import { type AxisType, chunksOf, cutOf, isAxisType } from '../mesh/local-types/types.ts';
import { sourceWords, verbAxes } from '../ops/spmd/operators.ts';
import { product } from '../product.ts';
import { isTuple, type Known, statedTypes, type Typed, typeIn, type Typing } from './typed.ts';

/** Type of the result of a verb. */
export function verbTypes(typer: Typing, node: Node, name: string, frame: Frame<Typed>): Typed {
  if (name === 'axis_index')
    return typer.axes.map((axis) => (axis.name === node.args[0] ? 'V' : 'number'));
  const [operand, axisName] = node.args;
  if (!isRef(operand)) return typer.everywhere(undefined);
  const given = frame.value(operand.name);
  const before: readonly Known[] = isTuple(given) ? typer.everywhere(undefined) : given;
  if (name === 'assert_type') return asserted(typer, node, operand.name, before, frame);
  const names = typeof axisName === 'string' ? verbAxes(axisName) : [];
  // An axis of size 1 has no types.
  const group = typer.axes.flatMap((axis, a) => (names.includes(axis.name) ? [a] : []));
  const site = { node, name, operand: operand.name, graph: frame.graph };
  return group.reduce<readonly Known[]>(
    (own, at) => {
      const call = new VerbCall(typer, site, own, at, group);
      if (name === 'out_partial') return call.outPartial();
      return name === 'permute' ? call.permute() : call.collective();
    },
    otherAxes(typer, site, before, group[0] ?? -1),
  );
}

/** Where a verb is called, and on what. */
interface VerbSite {
  readonly node: Node;
  readonly name: string;
  readonly operand: string;
  readonly graph: Graph;
}

/** A call of a verb on one axis. */
class VerbCall {
  private readonly axis: Typing['axes'][number];
  private readonly now: Known;
  private readonly isGlobal: boolean;

  /**
   * @param own types of the operand by axis, those of other axes as the verb leaves them
   * @param group the axes that the verb goes over
   */
  constructor(
    private readonly typer: Typing,
    private readonly site: VerbSite,
    private readonly own: readonly Known[],
    private readonly at: number,
    private readonly group: readonly number[],
  ) {
    this.axis = typer.axes[at];
    this.now = own[at];
    this.isGlobal = site.name === 'redistribute';
  }

  outPartial(): readonly Known[] {
    const { now, axis } = this;
    const { operand } = this.site;
    if (axis.meaning === 'lint' || now === undefined || now === 'P' || now === 'V')
      return this.become('P');
    return isCut(now)
      ? this.violate(
          `outPartial of ${now}`,
          `pieces of dim ${chunksOf(now as AxisType)?.dim} are not addends of a sum`,
          `sum over that dim first, or all_gather(${operand}, "${axis.name}", ${now}→R)`,
        )
      : this.violate(
          `outPartial of ${now}`,
          'the value is equal on all ranks, so that it would count once for each',
          `leave outPartial out, or convert(${operand}, "${axis.name}", R→P)`,
        );
  }

  permute(): readonly Known[] {
    const { now, axis, typer } = this;
    const { operand } = this.site;
    if (now === undefined || now === 'V' || axis.meaning === 'lint') return this.become('V');
    if (now === 'number' || (now === 'I' && typer.autoCast)) {
      this.cast();
      return this.become('V');
    }
    return this.violate(
      'permute',
      `permute sends pieces, the operand is ${now}`,
      `reinterpret(${operand}, "${axis.name}", ${now}→V)`,
    );
  }

  /** A verb that states the types that it takes and gives. */
  collective(): readonly Known[] {
    const { args } = this.site.node;
    const dst = args[4];
    const words = typeof args[3] === 'string' ? sourceWords(args[3]) : [];
    const takesSeveral = words.length > 1;
    const src = takesSeveral ? taken(words, this.now) : args[3];
    if (takesSeveral && src === undefined)
      return this.misfit(
        words.join(', '),
        `the operand must be ${words.join(' or ')}, got ${this.now}`,
      );
    if (!isAxisType(src) || !isAxisType(dst))
      return this.violate('verb', 'the call names no types', 'state src and dst');
    let { now } = this;
    if (takesSeveral) {
      settle(this.typer, this.site.graph, this.site.node, src);
      // What is equal on all ranks is read as what varies, as `shard_map` does.
      if (now === 'I' && src !== 'I') {
        if (!this.typer.autoCast) return this.misfit(words[0], `the operand must vary, got I`);
        this.cast();
        now = 'V';
      }
      if (src === dst) return this.become(dst);
    }
    if (this.axis.meaning === 'lint') return this.become(dst);
    const refused =
      this.refusedRegion() ?? this.refusedRow(src, dst) ?? this.refusedSource(now, src, dst);
    if (refused !== undefined) return refused;
    if (!this.isGlobal) return this.become(cutOf(dst) !== undefined ? 'V' : dst);
    return this.refusedCut(src, dst) ?? this.become(dst);
  }

  /** Redistributions are for global axes, all other verbs for axes that are per device. */
  private refusedRegion(): readonly Known[] | undefined {
    const { axis, isGlobal } = this;
    if (isGlobal !== (axis.meaning === 'manual')) return undefined;
    return isGlobal
      ? this.violate(
          'region',
          'the whole value is redistributed where the axis is per device',
          'use the collective itself',
        )
      : this.violate(
          'region',
          'a verb of per-device code is called where the axis is global',
          `write it in a localMap over "${axis.name}", or redistribute`,
        );
  }

  /** The table has no row for these types. */
  private refusedRow(src: AxisType, dst: AxisType): readonly Known[] | undefined {
    const { name } = this.site;
    const options = { axis: this.axis.name, expert: true };
    try {
      if (this.isGlobal) redistribution(src, dst, options);
      else primitive(name as PrimitiveName, src, dst, options);
      return undefined;
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      return this.violate(name, error.message, error.details.hint ?? '');
    }
  }

  /** The operand is of another type than the verb says. */
  private refusedSource(now: Known, src: AxisType, dst: AxisType): readonly Known[] | undefined {
    if (now === undefined) return undefined;
    const fits =
      now === 'number' ? src !== 'P' && cutOf(src) === undefined : matches(now, src, this.isGlobal);
    if (fits) return undefined;
    const { name, operand } = this.site;
    return this.violate(
      `src ${src}`,
      `src must be ${src === 'P' || now === 'number' ? src : `what the operand is`}, got ${now}`,
      wrongSource(name as PrimitiveName, now, dst, operand, this.axis.name),
    );
  }

  /** Only the last axis that cuts a dim may change its cut, and every rank must get a row. */
  private refusedCut(src: AxisType, dst: AxisType): readonly Known[] | undefined {
    const { typer, own, group, axis } = this;
    for (const dim of new Set([cutOf(src), cutOf(dst)])) {
      const blocked = laterCut(typer, own, group, dim);
      if (blocked !== undefined)
        return this.violate(
          'last axis',
          `${axis.name} is not the last axis that cuts dim ${dim}: ${blocked} cuts it further`,
          `gather ${blocked} first, or plan the whole spec`,
        );
    }
    const dim = cutOf(dst);
    const rows = rowsLeft(typer, typeIn(this.site.graph, this.site.operand), own, group, dim);
    const ranks = product(group.map((a) => typer.axes[a].size));
    if (rows >= ranks) return undefined;
    const names = group.map((a) => typer.axes[a].name).join(', ');
    return this.violate(
      `${dst} of ${rows} rows`,
      `dim ${dim} has ${rows} rows to cut, fewer than the ${ranks} ranks of ${names}`,
      'cut a larger dim, or keep the value whole',
    );
  }

  /** The types of the operand with that of the axis replaced. */
  private become(type: Known): readonly Known[] {
    return this.own.map((t, a) => (a === this.at ? type : t));
  }

  private cast(): void {
    const { graph, node, operand } = this.site;
    this.typer.cast(graph, node, operand, this.at, 'V');
  }

  private violate(rule: string, reason: string, fix: string): readonly Known[] {
    const { graph, node, operand } = this.site;
    this.typer.violate(graph, node, this.at, { rule, reason, fix, operands: [operand] });
    return this.become(undefined);
  }

  /** A verb under a JAX name does not take the operand. */
  private misfit(takes: string, reason: string): readonly Known[] {
    const fix = fitting(this.now, this.site.operand, this.axis.name);
    return this.violate(`takes ${takes}`, reason, fix);
  }
}

/**
 * The operand's types with those of other global axes as the verb leaves them. Verbs of global
 * programs leave them as they are.
 */
function otherAxes(
  typer: Typing,
  { node, name, operand, graph }: VerbSite,
  own: readonly Known[],
  at: number,
): readonly Known[] {
  const [, , size, word, dst] = node.args;
  const src = typeof word === 'string' ? sourceWords(word)[0] : undefined;
  if (GLOBAL.has(name) || typeof size !== 'number' || !isAxisType(src) || !isAxisType(dst))
    return own;
  const touched = touchedBy(name, src, dst);
  return own.map((type, a): Known => {
    const { meaning, name: other } = typer.axes[a];
    if (a === at || meaning === 'manual' || meaning === 'lint') return type;
    if (type === undefined || type === 'number') return type;
    const after = afterVerb(type, touched, size);
    if (after === undefined)
      typer.violate(graph, node, a, {
        rule: `${type} cut again`,
        operands: [operand],
        reason: `the verb cuts the dim that ${other} cuts already, in another order`,
        fix: `redistribute(${operand}, "${other}", ${type}→R) before the region`,
      });
    return after;
  });
}

/** Verbs of whole values. */
const GLOBAL: ReadonlySet<string> = new Set(['redistribute', 'out_partial']);

/**
 * The type, of those that a verb takes, as which it takes its operand; undefined where it does not
 * take it.
 */
function taken(words: readonly string[], now: Known): string | undefined {
  const [plain] = words;
  if (now === undefined || now === 'number' || now === 'V')
    return isVarying(plain) || now !== 'V' ? plain : undefined;
  if (!words.includes(now)) return undefined;
  return now === 'I' && isVarying(plain) ? plain : now;
}

const isVarying = (word: string): boolean => word === 'V' || word.startsWith('S(');

function settle(typer: Typing, graph: Graph, node: Node, src: AxisType): void {
  const own = typer.settled.get(graph) ?? new Map<string, AxisType>();
  typer.settled.set(graph, own.set(node.name, src));
}

/** The edit for an operand that a verb under a JAX name does not take. */
function fitting(now: Known, x: string, axis: string): string {
  if (now === 'V') return `${x} varies already: leave the cast out`;
  if (now === 'P') return `all_reduce(${x}, "${axis}", P→I)`;
  return `reinterpret(${x}, "${axis}", ${now}→V)`;
}

function matches(now: AxisType | 'number', src: AxisType, global: boolean): boolean {
  return now === src || (!global && now === 'V' && cutOf(src) !== undefined);
}

/** The edit for an operand of another type than the verb says. */
function wrongSource(
  op: PrimitiveName,
  now: AxisType | 'number',
  dst: AxisType,
  x: string,
  axis: string,
): string {
  if ((op === 'all_reduce' || op === 'reduce_scatter') && now === 'V')
    return `reinterpret(${x}, "${axis}", V→P)`;
  if (now === 'number') return 'a plain number is the same everywhere: use it as it is';
  try {
    primitive(op, now, dst, { expert: true });
    return `write src: ${now}`;
  } catch (error) {
    return error instanceof ShardwrightError ? (error.details.hint ?? '') : '';
  }
}

function isCut(type: Known): boolean {
  return cutDim(type) !== undefined;
}

function cutDim(type: Known): number | undefined {
  return type === undefined || type === 'number' ? undefined : chunksOf(type)?.dim;
}

/** Rows of a dim on each rank of the axes other than those that a verb goes over. */
function rowsLeft(
  typer: Typing,
  type: ValueType,
  own: readonly Known[],
  group: readonly number[],
  dim: number | undefined,
): number {
  const size = dim === undefined || type.kind !== 'tensor' ? Infinity : type.shape[dim];
  const rows = typeof size === 'number' ? size : Infinity;
  return typer.axes.reduce(
    (left, axis, a) =>
      !group.includes(a) && cutDim(own[a]) === dim ? Math.floor(left / axis.size) : left,
    rows,
  );
}

/** An axis after those of a verb in the mesh that cuts the same dim. */
function laterCut(
  typer: Typing,
  own: readonly Known[],
  group: readonly number[],
  dim: number | undefined,
): string | undefined {
  if (dim === undefined) return undefined;
  const later = typer.axes.findIndex((_, a) => a > Math.max(...group) && cutDim(own[a]) === dim);
  return later < 0 ? undefined : typer.axes[later].name;
}

/**
 * A statement gives a type to what has none; to what has one it may only repeat it, or say how
 * pieces assemble.
 */
function asserted(
  typer: Typing,
  node: Node,
  operand: string,
  own: readonly Known[],
  { graph }: Frame<Typed>,
): Typed {
  const stated = statedTypes(node.args[1]);
  return typer.axes.map(({ name }, a): Known => {
    const [now, wanted] = [own[a], stated.get(name)];
    if (wanted === undefined) return now;
    if (now === undefined || now === 'number' || now === wanted) return wanted;
    if (now === 'V' && cutOf(wanted) !== undefined) return wanted;
    typer.violate(graph, node, a, {
      rule: 'conflicting type',
      operands: [operand],
      reason: `the value is ${now}, the statement says ${wanted}`,
      fix: `state ${now}, or redistribute(${operand}, "${name}", ${now}→${wanted})`,
    });
    return wanted;
  });
}
