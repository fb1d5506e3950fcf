/**
 * Restricts the choices of a data-parallel mesh dim so that only parameters and gradients are
 * redistributed on it.
 */

import { defined } from '../defined.ts';
import { isPartialCode, REPLICATE_CODE, type ShardingSpace } from '../mesh/sharding/space.ts';
import type { StrategySet } from '../ops/expansion/expand.ts';
import type { Model } from '../plan/model/model.ts';
import type { Restriction } from '../plan/restrict/restriction.ts';
import { PairMap } from '../solver/store/pair-map.ts';
import { isCast } from './weights.ts';

const UNKNOWN = -1;

/**
 * On a data-parallel mesh dim nothing moves but parameters and gradients: starting from cut inputs
 * and whole parameters, every node takes its inputs as they come, and what it leaves follows. This
 * walks the program once and takes away, node by node, every strategy that would move an activation
 * over the dim. Where no strategy takes the inputs as they come, or more than one result is
 * possible, the node (or its result) is left free.
 *
 * @param dim mesh dim On a tensor-parallel dim the same holds between the sums: a pending result is
 * `reduced` where it is made in the forward pass, and what follows takes it whole; in the backward
 * pass several pending gradients may be added first, so theirs are left free.
 *
 * On a sequence dim what is whole meets what is cut (positions are added to tokens): the whole one
 * is sliced, which is free.
 *
 * @param weights codes of parameters and of their views as the program takes them, by value
 * @param moves nodes of a sequence dim at which the recipe itself moves a value: they do not take
 *   what comes
 */
export function lockDataDim(
  model: Model,
  restriction: Restriction,
  dim: number,
  weights: ReadonlyMap<number, readonly number[]>,
  {
    reduced = false,
    moves,
  }: { readonly reduced?: boolean; readonly moves?: ReadonlySet<number> } = {},
): void {
  const { graph, flow, space, strategies, nodeVariable } = model;
  const codes = new Int32Array(flow.values.length).fill(UNKNOWN);
  for (const [value, list] of weights) codes[value] = list[dim];
  const isWeight = moves === undefined ? undefined : new Uint8Array(flow.values.length);
  if (isWeight !== undefined) for (const value of weights.keys()) isWeight[value] = 1;
  const reason = `mesh dim ${space.mesh.names[dim]} is ${reduced ? 'tensor' : 'data'} parallel`;
  // Nodes of equal layers meet equal codes: what each pattern takes and leaves is worked out once.
  const patterns = new Patterns();
  const known: (Locked | undefined)[] = [];
  for (let n = 0; n < strategies.nodes.length; n++) {
    const entry = strategies.nodes[n];
    if (entry === null) continue;
    const inputs = flow.inputs[n];
    // A weight is cast before or after it is gathered.
    if (isCast(graph.nodes[n]) && weights.has(inputs[0]) && weights.has(flow.results[n][0]))
      continue;
    const v = nodeVariable[n];
    const isMove = moves?.has(n) === true;
    const isForward = flow.phases[n] === 'forward';
    let pattern = patterns.first(entry.content, isMove, isForward);
    for (const value of inputs)
      pattern = patterns.next(
        pattern,
        2 * (codes[value] - UNKNOWN) + (isWeight === undefined ? 0 : isWeight[value]),
      );
    pattern = patterns.next(pattern, restriction.leftId(v) + 1);
    let locked = known[pattern];
    if (locked === undefined) {
      const coming = inputs.map((value) => codes[value]);
      const fixed = isWeight === undefined ? undefined : inputs.map((value) => isWeight[value]);
      const node = {
        set: entry.set,
        isMove,
        isForward,
        coming,
        fixed,
        before: restriction.left(v),
      };
      known[pattern] = locked = lockedNode(space, dim, node, reduced);
    }
    if (locked.keeps !== undefined) restriction.keepMarked(v, reason, locked.keeps);
    if (locked.leaves === undefined) continue;
    const results = flow.results[n];
    for (let k = 0; k < results.length; k++)
      if (results[k] >= 0 && codes[results[k]] === UNKNOWN) codes[results[k]] = locked.leaves[k];
  }
}

/** A node as the walk meets it. */
interface MetNode {
  readonly set: StrategySet;
  readonly isMove: boolean;
  readonly isForward: boolean;
  /** Codes of its inputs. */
  readonly coming: Int32Array;
  /**
   * 1 for each input that is a parameter or a view of one; undefined where the whole is not sliced.
   */
  readonly fixed: Int32Array | undefined;
  /** The values that were left before; undefined: all. */
  readonly before: Readonly<Uint8Array> | undefined;
}

/** The action of the walk at a node. */
interface Locked {
  /** 1 for every value to keep; undefined: nothing is taken away. */
  readonly keeps?: Uint8Array;
  /** Codes of its results; undefined: none is known. */
  readonly leaves?: Int32Array;
}

function lockedNode(space: ShardingSpace, dim: number, node: MetNode, reduced: boolean): Locked {
  const { set, isMove, isForward, coming, fixed, before } = node;
  const isPossible = (takes: Uint8Array): boolean =>
    takes.some((yes, a) => yes === 1 && before?.[a] !== 0);
  let takes = takesAsTheyCome(space, set, dim, coming);
  if (fixed !== undefined && !isMove && !isPossible(takes)) {
    const sliced = coming.map((code, i) =>
      code === REPLICATE_CODE && fixed[i] === 0 ? UNKNOWN : code,
    );
    takes = takesAsTheyCome(space, set, dim, sliced);
  }
  if (!isMove && !isPossible(takes)) return {};
  const keeps = set.inputCount > 0 && !isMove ? takes : undefined;
  const width = set.inputCount + set.outputCount;
  const leaves = Int32Array.from({ length: set.outputCount }, (_, k) => {
    let code = UNKNOWN;
    for (let a = 0; a < set.count; a++) {
      if (before?.[a] === 0 || keeps?.[a] === 0) continue;
      const kind = space.kindAt(set.specs[a * width + set.inputCount + k], dim);
      if (code === UNKNOWN) code = kind;
      else if (code !== kind) return UNKNOWN;
    }
    if (!reduced || !isPartialCode(code)) return code;
    return isForward ? REPLICATE_CODE : UNKNOWN;
  });
  return { ...defined({ keeps }), leaves };
}

/** Numbers sequences that begin with a kind of node, without making a text of them. */
class Patterns {
  private readonly ids = new PairMap();
  private count = 0;

  first(content: number, isMove: boolean, isForward: boolean): number {
    return this.of(content, (isMove ? 2 : 0) + (isForward ? 1 : 0));
  }

  /** @param pattern what comes before. @param code 0 or more */
  next(pattern: number, code: number): number {
    return this.of(pattern, 4 + code);
  }

  private of(a: number, b: number): number {
    let id = this.ids.get(a, b);
    if (id < 0) this.ids.set(a, b, (id = this.count++));
    return id;
  }
}

/** 1 for every strategy whose inputs have these codes on the mesh dim; UNKNOWN: any. */
function takesAsTheyCome(
  space: ShardingSpace,
  set: StrategySet,
  dim: number,
  coming: Int32Array,
): Uint8Array {
  const width = set.inputCount + set.outputCount;
  return Uint8Array.from({ length: set.count }, (_, a) => {
    for (let i = 0; i < coming.length; i++)
      if (coming[i] !== UNKNOWN && space.kindAt(set.specs[a * width + i], dim) !== coming[i])
        return 0;
    return 1;
  });
}
