import { ShardwrightError, suggestion } from '../errors.ts';
import { einshardOnMesh } from '../mesh/einshard/on-mesh.ts';
import { isEinshard } from '../mesh/einshard/syntax.ts';
import type { ShardingSpace } from '../mesh/space.ts';
import type { Problem } from '../solver/types.ts';
import { compactProblem, KeptLists, type CompactProblem, type KeptList } from './compact.ts';
import type { Model } from './model.ts';
import type { Pin } from './request.ts';

/**
 * Restrictions of a model: values of variables that are taken away, and by what. A pin is a restriction; so is a recipe of
 * the zoo. Restricting never changes the model: it makes a problem of its own, and dropping the restriction restores the
 * earlier one exactly.
 */
export class Restriction {
  private readonly allowed = new Map<number, Uint8Array>();
  private readonly reasons = new Map<number, string[]>();

  constructor(private readonly model: Model) {}

  /** Keeps only the values of a variable that the predicate accepts. `reason` is named if nothing is left. */
  keep(variable: number, reason: string, accepts: (value: number) => boolean): void {
    const size = this.model.problem.domains[variable];
    let mask = this.allowed.get(variable);
    if (mask === undefined) {
      mask = new Uint8Array(size).fill(1);
      this.allowed.set(variable, mask);
      this.reasons.set(variable, []);
    }
    let removed = 0;
    for (let a = 0; a < size; a++) {
      if (mask[a] === 1 && !accepts(a)) {
        mask[a] = 0;
        removed++;
      }
    }
    if (removed > 0) this.reasons.get(variable)!.push(reason);
  }

  /** `keep` with a list that says 1 of every value to keep; what many variables share is worked out once. */
  keepMarked(variable: number, reason: string, marked: Uint8Array): void {
    const mask = this.allowed.get(variable);
    if (mask === undefined) {
      if (!marked.includes(0)) return;
      this.allowed.set(variable, marked.slice());
      this.reasons.set(variable, [reason]);
      return;
    }
    let removed = 0;
    for (let a = 0; a < mask.length; a++) {
      removed += mask[a] & ~marked[a];
      mask[a] &= marked[a];
    }
    if (removed > 0) this.reasons.get(variable)!.push(reason);
  }

  /** 1 for every value that is left of a variable; undefined where all are. Not to be changed. */
  left(variable: number): Readonly<Uint8Array> | undefined {
    return this.allowed.get(variable);
  }

  allows(variable: number, value: number): boolean {
    return (this.allowed.get(variable)?.[value] ?? 1) === 1;
  }

  /** Reasons that together leave some variable nothing; empty when every variable still has a value. */
  contradictions(): string[] {
    const out = new Set<string>();
    for (const [variable, mask] of [...this.allowed].sort(([a], [b]) => a - b))
      if (!mask.includes(1)) for (const reason of this.reasons.get(variable)!) out.add(reason);
    return [...out];
  }

  /**
   * The model's problem with the removed values left out: same variables, smaller domains. A copy variable also loses the
   * pairs whose owned placement its producer can no longer leave.
   */
  compact(): CompactProblem {
    const { problem } = this.model;
    if (this.allowed.size === 0) return { problem, expand: (choice) => choice, contract: (choice) => choice };
    const lists = new KeptLists();
    const kept: (KeptList | undefined)[] = Array.from({ length: problem.domains.length }, (_, v) => {
      const mask = this.allowed.get(v);
      return mask === undefined ? undefined : lists.ofMask(mask);
    });
    for (const copy of this.model.copies) {
      const { node, result } = this.model.flow.values[copy.value];
      const left = kept[this.model.nodeVariable[node]];
      if (left === undefined) continue;
      const entry = this.model.strategies.nodes[node]!;
      // Equal producers with equal values left, and equal copy domains, lose the same pairs.
      kept[copy.variable] = lists.of(`${entry.content}:${result}:${left.id}:${lists.idOf(copy.owned)}`, () => {
        const { set } = entry;
        const column = set.inputCount + result;
        const width = set.inputCount + set.outputCount;
        const owned = new Set(Array.from(left.values, (a) => set.specs[a * width + column]));
        return Int32Array.from(copy.owned.keys()).filter((z) => owned.has(copy.owned[z]));
      });
    }
    return compactProblem(problem, kept);
  }

  /** The model's problem without the removed values: same variables and values, removed ones cost Infinity. */
  problem(): Problem {
    const { problem } = this.model;
    if (this.allowed.size === 0) return problem;
    const unary = Int32Array.from(problem.unary);
    const vectors = [...problem.vectors];
    const shared = new Map<string, number>();
    for (const [variable, mask] of this.allowed) {
      const key = `${unary[variable]}:${mask.join('')}`;
      let id = shared.get(key);
      if (id === undefined) {
        id = vectors.length;
        vectors.push(vectors[unary[variable]].map((cost, a) => (mask[a] === 1 ? cost : Infinity)));
        shared.set(key, id);
      }
      unary[variable] = id;
    }
    return { ...problem, unary, vectors };
  }
}

/** Parses `NODE=SPEC`. */
export function parsePin(text: string): Pin {
  const equals = text.indexOf('=');
  if (equals <= 0 || equals === text.length - 1)
    throw new ShardwrightError('E_USAGE', `--pin '${text}' is not NODE=SPEC`, {
      hint: "write for example --pin 'lm_head.weight=S(0)R'.",
    });
  return { node: text.slice(0, equals), spec: text.slice(equals + 1) };
}

/**
 * Adds the user's pins to a restriction.
 *
 * @throws E_REF for a node that does not exist, E_PIN for a sharding that the node has no strategy for
 */
export function applyPins(model: Model, restriction: Restriction, pins: readonly Pin[]): void {
  const { graph, space, flow } = model;
  const roleNames = new Map<string, string>();
  for (const node of graph.nodes)
    if (node.kind === 'placeholder' && node.meta.roleName !== undefined) roleNames.set(node.meta.roleName, node.name);
  for (const pin of pins) {
    const name = flow.byName.has(pin.node) ? pin.node : roleNames.get(pin.node);
    if (name === undefined) {
      const known = [...flow.byName.keys(), ...roleNames.keys()];
      throw new ShardwrightError('E_REF', `pin names '${pin.node}', which the graph does not have`, {
        hint: suggestion(pin.node, known, 'nodes and parameters'),
      });
    }
    const value = flow.values[flow.valueOf(name)];
    const wanted = shardingId(space, pin.spec, value.meta.shape, `--pin ${pin.node}=${pin.spec}`);
    const { set } = model.strategies.nodes[value.node]!;
    const width = set.inputCount + set.outputCount;
    const column = set.inputCount + value.result;
    const specOf = (a: number): number => set.specs[a * width + column];
    let offered = false;
    for (let a = 0; a < set.count && !offered; a++) offered = specOf(a) === wanted;
    if (!offered) {
      const list = [...new Set(Array.from({ length: set.count }, (_, a) => specOf(a)))].map((id) => space.text(id));
      const size = `[${value.meta.shape.join(', ')}]`;
      throw new ShardwrightError('E_PIN', `'${pin.node}' ${size} cannot be ${space.text(wanted)}`, {
        node: name,
        hint: `it can be ${list.slice(0, 24).join(' ')}${list.length > 24 ? ' ...' : ''}`,
      });
    }
    restriction.keep(model.nodeVariable[value.node], `--pin ${pin.node}=${pin.spec}`, (a) => specOf(a) === wanted);
  }
}

/**
 * Id of a sharding text of a tensor, in placements (`S(0)R`) or in einshard (`a b -> a8 b 8`). Errors name the flag in
 * place of a column, because columns are those of the model's text here.
 */
function shardingId(space: ShardingSpace, text: string, shape: readonly number[], flag: string): number {
  try {
    return isEinshard(text) ? space.intern(einshardOnMesh(text, space.mesh, shape)) : space.parse(text);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    const { hint } = error.details;
    throw new ShardwrightError(error.code, `${flag}: ${error.message}`, hint === undefined ? {} : { hint });
  }
}

/** Requires one sharding of all inputs (or all outputs); 'free' requires nothing. */
export function applyInputOutput(model: Model, restriction: Restriction, inputs: string, outputs: string): void {
  const { graph, space, flow, strategies, nodeVariable } = model;
  if (inputs !== 'free') {
    // A text that is wrong for every tensor is refused even if there is no input.
    if (!isEinshard(inputs)) shardingId(space, inputs, [], '--inputs');
    graph.nodes.forEach((node, n) => {
      if (node.kind !== 'placeholder' || node.meta.role !== 'input') return;
      const wanted = shardingId(space, inputs, flow.values[flow.results[n][0]].meta.shape, `--inputs (${node.name})`);
      const { set } = strategies.nodes[n]!;
      restriction.keep(nodeVariable[n], `--inputs ${inputs}`, (a) => set.specs[a] === wanted);
    });
  }
  if (outputs === 'free') return;
  if (!isEinshard(outputs)) shardingId(space, outputs, [], '--outputs');
  for (const use of model.uses) {
    if (use.at.kind !== 'output' || flow.outputs[use.at.output].output.role !== 'output') continue;
    const wanted = shardingId(space, outputs, flow.values[use.value].meta.shape, '--outputs');
    const { specs, map } = use.demands;
    restriction.keep(use.variable, `--outputs ${outputs}`, (a) => specs[map[a]] === wanted);
  }
}
