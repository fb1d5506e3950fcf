/** Draws a random feasible plan of a model from a seed, for tests of the lowering. */
import { placeholdersByRoleName } from '../../graph/carried.ts';
import { isPending } from '../../mesh/sharding/sharding.ts';
import type { Model, Use } from '../model/model.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { Plan } from '../record/types.ts';
import type { Decoded } from './decode.ts';
import { decode } from './decode.ts';

/**
 * A feasible plan drawn at random: any strategy of each node that its inputs can be brought to, any
 * placement of inputs and outputs, any shared copies. Optimal plans use a small part of the rules;
 * these use all of it, for tests of the lowering.
 */
export function randomPlan(
  prepared: Pick<Prepared, 'model' | 'question'>,
  seed: number,
): Pick<Plan, 'request' | 'nodes' | 'outputs' | 'parameters'> {
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
  if (choice === undefined)
    throw new Error(`internal: no feasible choice is found from seed ${seed}`);
  return choice;
}

function drawChoice(model: Model, seed: number, pendingCarries: boolean): Int32Array | undefined {
  const { nodeVariable, strategies, charges, flow, space } = model;
  const next = generator(seed);
  const choice = new Int32Array(model.variables.length).fill(-1);
  const uses = new Map<number, Use[]>();
  const add = (variable: number, use: Use): void => {
    const list = uses.get(variable);
    if (list === undefined) uses.set(variable, [use]);
    else list.push(use);
  };
  for (const use of model.uses) {
    add(use.variable, use);
    // A value that a body hands to its next trip is mostly made after the carry is placed.
    const maker = nodeVariable[flow.values[use.value].node];
    if (use.at.kind === 'carry' && maker !== use.variable) add(maker, use);
  }
  const ownedBy = (value: number): number => {
    const { node, result } = flow.values[value];
    const set = strategies.nodes[node]?.set;
    if (set === undefined) throw new Error(`internal: node ${node} has no strategies`);
    return set.specs[
      choice[nodeVariable[node]] * (set.inputCount + set.outputCount) + set.inputCount + result
    ];
  };
  /**
   * Tells whether both ends of a use can be as they are drawn; an end that is not drawn yet lies
   * ahead.
   */
  const reachable = (use: Use): boolean => {
    if (use.at.kind === 'carry') {
      const [maker, carry] = [
        choice[nodeVariable[flow.values[use.value].node]],
        choice[use.variable],
      ];
      const pending = carry >= 0 && isPendingSpec(use.demands.specs[use.demands.map[carry]]);
      if (maker < 0 || carry < 0) return pendingCarries || !pending;
    }
    const owned = ownedBy(use.value);
    const wanted = use.demands.specs[use.demands.map[choice[use.variable]]];
    return Number.isFinite(charges.seconds(charges.typeOf(flow.values[use.value]), owned, wanted));
  };
  const isPendingSpec = (id: number): boolean => space.get(id).placements.some(isPending);
  const ties = tiedVariables(model);
  let stuck = false;
  const draw = (variable: number, count: number): void => {
    const partner = ties.get(variable);
    if (partner !== undefined && choice[partner] >= 0) {
      choice[variable] = choice[partner];
      return;
    }
    // The effect of a placeholder's placement on gradients comes later and is always possible.
    const own = (uses.get(variable) ?? []).filter(
      (use) => use.at.kind === 'input' || !isPlaceholder(model, variable),
    );
    const candidates: number[] = [];
    for (let s = 0; s < count; s++) {
      choice[variable] = s;
      if (own.every(reachable)) candidates.push(s);
    }
    stuck ||= candidates.length === 0;
    choice[variable] =
      candidates.length === 0 ? 0 : candidates[Math.floor(next() * candidates.length)];
  };
  // Variables of nodes come first and in program order; outputs and copies look back at them.
  model.variables.forEach((v, variable) => {
    if (v.kind === 'node') draw(variable, strategies.nodes[v.node]?.set.count ?? 0);
  });
  model.variables.forEach((v, variable) => {
    if (v.kind === 'output') draw(variable, v.specs.length);
    if (v.kind !== 'copy') return;
    const { value, owned } = model.copies[v.copy];
    const candidates: number[] = [];
    owned.forEach((id, z) => {
      if (id === ownedBy(value)) candidates.push(z);
    });
    choice[variable] = candidates[Math.floor(next() * candidates.length)];
  });
  return stuck ? undefined : choice;
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
