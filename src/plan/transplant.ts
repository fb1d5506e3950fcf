import { ShardwrightError } from '../errors.ts';
import { decode } from './decode.ts';
import type { LowerablePlan } from './lower.ts';
import type { Prepared } from './prepare.ts';
import type { PlannedRedistribution } from './types.ts';

/**
 * The placements of a plan on the same graph at other sizes: every node, copy and output is placed as the plan says, and the
 * redistributions are those of the new sizes. So the plan of a model that is far too large to run can be run with numbers.
 *
 * @param prepared the request of the plan, for the graph at the other sizes
 * @throws E_PLAN, with the node, where a placement of the plan does not exist at these sizes
 */
export function transplant(plan: LowerablePlan, prepared: Prepared): LowerablePlan {
  const decoded = decode(prepared.model, choiceOfPlan(plan, prepared));
  return { request: prepared.request, nodes: decoded.nodes, outputs: decoded.outputs };
}

/**
 * The choice that a plan is, in the model of a prepared request: the way back from placements to the solver's numbers.
 *
 * @throws E_PLAN, with the node, where a placement of the plan is none of the model
 */
export function choiceOfPlan(plan: Pick<LowerablePlan, 'nodes' | 'outputs'>, prepared: Prepared): Int32Array {
  const { model } = prepared;
  const { space, flow, strategies, nodeVariable, graph } = model;
  if (plan.nodes.length !== graph.nodes.length)
    throw new ShardwrightError('E_PLAN', `the plan lists ${plan.nodes.length} nodes, graph ${graph.name} has ${graph.nodes.length}`); // prettier-ignore
  const choice = new Int32Array(model.variables.length).fill(-1);
  const parsed = (text: string): number => (text === '-' ? -1 : space.parse(text));
  /** By value and phase: the copy that several uses share. */
  const copies = new Map<string, number>();
  const note = (value: number, phase: string, moves: readonly PlannedRedistribution[]): void => {
    for (const move of moves) if (move.copy === 'made') copies.set(`${value}:${phase}`, space.parse(move.to));
  };
  graph.nodes.forEach((node, n) => {
    const planned = plan.nodes[n];
    if (planned.name !== node.name)
      throw new ShardwrightError('E_PLAN', `the plan lists ${planned.name} where the graph has ${node.name}`);
    if (nodeVariable[n] < 0) return;
    flow.inputs[n].forEach((value, i) => note(value, flow.phases[n], planned.redistributions.filter((r) => r.input === i))); // prettier-ignore
    const set = strategies.nodes[n]?.set;
    const wanted = [...planned.inputs, ...planned.outputs].map(parsed);
    let found = -1;
    for (let s = 0; set !== undefined && s < set.count && found < 0; s++)
      if (wanted.every((id, t) => set.specs[s * wanted.length + t] === id)) found = s;
    if (found < 0)
      throw new ShardwrightError('E_PLAN', `${node.name} cannot be placed ${planned.inputs.join(', ')} -> ${planned.outputs.join(', ')} at these sizes`, {
        node: node.name,
      }); // prettier-ignore
    choice[nodeVariable[n]] = found;
  });
  let k = 0;
  const placements: string[] = [];
  flow.outputs.forEach(({ output, value }) => {
    if (value < 0) {
      placements.push('');
      return;
    }
    const planned = plan.outputs[k++];
    placements.push(planned.placement);
    note(value, output.role === 'output' ? 'forward' : 'backward', planned.redistributions);
  });
  model.variables.forEach((v, variable) => {
    if (v.kind === 'output') {
      choice[variable] = v.specs.indexOf(space.parse(placements[v.output]));
      if (choice[variable] < 0)
        throw new ShardwrightError('E_PLAN', `output ${v.output} cannot be placed ${placements[v.output]} at these sizes`); // prettier-ignore
    }
    if (v.kind !== 'copy') return;
    const { value, phase, owned, copy } = model.copies[v.copy];
    const { node, result } = flow.values[value];
    const set = strategies.nodes[node]?.set;
    if (set === undefined) return;
    const left = set.specs[choice[nodeVariable[node]] * (set.inputCount + set.outputCount) + set.inputCount + result];
    const shared = copies.get(`${value}:${phase}`);
    owned.forEach((id, z) => {
      if (id !== left) return;
      // A copy that costs nothing at these sizes is made at each use.
      if (copy[z] === shared || (copy[z] < 0 && choice[variable] < 0)) choice[variable] = z;
    });
  });
  return choice;
}
