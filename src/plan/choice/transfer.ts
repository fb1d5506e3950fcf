/**
 * Transfers a plan to its request prepared at other sizes: the same placements, with the
 * redistributions of those sizes.
 */
import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { CopyLife, type Model, passBit } from '../model/model.ts';
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
  prepared: Pick<Prepared, 'model' | 'question'>,
): LowerablePlan {
  checkKinds('transferPlan', {
    plan: [plan, 'plan'],
    prepared: [prepared, 'prepared'],
  });
  const {
    model,
    question: { request },
  } = prepared;
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
  const { space, flow, nodeVariable, graph } = model;
  refuseDamaged(plan, { graph, flow, space, carries: model.opened?.carries.length ?? 0 });
  const choice = new Int32Array(model.variables.length).fill(-1);
  graph.nodes.forEach((_, n) => {
    if (nodeVariable[n] >= 0) choice[nodeVariable[n]] = strategyOf(plan, model, n);
  });
  const { shared, returned } = placementsOfUses(plan, model);
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
    if (v.kind === 'copy') choice[variable] = copyOf(model, choice, v.copy, shared.get(v.copy));
  });
  return choice;
}

/** @throws E_PLAN where no strategy of the node has its placements */
function strategyOf(plan: Pick<LowerablePlan, 'nodes'>, model: Model, n: number): number {
  const { space, strategies, graph } = model;
  const planned = plan.nodes[n];
  const set = strategies.nodes[n]?.set;
  const wanted = [...planned.inputs, ...planned.outputs].map((text) =>
    text === '-' ? -1 : space.parse(text),
  );
  for (let s = 0; set !== undefined && s < set.count; s++)
    if (wanted.every((id, t) => set.specs[s * wanted.length + t] === id)) return s;
  const { name } = graph.nodes[n];
  throw new ShardwrightError(
    'E_PLAN',
    `${name} cannot be placed ${planned.inputs.join(', ')} -> ` +
      `${planned.outputs.join(', ')} at these sizes`,
    {
      node: name,
      path: `$.nodes[${n}]`,
    },
  );
}

/** A copy that the plan shares: its placement, and the passes that make it and that take it. */
interface SharedCopy {
  readonly placement: number;
  made: number;
  taken: number;
}

/**
 * The copy that the plan shares, by copy of the model; and the placement that it returns, by output
 * of the program.
 */
function placementsOfUses(
  plan: Pick<LowerablePlan, 'nodes' | 'outputs'>,
  { uses, space }: Model,
): { readonly shared: Map<number, SharedCopy>; readonly returned: Map<number, string> } {
  const shared = new Map<number, SharedCopy>();
  const returned = new Map<number, string>();
  let k = 0;
  for (const { at, copy, phase } of uses) {
    const output = at.kind === 'input' ? undefined : plan.outputs[k++];
    if (output !== undefined && at.kind === 'output') returned.set(at.output, output.placement);
    const moves =
      output?.redistributions ??
      (at.kind === 'input'
        ? plan.nodes[at.node].redistributions.filter((r) => r.input === at.input)
        : []);
    for (const move of copy < 0 ? [] : moves) {
      if (move.copy === undefined) continue;
      const known = shared.get(copy) ?? { placement: space.parse(move.to), made: 0, taken: 0 };
      const pass = passBit(phase);
      known.taken |= pass;
      if (move.copy === 'made') known.made |= pass;
      shared.set(copy, known);
    }
  }
  return { shared, returned };
}

/** The value of a copy whose producer is chosen; -1 where the producer has no strategies. */
function copyOf(
  { flow, strategies, nodeVariable, copies }: Model,
  choice: Int32Array,
  index: number,
  shared: SharedCopy | undefined,
): number {
  const { value, owned, copy, life } = copies[index];
  const { node, result } = flow.values[value];
  const set = strategies.nodes[node]?.set;
  let found = -1;
  if (set === undefined) return found;
  const width = set.inputCount + set.outputCount;
  const left = set.specs[choice[nodeVariable[node]] * width + set.inputCount + result];
  const lasts = shared === undefined || life === undefined ? 0 : lifeOf(shared);
  owned.forEach((id, z) => {
    if (id !== left) return;
    // A copy that costs nothing at these sizes is made at each use.
    if (copy[z] < 0 && found < 0) found = z;
    if (copy[z] !== shared?.placement) return;
    // One that a single pass has, where no value says so, is as good as one that could stay.
    if (life === undefined || life[z] === lasts || life[z] === CopyLife.KEPT) {
      if (found < 0 || copy[found] < 0 || life?.[z] === lasts) found = z;
    }
  });
  return found;
}

/** The life of a copy: one that one pass makes and the other takes is kept. */
function lifeOf({ made, taken }: SharedCopy): number {
  return taken === made ? made : CopyLife.KEPT;
}
