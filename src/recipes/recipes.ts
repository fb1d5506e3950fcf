/** Lists the recipes of a mesh and turns one into restrictions of a planning problem. */

import { defined } from '../defined.ts';
import { roleName } from '../graph/nodes.ts';
import {
  isPartialCode,
  REPLICATE_CODE,
  shardCode,
  type ShardingSpace,
} from '../mesh/sharding/space.ts';
import type { StrategySet } from '../ops/expansion/expand.ts';
import type { Model } from '../plan/model/model.ts';
import { Restriction } from '../plan/restrict/restriction.ts';
import { attentionNodes } from '../step/read/attention-paths.ts';
import { routedPart } from '../step/read/routed-part.ts';
import type { NodeStrategies } from '../strategy/nodes.ts';
import { placeActivations } from './activations.ts';
import { type InputRoles, inputRoles } from './inputs/roles.ts';
import { placeAttention, uncutAttention } from './key-values.ts';
import { lockDataDim } from './lock.ts';
import {
  cutsExperts,
  cutsInsideExperts,
  inputCut,
  isTensor,
  type Part,
  type Recipe,
  storesCut,
} from './parts.ts';
import { isCutAlongSequence } from './sequence.ts';
import { isCast, type WeightRole, weightRoles } from './weights.ts';

export type { Part, Recipe } from './parts.ts';

/** A recipe made ready, or the reason why the model does not admit it. */
type AppliedRecipe = { readonly restriction: Restriction } | { readonly refused: string };

/**
 * The recipes of a mesh, in a fixed order: data dims are taken from the outside, the tensor or
 * sequence dim is the innermost. Those of a sequence dim are there where the program can be cut
 * along it.
 */
export function meshRecipes(model: Model, inputs: InputRoles = inputRoles(model)): Recipe[] {
  const { dims } = model.space.mesh;
  const n = dims.length;
  const recipes: Recipe[] = [];
  const add = (
    label: (active: string) => string,
    part: Part,
    last: Part,
    from: number,
    to: number,
  ): void => {
    const parts = dims.map((_, d): Part =>
      d >= from && d < to ? part : d === n - 1 && last === 'tensor' ? last : 'replicate',
    );
    const active = dims
      .filter((_, d) => d >= from && d < to)
      .map((d) => d.name)
      .join('+');
    recipes.push({ name: label(active), parts });
  };
  recipes.push({ name: 'replicated', parts: dims.map(() => 'replicate') });
  add((a) => `data parallel (${a})`, 'data', 'replicate', 0, n);
  for (let d = 0; d < n; d++) add((a) => `FSDP (${a})`, 'fsdp', 'replicate', d, d + 1);
  if (n > 1) {
    add((a) => `FSDP (${a})`, 'fsdp', 'replicate', 0, n);
    const tensor = dims[n - 1].name;
    add((a) => `data parallel (${a}) + Megatron (${tensor})`, 'data', 'tensor', 0, n - 1);
    add((a) => `FSDP (${a}) + Megatron (${tensor})`, 'fsdp', 'tensor', 0, n - 1);
  } else recipes.push({ name: `Megatron (${dims[0].name})`, parts: ['tensor'] });
  recipes.push(...expertRecipes(model));
  const isCut = model.space.mesh.sizes[n - 1] > 1 && isCutAlongSequence(model, inputs);
  return isCut ? [...recipes, ...sequenceRecipes(dims.map((d) => d.name))] : recipes;
}

/** Routed experts over the dim `ep`, data ranks on it and outside of it, tensor ranks inside. */
function expertRecipes(model: Model): Recipe[] {
  const names = model.space.mesh.dims.map((d) => d.name);
  const at = names.indexOf('ep');
  const inner = names.slice(at + 1);
  if (at < 0 || inner.length > 1 || routedPart(model) === undefined) return [];
  return (['data', 'fsdp'] as const).map((part) => ({
    name: expertRecipeName(names, part),
    parts: [
      ...names.slice(0, at).map((): Part => part),
      part === 'data' ? 'expert' : 'expert-fsdp',
      ...inner.map((): Part => 'tensor-sequence-expert'),
    ],
  }));
}

/** The name of a recipe of experts over the dim `ep`, such as `FSDP (dp+ep), experts (ep)`. */
export function expertRecipeName(names: readonly string[], part: 'data' | 'fsdp'): string {
  const at = names.indexOf('ep');
  const data = names.slice(0, at + 1).join('+');
  const tensor = names.slice(at + 1).map((name) => ` + Megatron (${name})`);
  return `${part === 'data' ? 'data parallel' : 'FSDP'} (${data}), experts (ep)${tensor.join('')}`;
}

/**
 * The sequence cut on the innermost mesh dim and the batch on the others; parameters whole, or cut
 * over all of them.
 */
function sequenceRecipes(names: readonly string[]): Recipe[] {
  const [outer, inner] = [names.slice(0, -1), names[names.length - 1]];
  return (['context', 'ulysses'] as const).flatMap((part): Recipe[] => {
    const how = part === 'context' ? `context parallel (${inner})` : `Ulysses (${inner})`;
    return [
      {
        name: outer.length === 0 ? how : `data parallel (${outer.join('+')}) + ${how}`,
        parts: [...outer.map((): Part => 'data'), part],
      },
      {
        name: `FSDP (${names.join('+')}) + ${how}`,
        parts: [...outer.map((): Part => 'fsdp'), `${part}-fsdp`],
      },
    ];
  });
}

/**
 * Restricts the model to a recipe; `roles` and `inputs` are those of the model, for whoever applies
 * several recipes.
 */
export function applyRecipe(
  model: Model,
  recipe: Recipe,
  roles: ReadonlyMap<number, WeightRole> = weightRoles(model.graph, model.flow),
  inputs: InputRoles = inputRoles(model),
): AppliedRecipe {
  const restriction = new Restriction(model);
  if (
    recipe.parts.some(isTensor) &&
    ![...roles.values()].some((r) => r.kind !== 'whole' && r.kind !== 'expert')
  )
    return { refused: 'no weight has a name that tells its Megatron role' };
  const experts = [...roles.values()].filter((r) => r.kind === 'expert');
  if (
    recipe.parts.some((part) => cutsExperts(part) || cutsInsideExperts(part)) &&
    experts.length === 0
  )
    return { refused: 'no weight has the name of routed experts' };
  if (recipe.parts.some(cutsInsideExperts) && experts.some((r) => r.inner === undefined))
    return { refused: 'the weights of the experts do not tell which dim is inside them' };
  const refused = placeInputs(model, restriction, recipe, inputs);
  if (refused !== undefined) return { refused };
  const weights = placeParameters(model, restriction, recipe, roles);
  replicateIdleDims(model, restriction, recipe);
  const unplaced = placeActivations(model, restriction, recipe);
  if (unplaced !== undefined) return { refused: unplaced };
  if (
    recipe.parts.some((part) => inputCut(part) === 'sequence') &&
    attentionNodes(model, 'forward').length === 0
  )
    return {
      refused:
        'the model has no fused attention, whose queries and keys the plan cuts along the sequence',
    };
  for (const [d, part] of recipe.parts.entries()) {
    const uncut = inputCut(part) === 'sequence' ? uncutAttention(model, part, d) : undefined;
    if (uncut !== undefined) return { refused: uncut };
  }
  const moves = recipe.parts.map((part, d) =>
    inputCut(part) === 'sequence' ? placeAttention(model, restriction, recipe, d) : undefined,
  );
  recipe.parts.forEach((part, d) => {
    if (inputCut(part) !== undefined)
      lockDataDim(model, restriction, d, weights, defined({ moves: moves[d] }));
    else if (part === 'tensor-whole')
      lockDataDim(model, restriction, d, weights, { reduced: true });
  });
  const [reason] = restriction.contradictions();
  return reason === undefined ? { restriction } : { refused: reason };
}

/**
 * Inputs and tangents: cut on their batch by the data dims, on their sequence by the sequence dims,
 * whole on the others.
 */
function placeInputs(
  model: Model,
  restriction: Restriction,
  recipe: Recipe,
  inputs: InputRoles,
): string | undefined {
  const { graph, flow, space, strategies, nodeVariable } = model;
  const cuts = recipe.parts.map(inputCut);
  for (const role of ['batch', 'sequence'] as const) {
    const ways = cuts.reduce((w, cut, d) => (cut === role ? w * space.mesh.sizes[d] : w), 1);
    if (ways === 1) continue;
    const cut = [...inputs].flatMap(([n, { [role]: dim }]) =>
      dim === undefined ? [] : [{ n, dim }],
    );
    if (cut.length === 0)
      return (
        `no input has a ${role} that the program tells: ${UNTOLD[role]}; say it with ` +
        `--${role}-dim NAME=D`
      );
    for (const { n, dim } of cut) {
      const size = flow.values[flow.results[n][0]].meta.shape[dim];
      if (size < ways || size % ways !== 0)
        return (
          `the ${role} of ${size} (input ` +
          `${roleName(graph.nodes[n])}) cannot be cut ${ways} ways`
        );
    }
  }
  for (const [n, dims] of inputs) {
    const { set } = strategies.nodes[n]!;
    const code = (role: 'batch' | 'sequence' | undefined): number => {
      const dim = role === undefined ? undefined : dims[role];
      return dim === undefined ? REPLICATE_CODE : shardCode(dim);
    };
    restriction.keep(nodeVariable[n], `recipe ${recipe.name}`, (a) =>
      cuts.every((role, d) => space.kindAt(set.specs[a], d) === code(role)),
    );
  }
  return undefined;
}

const UNTOLD = {
  batch: 'no dim reaches the loss as a sum or mean of its parts',
  sequence: 'there is no dim that attention mixes',
} as const;

/**
 * Parameters: where they are stored, and in which placement the program takes them. Returns the
 * latter: the code on each mesh dim of every parameter and of its views.
 */
function placeParameters(
  model: Model,
  restriction: Restriction,
  recipe: Recipe,
  roles: ReadonlyMap<number, WeightRole>,
): Map<number, readonly number[]> {
  const placer = new ParameterPlacer(model, restriction, recipe);
  for (const [n, node] of model.graph.nodes.entries())
    if (node.kind === 'placeholder' && node.meta.role === 'parameter')
      placer.store(n, roles.get(n) ?? { kind: 'whole' });
  for (const [n, i] of weightTakers(model)) placer.take(n, i);
  return placer.taken;
}

/** Codes of a parameter by mesh dim: as the program takes it, and as it is stored. */
interface ParameterCodes {
  readonly used: readonly number[];
  readonly stored: readonly number[];
}

/** Keeps the placements of parameters, and of the calls that take them, that a recipe has. */
class ParameterPlacer {
  /**
   * For every value made from one parameter by views alone: the code in which each mesh dim takes
   * it. A replicated one may also be taken as pending (a bias is added once), and over the tensor
   * dim in slices: both are free.
   */
  readonly taken = new Map<number, readonly number[]>();
  /** Codes of parameters as they are stored, by value. */
  private readonly stored = new Map<number, readonly number[]>();
  /** Equal parameters and equal takers are answered once. */
  private readonly known = new Map<string, Uint8Array>();

  constructor(
    private readonly model: Model,
    private readonly restriction: Restriction,
    private readonly recipe: Recipe,
  ) {}

  /** Where a parameter is stored. */
  store(n: number, role: WeightRole): void {
    const { flow, space, strategies, nodeVariable } = this.model;
    const [value] = flow.results[n];
    const { used, stored } = this.codesOf(role, flow.values[value].meta.shape);
    const { content, set } = strategies.nodes[n]!;
    const places = this.marked(`${content}:${used.join()}:${stored.join()}`, set, (a) => {
      const id = set.specs[a];
      if (!stored.every((code, d) => space.kindAt(id, d) === code)) return false;
      // FSDP cuts what tensor parallelism left, so its mesh dims come last and one all-gather
      // undoes them.
      const order = space.get(id).orderOf(0);
      const sorted = [...order].sort(
        (x, y) => Number(used[x] !== stored[x]) - Number(used[y] !== stored[y]) || x - y,
      );
      return order.every((d, i) => d === sorted[i]);
    });
    this.restriction.keepMarked(nodeVariable[n], `recipe ${this.recipe.name}`, places);
    this.taken.set(value, used);
    this.stored.set(value, stored);
  }

  /**
   * The placement in which a call takes a parameter as its input i, and a view or a cast gives it
   * on. A cast may also take it as it is stored: it is then gathered in the dtype of the cast.
   */
  take(n: number, i: number): void {
    const { graph, flow, space, strategies, nodeVariable } = this.model;
    const codes = this.taken.get(flow.inputs[n][i]);
    const entry = strategies.nodes[n];
    if (codes === undefined || entry === null) return;
    const { set } = entry;
    const width = set.inputCount + set.outputCount;
    const stored = isCast(graph.nodes[n]) ? this.stored.get(flow.inputs[n][i]) : undefined;
    const accepts = (a: number): boolean =>
      codes.every((code, d) => {
        const kind = space.kindAt(set.specs[a * width + i], d);
        if (kind === code || kind === stored?.[d]) return true;
        return code === REPLICATE_CODE && (isPartialCode(kind) || isTensor(this.recipe.parts[d]));
      });
    this.restriction.keepMarked(
      nodeVariable[n],
      `${graph.nodes[n].name} cannot take its weight as ${this.recipe.name} stores it`,
      this.marked(`${entry.content}/${i}:${codes.join()}:${stored?.join() ?? ''}`, set, accepts),
    );
    if (stored !== undefined) this.taken.set(flow.results[n][0], codes);
    if (stored !== undefined || !isView(entry)) return;
    const leaves = this.leftBy(set, codes);
    if (leaves !== undefined) this.taken.set(flow.results[n][0], leaves);
  }

  /**
   * The codes of a view whose input has these codes; undefined where there are several: a class
   * token that is expanded to the batch is whole or cut with it, and is no weight any more.
   */
  private leftBy(set: StrategySet, codes: readonly number[]): readonly number[] | undefined {
    const { space } = this.model;
    const leaves = new Map<string, readonly number[]>();
    for (let a = 0; a < set.count; a++) {
      if (!codes.every((code, d) => space.kindAt(set.specs[a * 2], d) === code)) continue;
      const left = codes.map((_, d) => space.kindAt(set.specs[a * 2 + 1], d));
      leaves.set(left.join(), left);
    }
    return leaves.size === 1 ? [...leaves.values()][0] : undefined;
  }

  private codesOf(role: WeightRole, shape: readonly number[]): ParameterCodes {
    const { sizes } = this.model.space.mesh;
    const { parts } = this.recipe;
    const used = parts.map((part, d) => {
      const dim = cutDim(role, part);
      return dim === undefined || shape[dim] < sizes[d] ? REPLICATE_CODE : shardCode(dim);
    });
    let cut = 1;
    const stored = parts.map((part, d) => {
      const own = used[d];
      // Experts are used as they are stored.
      if (!storesCut(part) || own !== REPLICATE_CODE) return own;
      const already = used.reduce(
        (product, code, e) => (code === shardCode(0) ? product * sizes[e] : product),
        cut,
      );
      // A parameter with fewer rows than devices stays whole, as every FSDP implementation keeps
      // it; experts are then cut inside, as torchtitan 0.3.0 has it (`distributed/fsdp.py` places
      // them by `Shard(1)` where there are more devices than experts).
      const isFull = shape.length === 0 || shape[0] < already * sizes[d];
      if (isFull)
        return role.kind === 'expert' && shape.length === 3 ? shardCode(1) : REPLICATE_CODE;
      cut *= sizes[d];
      return shardCode(0);
    });
    return { used, stored };
  }

  private marked(key: string, set: StrategySet, accepts: (a: number) => boolean): Uint8Array {
    let found = this.known.get(key);
    if (found === undefined)
      this.known.set(
        key,
        (found = Uint8Array.from({ length: set.count }, (_, a) => (accepts(a) ? 1 : 0))),
      );
    return found;
  }
}

const isView = ({ record, set }: NodeStrategies): boolean =>
  record?.cls === 'view' && set.inputCount === 1 && set.outputCount === 1;

/**
 * By model: the calls that take parameters or views of them, and as which input, in program order.
 */
const TAKERS = new WeakMap<Model, readonly (readonly [node: number, input: number])[]>();

function weightTakers(model: Model): readonly (readonly [node: number, input: number])[] {
  const known = TAKERS.get(model);
  if (known !== undefined) return known;
  const { graph, flow, strategies } = model;
  const weights = new Uint8Array(flow.values.length);
  const takers: [number, number][] = [];
  for (const [n, node] of graph.nodes.entries()) {
    if (node.kind === 'placeholder' && node.meta.role === 'parameter')
      weights[flow.results[n][0]] = 1;
    const entry = strategies.nodes[n];
    if (node.kind !== 'call' || entry === null) continue;
    for (const [i, value] of flow.inputs[n].entries()) {
      if (weights[value] === 0) continue;
      takers.push([n, i]);
      if (isView(entry) || isCast(node)) weights[flow.results[n][0]] = 1;
    }
  }
  TAKERS.set(model, takers);
  return takers;
}

/** Dim on which a part has a weight cut where it is used. */
function cutDim(role: WeightRole, part: Part): number | undefined {
  if (role.kind === 'whole') return undefined;
  if (role.kind !== 'expert') return isTensor(part) ? role.dim : undefined;
  if (cutsExperts(part)) return role.dim;
  return cutsInsideExperts(part) ? role.inner : undefined;
}

/** On a mesh dim without a part every tensor of every node is replicated. */
function replicateIdleDims(model: Model, restriction: Restriction, recipe: Recipe): void {
  const { space, strategies, nodeVariable } = model;
  const idle = recipe.parts.flatMap((part, d) => (part === 'replicate' ? [d] : []));
  if (idle.length === 0) return;
  const whole = new Map<StrategySet, Uint8Array>();
  strategies.nodes.forEach((entry, n) => {
    if (entry === null) return;
    let marked = whole.get(entry.set);
    if (marked === undefined) whole.set(entry.set, (marked = wholeOver(space, entry.set, idle)));
    restriction.keepMarked(nodeVariable[n], `recipe ${recipe.name}`, marked);
  });
}

/** 1 for every strategy whose tensors are all replicated over these mesh dims. */
function wholeOver(space: ShardingSpace, set: StrategySet, dims: readonly number[]): Uint8Array {
  const width = set.inputCount + set.outputCount;
  const marked = new Uint8Array(set.count).fill(1);
  for (let t = 0; t < set.count * width; t++) {
    const id = set.specs[t];
    if (id >= 0 && dims.some((d) => space.kindAt(id, d) !== REPLICATE_CODE))
      marked[Math.floor(t / width)] = 0;
  }
  return marked;
}
