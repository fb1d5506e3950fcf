/** Draws a random feasible plan of a model from a seed, for tests of the lowering. */
import { checkKinds } from '../../arguments.ts';
import { internalError } from '../../errors.ts';
import { placeholdersByRoleName } from '../../graph/carried.ts';
import { push } from '../../list-map.ts';
import { isPending } from '../../mesh/sharding/sharding.ts';
import type { Model, Use } from '../model/model.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { Plan } from '../record/types.ts';
import { decode, type Decoded } from './decode.ts';

/**
 * A feasible plan drawn at random: any strategy of each node that its inputs can be brought to, any
 * placement of inputs and outputs, any shared copies. Optimal plans use a small part of the rules;
 * these use all of it, for tests of the lowering.
 */
export function randomPlan(
  prepared: Pick<Prepared, 'model' | 'question'>,
  seed: number,
): Pick<Plan, 'request' | 'nodes' | 'outputs' | 'parameters'> {
  checkKinds('randomPlan', {
    prepared: [prepared, 'prepared'],
    seed: [seed, 'number'],
  });
  const {
    model,
    question: { request },
  } = prepared;
  const decoded: Decoded = decode(model, randomChoice(model, seed));
  return {
    request,
    nodes: decoded.nodes,
    outputs: decoded.outputs,
    parameters: decoded.parameters,
  };
}

/**
 * A feasible choice of the model. Nodes are drawn in program order; gradients go to the placement
 * of their parameter, which every value can reach. So do carries of loops, unless they are pending
 * and the body leaves a value that cannot be: then another choice is drawn, without pending
 * carries.
 */
export function randomChoice(model: Model, seed: number): Int32Array {
  const choice = drawChoice(model, seed, true) ?? drawChoice(model, seed, false);
  if (choice === undefined) throw internalError(`no feasible choice is found from seed ${seed}`);
  return choice;
}

function drawChoice(model: Model, seed: number, pendingCarries: boolean): Int32Array | undefined {
  const draw = new ChoiceDraw(model, generator(seed), pendingCarries);
  // Variables of nodes come first and in program order; outputs and copies look back at them.
  model.variables.forEach((v, variable) => {
    if (v.kind === 'node') draw.draw(variable, model.strategies.nodes[v.node]?.set.count ?? 0);
  });
  model.variables.forEach((v, variable) => {
    if (v.kind === 'output') draw.draw(variable, v.specs.length);
    if (v.kind === 'copy') draw.drawCopy(variable, v.copy);
  });
  return draw.isStuck ? undefined : draw.choice;
}

/** Draws the value of one variable after another. */
class ChoiceDraw {
  readonly choice: Int32Array;
  /** True once a variable had no value that all its uses admit. */
  isStuck = false;
  private readonly uses: ReadonlyMap<number, readonly Use[]>;
  /** By the variable that decides where a value lies: the uses of it. */
  private readonly usesOfResults: ReadonlyMap<number, readonly Use[]>;
  private readonly ties: ReadonlyMap<number, number>;

  constructor(
    private readonly model: Model,
    private readonly next: () => number,
    private readonly pendingCarries: boolean,
  ) {
    this.choice = new Int32Array(model.variables.length).fill(-1);
    this.uses = usesByVariable(model);
    this.usesOfResults = usesOfResults(model);
    this.ties = tiedVariables(model);
  }

  draw(variable: number, count: number): void {
    const { choice } = this;
    const partner = this.ties.get(variable);
    if (partner !== undefined && choice[partner] >= 0) {
      choice[variable] = choice[partner];
      return;
    }
    // The effect of a placeholder's placement on gradients comes later and is always possible.
    const own = (this.uses.get(variable) ?? []).filter(
      (use) => use.at.kind === 'input' || !isPlaceholder(this.model, variable),
    );
    const ahead = (this.usesOfResults.get(variable) ?? []).filter(
      (use) => choice[use.variable] < 0,
    );
    const candidates: number[] = [];
    for (let s = 0; s < count; s++) {
      choice[variable] = s;
      if (own.every((use) => this.isReachable(use)) && ahead.every((use) => this.isOpen(use)))
        candidates.push(s);
    }
    this.isStuck ||= candidates.length === 0;
    choice[variable] =
      candidates.length === 0 ? 0 : candidates[Math.floor(this.next() * candidates.length)];
  }

  drawCopy(variable: number, copy: number): void {
    const { value, owned } = this.model.copies[copy];
    const candidates: number[] = [];
    owned.forEach((id, z) => {
      if (id === this.ownedBy(value)) candidates.push(z);
    });
    this.choice[variable] = candidates[Math.floor(this.next() * candidates.length)];
  }

  /**
   * Tells whether both ends of a use can be as they are drawn; an end that is not drawn yet lies
   * ahead.
   */
  private isReachable(use: Use): boolean {
    const { nodeVariable, flow, space } = this.model;
    const { specs, map } = use.demands;
    if (use.at.kind === 'carry') {
      const maker = this.choice[nodeVariable[flow.values[use.value].node]];
      const carry = this.choice[use.variable];
      const pending = carry >= 0 && space.get(specs[map[carry]]).placements.some(isPending);
      if (maker < 0 || carry < 0) return this.pendingCarries || !pending;
    }
    return this.canMove(use.value, specs[map[this.choice[use.variable]]]);
  }

  /**
   * Tells whether a use that is drawn later has a demand that the value can be brought to: a region
   * that takes addends takes no pieces, whatever else is drawn.
   */
  private isOpen({ value, demands }: Use): boolean {
    return demands.specs.some((wanted) => this.canMove(value, wanted));
  }

  private canMove(value: number, wanted: number): boolean {
    const { charges, flow } = this.model;
    const type = charges.typeOf(flow.values[value]);
    return Number.isFinite(charges.seconds(type, this.ownedBy(value), wanted));
  }

  private ownedBy(value: number): number {
    const { nodeVariable, strategies, flow } = this.model;
    const { node, result } = flow.values[value];
    const set = strategies.nodes[node]?.set;
    if (set === undefined) throw internalError(`node ${node} has no strategies`);
    const width = set.inputCount + set.outputCount;
    return set.specs[this.choice[nodeVariable[node]] * width + set.inputCount + result];
  }
}

function usesOfResults({ uses, nodeVariable, flow }: Model): Map<number, Use[]> {
  const out = new Map<number, Use[]>();
  for (const use of uses)
    if (use.at.kind === 'input') push(out, nodeVariable[flow.values[use.value].node], use);
  return out;
}

function usesByVariable({ uses, nodeVariable, flow }: Model): Map<number, Use[]> {
  const out = new Map<number, Use[]>();
  for (const use of uses) {
    push(out, use.variable, use);
    // A value that a body hands to its next trip is mostly made after the carry is placed.
    const maker = nodeVariable[flow.values[use.value].node];
    if (use.at.kind === 'carry' && maker !== use.variable) push(out, maker, use);
  }
  return out;
}

function isPlaceholder(model: Model, variable: number): boolean {
  const v = model.variables[variable];
  return v.kind === 'node' && model.graph.nodes[v.node].kind === 'placeholder';
}

/**
 * Variables of tied parameters, each with the first of its group. Members of a group have equal
 * domains.
 */
function tiedVariables(model: Model): Map<number, number> {
  const byRole = placeholdersByRoleName(model.graph);
  const variableOf = (name: string): number | undefined =>
    model.nodeVariable[byRole.get(name) ?? -1];
  const out = new Map<number, number>();
  for (const [owner, ...others] of model.graph.ties ?? []) {
    const first = variableOf(owner);
    for (const other of others) {
      const variable = variableOf(other);
      if (first !== undefined && variable !== undefined) out.set(variable, first);
    }
  }
  return out;
}

/** Numbers from 0 to below 1 (xorshift with a multiplication). */
function generator(seed: number): () => number {
  let state = Math.imul(seed + 1, 0x9e3779b1) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (Math.imul(state, 0x2c1b3c6d) >>> 0) / 2 ** 32;
  };
}
