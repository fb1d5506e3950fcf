/** Takes a graph and what the user states and gives the batch dim and the sequence dim of each input. */

import { ShardwrightError, suggestion } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { isPartialCode, shardDimOfCode, ShardingSpace } from '../../mesh/sharding/space.ts';
import type { TensorMeta } from '../../ops/record/record.ts';
import { isStrided, P, R, S, type Rule, type RuleSlot, type ShardSlot } from '../../ops/record/rule.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { plannable } from '../../passes/plannable/plannable.ts';
import type { Model } from '../../plan/model/model.ts';
import type { StatedDims } from '../../plan/request/request.ts';
import { dataflow } from '../../strategy/dataflow.ts';
import { nodeStrategies } from '../../strategy/nodes.ts';
import { takesAnyCut } from '../../strategy/row.ts';

/**
 * Which dim of each input is the batch and which the sequence, told by the program. In: a model and what the user states.
 * Out: both dims by input node.
 *
 * The batch is the index whose parts do not meet before the loss: with its dims cut on every input, and parameters whole, the
 * forward pass runs by its rules without communication and the loss is a sum or mean of what the parts give. The sequence is
 * the index over which attention mixes: it reaches the rows of fused attention, or both sides of a table of scores.
 */
export interface InputRole {
  readonly batch?: number;
  readonly sequence?: number;
}

export type InputRoles = ReadonlyMap<number, InputRole>;

type Program = Pick<Model, 'graph' | 'flow' | 'strategies' | 'space' | 'statedDims'>;

/** @throws E_REF for a stated name that is no input, E_SHAPE for a dim that it does not have */
export function inputRoles(model: Program): InputRoles {
  const inputs = inputsOf(model);
  const rules = new RuleLists(model);
  const indices = new Indices(model, rules);
  const batch = statedOf(model, inputs, 'batch') ?? batchOf(model, rules, indices, inputs);
  const whole = batch.stated ? linked(indices, inputs, batch.dims) : batch.dims;
  const sequence = statedOf(model, inputs, 'sequence')?.dims ?? sequences(model, rules, inputs, whole);
  const roles = new Map<number, InputRole>();
  for (const { node } of inputs) {
    const [own, row] = [whole.get(node), sequence.get(node)];
    roles.set(node, { ...(own === undefined ? {} : { batch: own }), ...(row === undefined ? {} : { sequence: row }) });
  }
  return roles;
} // prettier-ignore

/** The same for a graph that is not planned, on one device. */
export function graphInputRoles(graph: Graph, table: OperatorTable, statedDims?: StatedDims): InputRoles {
  const space = new ShardingSpace(parseMesh('d=1'));
  const program = plannable(graph, table);
  const flow = dataflow(program, table, true);
  const strategies = nodeStrategies(program, flow, table, space, { uneven: 'allow', unknown: 'replicate' });
  const roles = inputRoles({ graph: program, flow, strategies, space, ...(statedDims === undefined ? {} : { statedDims }) });
  const position = new Map(graph.nodes.map((node, n) => [node.name, n]));
  return new Map([...roles].map(([n, role]) => [position.get(program.nodes[n].name) ?? n, role]));
} // prettier-ignore

interface InputTensor {
  readonly node: number;
  readonly value: number;
  readonly names: readonly string[];
  readonly shape: readonly number[];
}

interface Dims {
  /** Dim by input node. */
  readonly dims: ReadonlyMap<number, number>;
  readonly stated: boolean;
}

function inputsOf({ graph, flow }: Program): InputTensor[] {
  return graph.nodes.flatMap((node, n): InputTensor[] => {
    if (node.kind !== 'placeholder' || node.meta.role !== 'input') return [];
    const [value] = flow.results[n];
    if (value === undefined || value < 0) return [];
    return [{ node: n, value, names: [node.name, node.meta.roleName ?? node.name], shape: flow.values[value].meta.shape }];
  });
} // prettier-ignore

/** What the user says; undefined where nothing is said of this role. */
function statedOf(model: Program, inputs: readonly InputTensor[], role: 'batch' | 'sequence'): Dims | undefined {
  const stated = Object.entries(model.statedDims?.[role] ?? {});
  if (stated.length === 0) return undefined;
  const dims = new Map<number, number>();
  for (const [name, dim] of stated) {
    const flag = `--${role}-dim ${name}=${dim}`;
    const found = inputs.find(({ names }) => names.includes(name));
    if (found === undefined)
      throw new ShardwrightError('E_REF', `${flag}: the graph has no input '${name}'`, {
        hint: suggestion(name, [...new Set(inputs.flatMap(({ names }) => names))], 'inputs'),
      });
    const at = dim < 0 ? dim + found.shape.length : dim;
    if (!Number.isInteger(dim) || at < 0 || at >= found.shape.length)
      throw new ShardwrightError('E_SHAPE', `${flag}: '${name}' [${found.shape.join(', ')}] has no dim ${dim}`, {
        hint: `name one from 0 to ${found.shape.length - 1}.`,
      });
    dims.set(found.node, at);
  }
  return { dims, stated: true };
}

/** The inputs that share an index with a stated dim are cut with it; a stated dim wins. */
function linked(indices: Indices, inputs: readonly InputTensor[], stated: ReadonlyMap<number, number>): Map<number, number> {
  const all = new Map(stated);
  const wanted = new Set([...stated].map(([node, dim]) => indices.of(valueOf(inputs, node), dim)));
  for (const { node, value, shape } of inputs) {
    const dim = shape.findIndex((size, d) => size > 1 && wanted.has(indices.of(value, d)));
    if (dim >= 0 && !all.has(node)) all.set(node, dim);
  }
  return all;
} // prettier-ignore

function sizeAt(inputs: readonly InputTensor[], node: number, dim: number): number | undefined {
  return inputs.find((input) => input.node === node)?.shape[dim];
}

function valueOf(inputs: readonly InputTensor[], node: number): number {
  return inputs.find((input) => input.node === node)?.value ?? -1;
}

// ---- rules of a node ---------------------------------------------------------------------------------------------------

/** Rules of forward calls: those of the record, or for what has none (marks of bodies) those that its strategies show. */
class RuleLists {
  private readonly byContent = new Map<number, readonly Rule[]>();
  private readonly shown: number;

  constructor(private readonly model: Program) {
    this.shown = model.space.mesh.sizes.findIndex((size) => size > 1);
  }

  /** Undefined for a node that is no forward call, or another name of a value. */
  of(n: number): readonly Rule[] | undefined {
    const { graph, flow, strategies } = this.model;
    const entry = strategies.nodes[n];
    if (entry === null || graph.nodes[n].kind !== 'call' || flow.phases[n] !== 'forward') return undefined;
    let rules = this.byContent.get(entry.content);
    if (rules === undefined) {
      const all = entry.record !== undefined && entry.call !== undefined ? entry.record.shard(entry.call) : this.shownBy(n);
      // A loss may add up how many labels count: what meets there is a number.
      const isNumber = entry.call?.outputs.every((meta) => meta === null || elements(meta) <= 1) === true;
      rules = isNumber ? all : all.filter((r) => r.collectives === undefined);
      this.byContent.set(entry.content, rules);
    }
    return rules;
  } // prettier-ignore

  isNorm(n: number): boolean {
    return this.of(n) !== undefined && this.model.strategies.nodes[n]?.record?.cls === 'norm';
  }

  private shownBy(n: number): Rule[] {
    const set = this.model.strategies.nodes[n]?.set;
    const { space } = this.model;
    if (set === undefined || this.shown < 0) return [];
    const width = set.inputCount + set.outputCount;
    return Array.from({ length: set.count }, (_, a) => {
      const slots = Array.from(set.specs.subarray(a * width, (a + 1) * width), (id): RuleSlot => {
        if (id < 0) return null;
        const code = space.kindAt(id, this.shown);
        const dim = shardDimOfCode(code);
        return dim >= 0 ? S(dim) : isPartialCode(code) ? P('sum') : R;
      });
      return { inputs: slots.slice(0, set.inputCount), outputs: slots.slice(set.inputCount), origin: 'ext' as const };
    });
  }
}

// ---- the batch ---------------------------------------------------------------------------------------------------------

/** Dims that are one index of the program, by the rules that cut them together. */
class Indices {
  private readonly parent = new Map<number, number>();

  constructor(
    { graph, flow }: Program,
    private readonly rules: RuleLists,
  ) {
    graph.nodes.forEach((_, n) => {
      for (const { inputs, outputs } of this.rules.of(n) ?? []) {
        const first = new Map<string, number>();
        const join = (slot: RuleSlot, value: number): void => {
          if (!isPlain(slot) || value < 0) return;
          const at = value * MOST_DIMS + slot.dim;
          const mate = first.get(slot.tie);
          if (mate === undefined) first.set(slot.tie, at);
          else this.join(at, mate);
        };
        inputs.forEach((slot, i) => join(slot, flow.inputs[n][i]));
        outputs.forEach((slot, k) => join(slot, flow.results[n][k]));
      }
      // A normalisation gives each element a place of its own, whatever its rules can cut.
      if (this.rules.isNorm(n)) {
        const [x, y] = [flow.inputs[n][0], flow.results[n][0]];
        flow.values[x].meta.shape.forEach((size, d) => {
          if (flow.values[y].meta.shape[d] === size) this.join(x * MOST_DIMS + d, y * MOST_DIMS + d);
        });
      }
    });
  }

  of(value: number, dim: number): number {
    return this.root(value * MOST_DIMS + dim);
  }

  private join(a: number, b: number): void {
    const [from, to] = [this.root(a), this.root(b)];
    if (from !== to) this.parent.set(from, to);
  }

  private root(at: number): number {
    let root = at;
    for (let next = this.parent.get(root); next !== undefined; next = this.parent.get(root)) root = next;
    for (let next = this.parent.get(at); next !== undefined && next !== root; next = this.parent.get(at)) {
      this.parent.set(at, root);
      at = next;
    }
    return root;
  }
}

const MOST_DIMS = 64;

/** The index that the most inputs have among those that reach the loss in parts; the outermost where several do. */
function batchOf(model: Program, rules: RuleLists, indices: Indices, inputs: readonly InputTensor[]): Dims {
  const candidates = new Map<number, Map<number, number>>();
  // An index that a weight has as well is one of features.
  const features = new Set(
    model.graph.nodes.flatMap((node, n) =>
      node.kind === 'placeholder' && node.meta.role === 'parameter'
        ? dimsOf(model, n).map(([value, dim]) => indices.of(value, dim))
        : [],
    ),
  );
  for (const { node, value, shape } of inputs)
    shape.forEach((size, dim) => {
      const index = indices.of(value, dim);
      if (size <= 1 || features.has(index)) return;
      const dims = candidates.get(index) ?? new Map<number, number>();
      // An input that has the index twice compares its parts with each other.
      dims.set(node, dims.has(node) ? -1 : dim);
      candidates.set(index, dims);
    });
  const ranked = [...candidates.values()]
    .filter((dims) => ![...dims.values()].includes(-1))
    .sort((a, b) => b.size - a.size || total(a) - total(b));
  for (const meeting of MEETINGS)
    for (const dims of ranked) {
      if (!reachesLoss(model, rules, dims, meeting)) continue;
      // A sequence comes back to the loss beside its attention too.
      if (meeting === 'anywhere' && [...dims].some(([node, dim]) => walk(model, rules, node, dim).mixed)) continue;
      return { dims, stated: false };
    }
  return { dims: new Map(), stated: false };
}

function dimsOf({ flow }: Program, node: number): (readonly [value: number, dim: number])[] {
  const [value] = flow.results[node];
  return value === undefined || value < 0 ? [] : flow.values[value].meta.shape.flatMap((size, dim) => (size > 1 ? [[value, dim] as const] : []));
} // prettier-ignore

/**
 * Where parts may meet before the loss: nowhere but in numbers (the count of valid labels); in what reductions and
 * normalisations make of a batch too, as batch norm does; anywhere, as in the routing of tokens to experts, where the index
 * comes back to the loss on a way beside it.
 */
const MEETINGS = ['numbers', 'statistics', 'anywhere'] as const;
type Meeting = (typeof MEETINGS)[number];

const total = (dims: ReadonlyMap<number, number>): number => [...dims.values()].reduce((a, b) => a + b, 0);

/** How a value lies over the parts: whole, cut on a dim, or still to be added up. */
interface Held {
  readonly slot: Exclude<RuleSlot, null>;
  /** Inputs whose parts are in it. */
  readonly from: ReadonlySet<number>;
  /** Depends on an input that is not cut: to cut it now would be to choose a batch for that input. */
  readonly foreign: boolean;
}
const WHOLE: Held = { slot: R, from: new Set(), foreign: false };

/**
 * Whether the forward pass runs with these dims cut and all parameters whole, each call by a rule, and a result or the loss
 * comes out in parts.
 */
function reachesLoss(model: Program, rules: RuleLists, dims: ReadonlyMap<number, number>, meeting: Meeting): boolean {
  const { graph, flow, strategies } = model;
  const held = new Array<Held>(flow.values.length).fill(WHOLE);
  for (const { node, value, shape } of inputsOf(model)) {
    const dim = dims.get(node);
    held[value] = dim === undefined ? { ...WHOLE, foreign: shape.length > 0 } : { slot: S(dim), from: new Set([node]), foreign: false };
  }
  for (let n = 0; n < graph.nodes.length; n++) {
    const list = rules.of(n);
    if (list === undefined) continue;
    const given = flow.inputs[n];
    const coming = Array.from(given, (value) => held[value]);
    const foreign = coming.some((c) => c.foreign);
    const from = union(coming.map((c) => c.from));
    const leave = (k: number, slot: Held['slot'], whose = from): void => {
      const value = flow.results[n][k];
      if (value !== undefined && value >= 0) held[value] = { slot, from: whose, foreign };
    };
    if (coming.every(({ slot }) => slot.kind === 'replicate')) {
      flow.results[n].forEach((_, k) => leave(k, R));
      continue;
    }
    const metas = Array.from(given, (value) => flow.values[value].meta);
    const outputs = outputsOf(list, coming, metas);
    const cls = strategies.nodes[n]?.record?.cls ?? '';
    if (outputs === undefined) {
      const normal = meeting !== 'numbers' && cls === 'norm' ? coming.find(({ slot }) => slot.kind === 'shard') : undefined;
      if (normal === undefined && meeting !== 'anywhere') return false;
      const shape = normal === undefined ? '' : metas[coming.indexOf(normal)].shape.join();
      flow.results[n].forEach((value, k) => {
        if (value < 0) return;
        const isEqual = normal !== undefined && flow.values[value].meta.shape.join() === shape;
        leave(k, isEqual ? normal.slot : R, isEqual ? from : new Set());
      });
      continue;
    }
    const adds = meeting !== 'numbers' && (cls === 'reduction' || cls === 'norm');
    outputs.forEach((slot, k) => {
      const meta = metaOf(flow, flow.results[n][k]);
      if (slot === null || meta === undefined) return;
      if (slot.kind === 'partial' && adds && elements(meta) > 1) leave(k, R, new Set());
      else leave(k, slot);
    });
  }
  // What comes out must have the parts of every input, not of the labels alone.
  return flow.outputs.some(({ output, value }) => value >= 0 && output.role === 'output' && held[value].from.size === dims.size);
} // prettier-ignore

function union(sets: readonly ReadonlySet<number>[]): ReadonlySet<number> {
  const [first = new Set<number>(), ...rest] = sets.filter((set) => set.size > 0);
  return rest.every((set) => set === first) ? first : new Set(sets.flatMap((set) => [...set]));
}

function metaOf(flow: Program['flow'], value: number | undefined): TensorMeta | undefined {
  return value === undefined || value < 0 ? undefined : flow.values[value].meta;
}

/** What a call leaves under the first rule that takes the inputs as they come: cut ones as cut, whole ones whole or sliced. */
function outputsOf(rules: readonly Rule[], coming: readonly Held[], metas: readonly TensorMeta[]): readonly RuleSlot[] | undefined {
  const cost = (r: Rule): number | undefined => {
    let sliced = 0;
    for (const [i, { slot, foreign }] of coming.entries()) {
      const wanted = r.inputs[i] ?? R;
      const isNumber = elements(metas[i]) <= 1;
      if (slot.kind === 'shard' ? isPlain(wanted) && wanted.dim === slot.dim : sameKind(slot, wanted)) continue;
      if (slot.kind === 'replicate' && isPlain(wanted) && !foreign) sliced++;
      else if (slot.kind === 'partial' && isNumber && wanted.kind === 'replicate') sliced++;
      else return undefined;
    }
    return sliced;
  };
  let best: { readonly rule: Rule; readonly cost: number } | undefined;
  for (const rule of rules) {
    const c = cost(rule);
    if (c !== undefined && (best === undefined || c < best.cost)) best = { rule, cost: c };
  }
  if (best !== undefined) return best.rule.outputs;
  // Numbers alone that are still to be added up: they are, and what is made of them is a mean.
  if (!coming.every(({ slot }, i) => slot.kind === 'replicate' || (slot.kind === 'partial' && elements(metas[i]) <= 1))) return undefined;
  return [P('sum')];
} // prettier-ignore

/** A cut of whole rows from the first on, not inside other indices. */
const isPlain = (slot: RuleSlot): slot is ShardSlot => slot?.kind === 'shard' && !isStrided(slot);

function sameKind(a: RuleSlot, b: RuleSlot): boolean {
  return a?.kind === 'partial' ? b?.kind === 'partial' && a.op === b.op : a?.kind === b?.kind;
}

function elements({ shape }: TensorMeta): number {
  return shape.reduce((n, size) => n * size, 1);
}

// ---- the sequence ------------------------------------------------------------------------------------------------------

/** Where one dim of an input goes: by value, the dims that are the index, and those of which it is a later part. */
type Reached = Map<number, ReadonlyMap<number, 'whole' | 'inside'>>;

/** Dims that attention mixes, and those of other inputs (labels, positions) that the program takes together with them. */
function sequences(model: Program, rules: RuleLists, inputs: readonly InputTensor[], batch: ReadonlyMap<number, number>): Map<number, number> {
  const open = inputs.flatMap(({ node, shape }) => [...shape.keys()].filter((d) => shape[d] > 1 && d !== batch.get(node)).map((dim) => ({ node, dim })));
  const found = new Map<number, number>();
  const reached: Reached = new Map();
  const add = ({ node, dim }: { readonly node: number; readonly dim: number }): void => void (found.has(node) || found.set(node, dim));
  for (const seed of open) {
    const way = walk(model, rules, seed.node, seed.dim);
    if (!way.mixed) continue;
    add(seed);
    for (const [value, dims] of way.reached) reached.set(value, new Map([...(reached.get(value) ?? []), ...dims]));
  }
  // Labels that are shifted against the logits are not one index with them, but as long and cut the same way.
  const lengths = new Set([...found].map(([node, dim]) => sizeAt(inputs, node, dim)));
  if (found.size > 0) for (const seed of open) if (!found.has(seed.node) && (walk(model, rules, seed.node, seed.dim, reached).met || (batch.has(seed.node) && lengths.has(sizeAt(inputs, seed.node, seed.dim))))) add(seed);
  return found;
} // prettier-ignore

/** Follows one dim of an input through the forward pass, into dims that views merge and out again; `others` is what it may meet. */
function walk(
  model: Program,
  rules: RuleLists,
  input: number,
  dim: number,
  others: Reached = new Map(),
): { readonly mixed: boolean; readonly met: boolean; readonly reached: Reached } {
  const { graph, flow } = model;
  const start = flow.results[input][0];
  const size = flow.values[start].meta.shape[dim];
  const reached: Reached = new Map([[start, new Map([[dim, 'whole' as const]])]]);
  let mixed = false;
  let met = false;
  for (let n = 0; n < graph.nodes.length; n++) {
    const list = rules.of(n);
    const given = flow.inputs[n];
    if (list === undefined || !given.some((value) => reached.has(value))) continue;
    mixed ||= isMixedBy(graph.nodes[n].target, given.subarray(0, 2), flow, reached);
    for (const { inputs, outputs } of list)
      for (const [i, slot] of inputs.entries()) {
        const how = slot?.kind === 'shard' ? reached.get(given[i])?.get(slot.dim) : undefined;
        if (slot?.kind !== 'shard' || how === undefined || !passes(slot, how)) continue;
        met ||= inputs.some((mate, j) => j !== i && mate?.kind === 'shard' && mate.tie === slot.tie && others.get(given[j])?.get(mate.dim) === how);
        outputs.forEach((out, k) => {
          const value = flow.results[n][k];
          if (out?.kind !== 'shard' || out.tie !== slot.tie || value === undefined || value < 0) return;
          const next = isStrided(out) || (how === 'inside' && !isStrided(slot)) ? 'inside' : 'whole';
          if (next === 'whole' && flow.values[value].meta.shape[out.dim] !== size) return;
          const known = reached.get(value);
          if (known?.get(out.dim) !== 'whole') reached.set(value, new Map([...(known ?? []), [out.dim, next]]));
        });
      }
  }
  return { mixed, met, reached };
} // prettier-ignore

function passes(slot: ShardSlot, how: 'whole' | 'inside'): boolean {
  return how === 'whole' ? isPlain(slot) : isStrided(slot) || takesAnyCut(slot);
}

/** Whether the index is the rows of fused attention, or both sides of a table of scores. */
function isMixedBy(target: string, values: Int32Array, flow: Program['flow'], reached: Reached): boolean {
  const isRow = (value: number, fromEnd: number): boolean =>
    reached.get(value)?.get(flow.values[value].meta.shape.length - fromEnd) === 'whole';
  if (target.includes('scaled_dot_product')) return values.some((value) => isRow(value, 2));
  const [scores] = values;
  return (
    target.includes('softmax') && flow.values[scores].meta.shape.length > 2 && isRow(scores, 1) && isRow(scores, 2)
  );
}
