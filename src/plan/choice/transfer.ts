/**
 * Transfers a plan to its request prepared at other sizes: the same placements, with the
 * redistributions of those sizes.
 */
import { ShardwrightError } from '../../errors.ts';
import type { Model } from '../model/model.ts';
import type { Prepared } from '../prepare/prepared.ts';
import { refuseDamaged } from '../record/damage.ts';
import type { LowerablePlan } from '../record/planned.ts';
import { decode } from './decode.ts';

/**
 * The placements of a plan on the same graph at other sizes: every node, copy and output is placed
 * as the plan says, and the redistributions are those of the new sizes. So the plan of a model that
 * is far too large to run can be run with numbers.
 *
 * @param prepared the request of the plan, for the graph at the other sizes
 * @throws E_PLAN, with the node, where a placement of the plan does not exist at these sizes
 */
export function transferPlan(
  plan: LowerablePlan,
  { model, question: { request } }: Pick<Prepared, 'model' | 'question'>,
): LowerablePlan {
  const decoded = decode(model, choiceOfPlan(plan, model));
  return { request, nodes: decoded.nodes, outputs: decoded.outputs };
}

/**
 * The choice that a plan is, in the model of a prepared request: the way back from placements to
 * the solver's numbers.
 *
 * @throws E_PLAN, with the node, where a placement of the plan is none of the model
 */
export function choiceOfPlan(
  plan: Pick<LowerablePlan, 'nodes' | 'outputs'>,
  model: Model,
): Int32Array {
  const { space, flow, strategies, nodeVariable, graph } = model;
  refuseDamaged(plan, { graph, flow, space, carries: model.opened?.carries.length ?? 0 });
  const choice = new Int32Array(model.variables.length).fill(-1);
  const parsed = (text: string): number => (text === '-' ? -1 : space.parse(text));
  graph.nodes.forEach((node, n) => {
    if (nodeVariable[n] < 0) return;
    const planned = plan.nodes[n];
    const set = strategies.nodes[n]?.set;
    const wanted = [...planned.inputs, ...planned.outputs].map(parsed);
    let found = -1;
    for (let s = 0; set !== undefined && s < set.count && found < 0; s++)
      if (wanted.every((id, t) => set.specs[s * wanted.length + t] === id)) found = s;
    if (found < 0)
      throw new ShardwrightError(
        'E_PLAN',
        `${node.name} cannot be placed ${planned.inputs.join(', ')} -> ` +
          `${planned.outputs.join(', ')} at these sizes`,
        {
          node: node.name,
          path: `$.nodes[${n}]`,
        },
      );
    choice[nodeVariable[n]] = found;
  });
  /**
   * The placement that the plan shares, by copy of the model; and the one that it returns, by
   * output of the program.
   */
  const shared = new Map<number, number>();
  const returned = new Map<number, string>();
  let k = 0;
  for (const { at, copy } of model.uses) {
    const output = at.kind === 'input' ? undefined : plan.outputs[k++];
    if (output !== undefined && at.kind === 'output') returned.set(at.output, output.placement);
    const moves =
      output?.redistributions ??
      (at.kind === 'input'
        ? plan.nodes[at.node].redistributions.filter((r) => r.input === at.input)
        : []);
    for (const move of copy < 0 ? [] : moves)
      if (move.copy === 'made') shared.set(copy, space.parse(move.to));
  }
  model.variables.forEach((v, variable) => {
    if (v.kind === 'output') {
      const placement = returned.get(v.output) ?? '';
      choice[variable] = v.specs.indexOf(space.parse(placement));
      if (choice[variable] < 0)
        throw new ShardwrightError(
          'E_PLAN',
          `output ${v.output} cannot be placed ${placement} at these sizes`,
          {
            path: `$.outputs[${v.output}].placement`,
          },
        );
    }
    if (v.kind !== 'copy') return;
    const { value, owned, copy } = model.copies[v.copy];
    const { node, result } = flow.values[value];
    const set = strategies.nodes[node]?.set;
    if (set === undefined) return;
    const left =
      set.specs[
        choice[nodeVariable[node]] * (set.inputCount + set.outputCount) + set.inputCount + result
      ];
    owned.forEach((id, z) => {
      if (id !== left) return;
      // A copy that costs nothing at these sizes is made at each use.
      if (copy[z] === shared.get(v.copy) || (copy[z] < 0 && choice[variable] < 0))
        choice[variable] = z;
    });
  });
  return choice;
}
