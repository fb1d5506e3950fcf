/**
 * Types of the verbs of typed per-device code: collectives, casts and statements. In: a call of one
 * of them and the type of its operand. Out: the type of its result, or a violation. Source:
 * `mesh/local-types/primitives.ts`.
 */
import { ShardwrightError } from '../errors.ts';
import type { Frame } from '../graph/interpret.ts';
import type { Graph, Node, ValueType } from '../graph/types.ts';
import { isRef } from '../graph/value.ts';
import { afterVerb, touchedBy } from '../mesh/local-types/other-axes.ts';
import { primitive, type PrimitiveName, redistribution } from '../mesh/local-types/primitives.ts';
import { type AxisType, chunksOf, cutOf, isAxisType } from '../mesh/local-types/types.ts';
import { sourceWords } from '../ops/spmd/operators.ts';
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
  const at = typer.axes.findIndex((axis) => axis.name === axisName);
  const own = otherAxes(typer, node, name, operand.name, before, at, frame);
  // An axis of size 1 has no types.
  if (at < 0) return own;
  const { graph } = frame;
  const axis = typer.axes[at];
  const become = (type: Known): Typed => own.map((t, a) => (a === at ? type : t));
  const violate = (rule: string, reason: string, fix: string): Typed => {
    typer.violate(graph, node, at, { rule, reason, fix, operands: [operand.name] });
    return become(undefined);
  };
  let now = own[at];
  const lint = axis.meaning === 'lint';
  if (name === 'out_partial') {
    if (lint || now === undefined || now === 'P' || now === 'V') return become('P');
    return violate(
      `outPartial of ${now}`,
      isCut(now)
        ? `pieces of dim ${chunksOf(now as AxisType)?.dim} are not addends of a sum`
        : 'the value is equal on all ranks, so that it would count once for each',
      isCut(now)
        ? `sum over that dim first, or all_gather(${operand.name}, "${axis.name}", ${now}→R)`
        : `leave outPartial out, or convert(${operand.name}, "${axis.name}", R→P)`,
    );
  }
  if (name === 'permute') {
    if (now === undefined || now === 'V' || lint) return become('V');
    if (now === 'number' || (now === 'I' && typer.autoCast)) {
      typer.cast(graph, node, operand.name, at, 'V');
      return become('V');
    }
    return violate(
      'permute',
      `permute sends pieces, the operand is ${now}`,
      `reinterpret(${operand.name}, "${axis.name}", ${now}→V)`,
    );
  }
  const words = typeof node.args[3] === 'string' ? sourceWords(node.args[3]) : [];
  const [src, dst] = [words.length > 1 ? taken(words, now) : node.args[3], node.args[4]];
  if (words.length > 1 && src === undefined)
    return violate(
      `takes ${words.join(', ')}`,
      `the operand must be ${words.join(' or ')}, got ${now}`,
      fitting(now, operand.name, axis.name),
    );
  if (!isAxisType(src) || !isAxisType(dst))
    return violate('verb', 'the call names no types', 'state src and dst');
  if (words.length > 1) {
    settle(typer, graph, node, src);
    // What is equal on all ranks is read as what varies, as `shard_map` does.
    if (now === 'I' && src !== 'I') {
      if (!typer.autoCast)
        return violate(
          `takes ${words[0]}`,
          `the operand must vary, got I`,
          fitting(now, operand.name, axis.name),
        );
      typer.cast(graph, node, operand.name, at, 'V');
      now = 'V';
    }
    if (src === dst) return become(dst);
  }
  const global = name === 'redistribute';
  if (lint) return become(dst);
  if (global === (axis.meaning === 'manual'))
    return violate(
      'region',
      global
        ? 'a redistribution of the whole value stands where the axis is per device'
        : 'a verb of per-device code stands where the axis is global',
      global
        ? 'use the collective itself'
        : `write it in a localMap over "${axis.name}", or redistribute`,
    );
  try {
    if (global) redistribution(src, dst, { axis: axis.name, expert: true });
    else primitive(name as PrimitiveName, src, dst, { axis: axis.name, expert: true });
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    return violate(name, error.message, error.details.hint ?? '');
  }
  const fits =
    now === undefined || now === 'number'
      ? src !== 'P' && cutOf(src) === undefined
      : matches(now, src, global);
  if (now !== undefined && !fits) {
    const hint = wrongSource(name as PrimitiveName, now, dst, operand.name, axis.name);
    return violate(
      `src ${src}`,
      `src must be ${src === 'P' || now === 'number' ? src : `what the operand is`}, got ${now}`,
      hint,
    );
  }
  if (global) {
    for (const dim of new Set([cutOf(src), cutOf(dst)])) {
      const blocked = laterCut(typer, own, at, dim);
      if (blocked !== undefined)
        return violate(
          'last axis',
          `${axis.name} is not the last axis that cuts dim ${dim}: ${blocked} cuts it further`,
          `gather ${blocked} first, or plan the whole spec`,
        );
    }
    const rows = rowsLeft(typer, typeIn(graph, operand.name), own, at, cutOf(dst));
    if (rows < axis.size)
      return violate(
        `${dst} of ${rows} rows`,
        `dim ${cutOf(dst)} has ${rows} rows to cut, fewer than the ${axis.size} ranks of ${axis.name}`,
        'cut a larger dim, or keep the value whole',
      );
  }
  return become(cutOf(dst) !== undefined && !global ? 'V' : dst);
}

/**
 * The operand's types with those of other global axes as the verb leaves them. Verbs of global
 * programs leave them as they are.
 */
function otherAxes(
  typer: Typing,
  node: Node,
  name: string,
  operand: string,
  own: readonly Known[],
  at: number,
  { graph }: Frame<Typed>,
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
 * Of the types that a verb takes, the one to take its operand as; undefined where it does not take
 * it.
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

/** What to write for an operand that a verb under a JAX name does not take. */
function fitting(now: Known, x: string, axis: string): string {
  if (now === 'V') return `${x} varies already: leave the cast out`;
  if (now === 'P') return `all_reduce(${x}, "${axis}", P→I)`;
  return `reinterpret(${x}, "${axis}", ${now}→V)`;
}

function matches(now: AxisType | 'number', src: AxisType, global: boolean): boolean {
  return now === src || (!global && now === 'V' && cutOf(src) !== undefined);
}

/** What to write when the operand is of another type than the verb says. */
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

/** Rows of a dim on each rank of the axes other than this one. */
function rowsLeft(
  typer: Typing,
  type: ValueType,
  own: readonly Known[],
  at: number,
  dim: number | undefined,
): number {
  const size = dim === undefined || type.kind !== 'tensor' ? Infinity : type.shape[dim];
  const rows = typeof size === 'number' ? size : Infinity;
  return typer.axes.reduce(
    (left, axis, a) => (a !== at && cutDim(own[a]) === dim ? Math.floor(left / axis.size) : left),
    rows,
  );
}

/** An axis after this one in the mesh that cuts the same dim. */
function laterCut(
  typer: Typing,
  own: readonly Known[],
  at: number,
  dim: number | undefined,
): string | undefined {
  if (dim === undefined) return undefined;
  const later = typer.axes.findIndex((_, a) => a > at && cutDim(own[a]) === dim);
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
