/**
 * Finds the keys and values of attention in a graph and restricts their placements under context
 * parallelism, Ulysses and tensor parallelism.
 */

import { isPartialCode, REPLICATE_CODE, shardCode } from '../mesh/sharding/space.ts';
import { elements } from '../ops/record/record.ts';
import type { Model } from '../plan/model/model.ts';
import type { Restriction } from '../plan/restrict/restriction.ts';
import { attentionNodes, type KeyValuePath, keyValuePaths } from '../step/read/attention-paths.ts';
import type { Part, Recipe } from './parts.ts';

/** Queries are [batch, heads, rows, channels]; so are keys and values. */
const HEADS = shardCode(1);
const ROWS = shardCode(2);

const isUlysses = (part: Part): boolean => part.startsWith('ulysses');

/**
 * The placements that attention takes on a sequence dim, and where keys, values and their gradients
 * move for it.
 *
 *  - Context parallelism: queries are cut on their rows in both passes. Keys and values are
 *    gathered before they are repeated; each device makes a summand of their gradients, which are
 *    summed over the query heads that share them, and then scattered.
 *  - Ulysses: queries are cut on their heads in both passes; keys and values change their cut
 *    before they are repeated, where the dim cuts their heads evenly, and the output changes it
 *    where it is read.
 *
 * @returns the nodes at which something moves: what comes is not what they take
 */
export function placeAttention(
  model: Model,
  restriction: Restriction,
  recipe: Recipe,
  dim: number,
): ReadonlySet<number> {
  const placer = new AttentionPlacer(model, restriction, recipe, dim);
  placer.placeQueries();
  placer.placeKeyValues();
  placer.placeOutputs();
  placer.placeGradients();
  return placer.moves;
}

/** Keeps what calls of attention, and the calls around them, take on a sequence dim. */
class AttentionPlacer {
  /** Nodes at which something moves. */
  readonly moves = new Set<number>();
  private readonly reason: string;
  private readonly isContext: boolean;
  private readonly users: Users;
  private readonly paths: readonly KeyValuePath[];
  /**
   * Inputs of attention that are exchanged as they are: several ranks share a head before it is
   * repeated.
   */
  private readonly repeated = new Set<KeyValuePath>();

  constructor(
    private readonly model: Model,
    private readonly restriction: Restriction,
    recipe: Recipe,
    private readonly dim: number,
  ) {
    const part = recipe.parts[dim];
    this.reason = `recipe ${recipe.name}: ${part} over ${model.space.mesh.names[dim]}`;
    this.isContext = !isUlysses(part);
    this.users = new Users(model);
    this.paths = keyValuePaths(model);
  }

  placeQueries(): void {
    for (const n of attentionNodes(this.model, 'forward'))
      this.takes(n, 0, this.isContext ? ROWS : HEADS);
  }

  /** Keys and values move before they are repeated, where that can be. */
  placeKeyValues(): void {
    for (const path of this.paths) {
      const { repeats, attention, input } = path;
      const codes = this.isContext
        ? repeats.map(() => REPLICATE_CODE)
        : backThrough(this.model, repeats, this.dim, HEADS);
      if (codes === undefined) {
        this.repeated.add(path);
        continue;
      }
      repeats.forEach((n, i) => this.takes(n, 0, codes[i]));
      if (repeats.length > 0) this.moves.add(repeats[0]);
      if (!this.isContext) continue;
      this.takes(attention, input, REPLICATE_CODE);
      this.moves.add(attention);
    }
  }

  /**
   * The output moves where the forward pass reads it; the backward pass reads it as it was left.
   */
  placeOutputs(): void {
    const { model } = this;
    if (this.isContext) return;
    const isForward = (user: number): boolean =>
      model.flow.phases[user] === 'forward' && !isKept(model, this.users, user);
    for (const n of attentionNodes(model, 'forward'))
      this.movesTo(model.flow.results[n][0], ROWS, isForward);
  }

  /**
   * The arguments of the backward pass are those of the forward pass after the gradient, its
   * results the gradients of query, key and value.
   */
  placeGradients(): void {
    const { flow, strategies, nodeVariable } = this.model;
    for (const n of attentionNodes(this.model, 'backward')) {
      const code = this.isContext ? ROWS : HEADS;
      this.restriction.keep(
        nodeVariable[n],
        this.reason,
        (a) => this.kind(n, a, strategies.nodes[n]!.set.inputCount) === code,
      );
      if (!this.isContext && flow.results[n][0] >= 0) this.movesTo(flow.results[n][0], ROWS);
      for (const result of [1, 2]) {
        const value = flow.results[n][result];
        const path = this.paths.find(
          (p) => p.input === result && flow.inputs[n].includes(flow.inputs[p.attention][p.input]),
        );
        if (value === undefined || value < 0 || path === undefined) continue;
        const like = this.repeated.has(path) ? value : path.source;
        const whole = elements(flow.values[like].meta.shape);
        const summed = afterSum(this.model, this.users, value, this.dim, whole);
        if (summed !== undefined) this.movesTo(summed.value, summed.code);
      }
    }
  }

  private movesTo(
    value: number,
    code: number,
    isMoved: (user: number) => boolean = () => true,
  ): void {
    for (const [user, input] of this.users.of(value)) {
      if (!isMoved(user)) continue;
      this.takes(user, input, code);
      this.moves.add(user);
    }
  }

  private takes(n: number, input: number, code: number): void {
    const variable = this.model.nodeVariable[n];
    this.restriction.keep(variable, this.reason, (a) => this.kind(n, a, input) === code);
  }

  /** The code in which a strategy of a node has a tensor on the dim. */
  private kind(n: number, strategy: number, tensor: number): number {
    const { space, strategies } = this.model;
    const { set } = strategies.nodes[n]!;
    const width = set.inputCount + set.outputCount;
    return space.kindAt(set.specs[strategy * width + tensor], this.dim);
  }
}

/** Why a mesh dim cannot cut the rows of attention, or its heads; undefined where it can. */
export function uncutAttention(
  { graph, flow, space, strategies }: Model,
  part: Part,
  dim: number,
): string | undefined {
  const [code, what, tensorDim] = isUlysses(part)
    ? ([HEADS, 'heads', 1] as const)
    : ([ROWS, 'rows', 2] as const);
  for (const n of attentionNodes({ graph, flow }, 'forward')) {
    const { set } = strategies.nodes[n]!;
    const width = set.inputCount + set.outputCount;
    if (set.specs.some((id, t) => t % width === 0 && space.kindAt(id, dim) === code)) continue;
    const size = flow.values[flow.inputs[n][0]].meta.shape[tensorDim];
    return (
      `the ${size} ${what} of attention (${graph.nodes[n].name}) cannot be cut ` +
      `${space.mesh.sizes[dim]} ways`
    );
  }
  return undefined;
}

/**
 * Codes that nodes in a row take on a mesh dim so that the last leaves one; undefined where they
 * cannot.
 */
function backThrough(
  model: Model,
  nodes: readonly number[],
  dim: number,
  last: number,
): number[] | undefined {
  const codes: number[] = [];
  let wanted = last;
  for (const n of [...nodes].reverse()) {
    const found = codeThrough(model, n, dim, (input, output) =>
      output === wanted ? input : undefined,
    );
    if (found === undefined) return undefined;
    codes.unshift(found);
    wanted = found;
  }
  return codes;
}

/**
 * The gradient of keys or values after it was summed over the heads that share them, and the code
 * of a cut of its rows.
 */
function afterSum(
  model: Model,
  users: Users,
  from: number,
  dim: number,
  whole: number,
): { readonly value: number; readonly code: number } | undefined {
  const { flow } = model;
  let [value, code] = [from, ROWS];
  while (elements(flow.values[value].meta.shape) > whole) {
    const readers = users.of(value);
    if (readers.length !== 1) return undefined;
    const [[n]] = readers;
    if (flow.inputs[n].length !== 1 || flow.results[n].length !== 1) return undefined;
    const out = codeThrough(model, n, dim, (input, output) =>
      input === code ? output : undefined,
    );
    if (out === undefined) return undefined;
    [value, code] = [flow.results[n][0], out];
  }
  return elements(flow.values[value].meta.shape) === whole ? { value, code } : undefined;
}

/** The one cut that a node of one input and one result makes of another. */
function codeThrough(
  model: Model,
  n: number,
  dim: number,
  pick: (input: number, output: number) => number | undefined,
): number | undefined {
  const entry = model.strategies.nodes[n];
  if (entry === null) return undefined;
  const { set } = entry;
  const width = set.inputCount + set.outputCount;
  let found: number | undefined;
  for (let a = 0; a < set.count; a++) {
    const [input, output] = [0, 1].map((t) => model.space.kindAt(set.specs[a * width + t], dim));
    const code = pick(input, output);
    if (code === undefined || code === REPLICATE_CODE || isPartialCode(code)) continue;
    if (found !== undefined && found !== code) return undefined;
    found = code;
  }
  return found;
}

/** The calls that read each value, with the place where they do. */
class Users {
  /** The uses of value v are at `first[v]` up to `first[v + 1]` of the lists. */
  private readonly first: Int32Array;
  private readonly nodes: Int32Array;
  private readonly inputs: Int32Array;

  constructor({ flow, graph }: Model) {
    this.first = new Int32Array(flow.values.length + 1);
    const calls = flow.inputs.map((values, n) =>
      graph.nodes[n].kind === 'call' ? values : NO_VALUES,
    );
    for (const values of calls) for (const value of values) this.first[value + 1]++;
    for (let v = 0; v < flow.values.length; v++) this.first[v + 1] += this.first[v];
    const next = this.first.slice();
    this.nodes = new Int32Array(this.first[flow.values.length]);
    this.inputs = new Int32Array(this.nodes.length);
    for (let n = 0; n < calls.length; n++)
      for (let i = 0; i < calls[n].length; i++) {
        const at = next[calls[n][i]]++;
        this.nodes[at] = n;
        this.inputs[at] = i;
      }
  }

  of(value: number): (readonly [node: number, input: number])[] {
    const users: [number, number][] = [];
    for (let k = this.first[value]; k < this.first[value + 1]; k++)
      users.push([this.nodes[k], this.inputs[k]]);
    return users;
  }
}

const NO_VALUES = new Int32Array(0);

/** Tells whether a node of the forward pass hands on what only the backward pass reads. */
function isKept({ flow }: Model, users: Users, n: number): boolean {
  const readers = [...flow.results[n]].flatMap((value) => (value < 0 ? [] : users.of(value)));
  return readers.length > 0 && readers.every(([user]) => flow.phases[user] === 'backward');
}
