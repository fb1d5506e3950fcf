/**
 * How a view maps dims: which output dim is made of which input dims. The greedy grouping, and the
 * two rules that follow from it (a flattened group is cut at its first dim, a split dim at its
 * first part), are those of PyTorch DTensor 2.13.
 */

import { ShardwrightError } from '../../errors.ts';
import type { ReduceOp } from '../../mesh/placements/placement.ts';
import { product } from '../../product.ts';
import { ALL_KINDS, P, type Rule, rule, S } from '../record/rule.ts';

export type DimSpec =
  /** The output dim is input dim `dim`. */
  | { readonly kind: 'input'; readonly dim: number }
  /** Input dims `dims` merged, row-major. */
  | { readonly kind: 'flatten'; readonly dims: readonly number[] }
  /** Part `id` of `source` cut into `groupShape`, row-major; no member of `groupShape` is 1. */
  | {
      readonly kind: 'split';
      readonly source: DimSpec;
      readonly groupShape: readonly number[];
      readonly id: number;
    }
  /** A dim of size 1 without an input dim. */
  | { readonly kind: 'singleton' };

/**
 * Text of a dim map in the notation of the specification: `Split(Flatten(0,1),(3,2),0), 2,
 * Singleton`.
 */
export function dimSpecText(spec: DimSpec): string {
  switch (spec.kind) {
    case 'input':
      return String(spec.dim);
    case 'flatten':
      return `Flatten(${spec.dims.join(',')})`;
    case 'split':
      return `Split(${dimSpecText(spec.source)},(${spec.groupShape.join(',')}),${spec.id})`;
    case 'singleton':
      return 'Singleton';
  }
}

/**
 * Replaces a `-1` of a target shape by the size that keeps the number of elements.
 *
 * @throws E_TYPE when the sizes do not fit
 */
export function resolveShape(from: readonly number[], to: readonly number[]): number[] {
  const total = product(from);
  const wrong = (why: string): never => {
    throw new ShardwrightError(
      'E_TYPE',
      `view of [${from.join(', ')}] as [${to.join(', ')}]: ${why}`,
    );
  };
  const open = to.flatMap((size, i) => (size === -1 ? [i] : []));
  if (open.length > 1) wrong('only one size may be -1');
  if (to.some((size) => size < -1)) wrong('a size is negative');
  const out = [...to];
  if (open.length === 1) {
    const known = product(to.filter((size) => size !== -1));
    if (known === 0 || total % known !== 0)
      wrong(`${total} elements are not a multiple of ${known}`);
    out[open[0]] = total / known;
  }
  if (product(out) !== total) wrong(`${product(out)} elements, expected ${total}`);
  return out;
}

/**
 * The map of a view: one entry per output dim. Both shapes are walked from the left; the smaller
 * product grows until the two agree, and what was collected is one group.
 *
 * @throws E_TYPE when the numbers of elements differ
 */
export function viewGroups(from: readonly number[], to: readonly number[]): DimSpec[] {
  const target = resolveShape(from, to);
  if (product(from) === 0) return emptyGroups(from, target);
  const out: DimSpec[] = [];
  let i = 0;
  let j = 0;
  while (i < from.length || j < target.length) {
    const inDims: number[] = [];
    const group: number[] = [];
    let f = i < from.length ? from[i] : 1;
    let t = j < target.length ? target[j] : 1;
    if (f === 1 && t !== 1) {
      i++; // an input dim of size 1 goes away; the output side waits
      continue;
    }
    if (f !== 1 && t === 1) {
      out.push({ kind: 'singleton' });
      j++; // the input side waits
      continue;
    }
    if (i < from.length) inDims.push(i++);
    if (j < target.length) group.push(target[j++]);
    while (f !== t) {
      if (f < t) {
        f *= from[i];
        inDims.push(i++);
      } else {
        t *= target[j];
        group.push(target[j++]);
      }
    }
    const source: DimSpec =
      inDims.length === 0
        ? { kind: 'singleton' }
        : inDims.length === 1
          ? { kind: 'input', dim: inDims[0] }
          : { kind: 'flatten', dims: inDims };
    pushGroup(out, source, group);
  }
  return out;
}

function pushGroup(out: DimSpec[], source: DimSpec, group: readonly number[]): void {
  if (group.length === 1) {
    out.push(source);
    return;
  }
  const groupShape = group.filter((size) => size !== 1);
  let id = 0;
  for (const size of group) {
    if (size === 1) out.push({ kind: 'singleton' });
    else if (groupShape.length === 1) {
      out.push(source);
      id++;
    } else out.push({ kind: 'split', source, groupShape, id: id++ });
  }
}

/**
 * A tensor without elements: dims follow as long as the shapes agree, the rest has nothing to
 * follow.
 */
function emptyGroups(from: readonly number[], to: readonly number[]): DimSpec[] {
  let same = 0;
  while (same < from.length && same < to.length && from[same] === to[same]) same++;
  return to.map((_, i) => (i < same ? { kind: 'input', dim: i } : { kind: 'singleton' }));
}

/**
 * The cuts of a view by one mesh dim: input dim, output dim, and whether the cut must be even on
 * both sides. Evenness is asked of the product of all mesh dims that cut the dim, so that blocks of
 * rows stay whole blocks.
 */
interface ViewCut {
  readonly input: number;
  readonly output: number;
  readonly even: boolean;
  /**
   * For dims merged into one, or one that is split: the side that has the one dim, and the dims of
   * the other side before the one that is cut. Each of their indices holds a piece of its own on
   * every rank.
   */
  readonly inside?: { readonly merged: 'input' | 'output'; readonly dims: readonly number[] };
}

/** The cuts that stay local. Dims of size 1 are never cut. */
export function viewCuts(from: readonly number[], to: readonly number[]): ViewCut[] {
  const target = resolveShape(from, to);
  const cuts: ViewCut[] = [];
  const groups = viewGroups(from, target);
  groups.forEach((spec, output) => {
    if (target[output] <= 1) return;
    if (spec.kind === 'input') cuts.push({ input: spec.dim, output, even: false });
    else if (spec.kind === 'flatten')
      spec.dims.forEach((input, k) => {
        if (from[input] <= 1) return;
        const dims = spec.dims.slice(0, k).filter((dim) => from[dim] > 1);
        cuts.push({ input, output, even: true, inside: { merged: 'output', dims } });
      });
    else if (spec.kind === 'split') {
      const { source, groupShape, id } = spec;
      if (source.kind === 'flatten' && id === 0)
        cuts.push({ input: source.dims[0], output, even: true });
      if (source.kind !== 'input') return;
      const dims = groupShape.slice(0, id).map((_, k) => partAt(groups, source.dim, k));
      cuts.push({ input: source.dim, output, even: true, inside: { merged: 'input', dims } });
    }
  });
  return cuts;
}

/** The output dim that is part `id` of a split input dim. */
function partAt(groups: readonly DimSpec[], dim: number, id: number): number {
  return groups.findIndex(
    (g) => g.kind === 'split' && g.id === id && g.source.kind === 'input' && g.source.dim === dim,
  );
}

/**
 * Single-dim rules of a view or reshape: the dim follows, dims that are merged and parts of a split
 * follow if they are cut evenly (all but the first one strided in the merged dim), every pending
 * reduction passes.
 *
 * @param kinds pending kinds of the tensor's dtype
 * @param explicit whether the size of an output dim is written in the call and must become local
 *   when that dim is cut
 */
export function viewRules(
  from: readonly number[],
  to: readonly number[],
  explicit: (outputDim: number) => boolean = () => true,
  kinds: readonly ReduceOp[] = ALL_KINDS,
): Rule[] {
  const rules = viewCuts(from, to).map(({ input, output, even, inside }) => {
    const cut = { slicing: 'any', even, scaled: even } as const;
    const parts = inside?.dims ?? [];
    const origin = parts.length > 0 ? 'ext' : 'base';
    const slots = [
      [S(input, inside?.merged === 'input' ? { ...cut, inside: { tensor: 1, dims: parts } } : cut)],
      [
        S(
          output,
          inside?.merged === 'output' ? { ...cut, inside: { tensor: 0, dims: parts } } : cut,
        ),
      ],
    ] as const;
    return explicit(output)
      ? rule(...slots, { origin, rewrite: 'local-shape' })
      : rule(...slots, { origin });
  });
  return [...rules, ...kinds.map((kind) => rule([P(kind)], [P(kind)]))];
}
