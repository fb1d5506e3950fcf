/**
 * Prices the routed blocks of a plan as a trainer runs them: the work of a device for its own
 * tokens, the groups that exchange them, and the states of the blocks' parameters. A sweep prices
 * the blocks of its layouts by the same functions.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { defined } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import type { DType, Graph } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import type { Model } from '../../plan/model/model.ts';
import { GroupMaker } from '../data-groups.ts';
import { softwareState, type StepFacts } from '../facts.ts';
import type { LayoutSizes } from '../layout.ts';
import { atDeviceTokens } from '../read/device-tokens.ts';
import type { GraphUnits } from '../read/graph-units.ts';
import { type RoutedCosts, routedCosts } from '../read/moe.ts';
import { type ExpertLayout, expertLayout, type RoutedPart } from '../read/routed-part.ts';
import type { StateSums } from '../state-sums.ts';
import type { DataGroups } from '../states.ts';
import { stateCosts, unitMoving } from './state-costs.ts';

/** A placed program with its routed part. */
interface PlacedBlocks {
  readonly model: Model;
  readonly part: RoutedPart;
  readonly units: GraphUnits;
  readonly facts: StepFacts;
  /** Stages of a pipeline, and whether gathered weights stay for the step. */
  readonly stages: number;
  readonly once: boolean;
  /** The states of the rest of the program. */
  readonly sums: readonly StateSums[];
}

/** Routed blocks as `unitCosts` takes them. */
export interface PricedBlocks {
  readonly costs: RoutedCosts;
  readonly sizes: LayoutSizes;
  /** The groups of experts; dense parameters move over those of the plan. */
  readonly groups: DataGroups;
  /** The states of all parameters by unit. */
  readonly sums: readonly StateSums[];
}

/** The routed blocks of a plan in the layout that its experts have. */
export function pricedBlocks(
  placed: PlacedBlocks,
  { sizes: own, mode }: ExpertLayout,
): PricedBlocks {
  const { model, units, facts, stages, once, sums } = placed;
  const { system, optimizer } = facts;
  const sizes = { pp: stages, ...own };
  const costs = costsOf(placed, own);
  // Software of trainers is priced with these collectives alone (`trainerFacts`).
  const groups = new GroupMaker('nccl', model.cluster).groups(sizes, 'cp');
  const times = Array.from({ length: units.count }, (_, u) =>
    u === 0 || u === units.count - 1 ? 1 : 1 / stages,
  );
  const state = softwareState(system.software, optimizer, dtypeOf(placed));
  const how = {
    mode,
    once,
    groups,
    moving: unitMoving(system.software, times),
    ...(state === undefined ? {} : { state }),
  };
  const under = { costs: () => [], sums };
  return {
    costs,
    sizes,
    groups,
    sums: stateCosts(costs.parameters, how, units.count, stages > 1, under).sums,
  };
}

/** The dtype of the weights of experts. */
function dtypeOf({ model: { graph }, part }: PlacedBlocks): DType {
  for (const n of part.parameters) {
    const { type } = itemAt(graph.nodes, n);
    if (type.kind === 'tensor' && type.shape.length === 3) return type.dtype;
  }
  throw internalError('routed blocks have no weights of experts');
}

/** Costs of the blocks by program and question: every recipe of a mesh asks for them. */
const known = new WeakMap<Graph, WeakMap<Cluster, Map<string, RoutedCosts>>>();

function costsOf(
  { model, part, units, facts }: PlacedBlocks,
  { ep, etp }: ExpertLayout['sizes'],
): RoutedCosts {
  const { graph, flow, table, cluster, space } = model;
  const { system, optimizer, trainer } = facts;
  const { experts, active, limit } = part;
  const byCluster = known.get(graph) ?? new WeakMap<Cluster, Map<string, RoutedCosts>>();
  known.set(graph, byCluster);
  const byFold = byCluster.get(cluster) ?? new Map<string, RoutedCosts>();
  byCluster.set(cluster, byFold);
  const key = JSON.stringify([trainer, space.mesh.size, ep, etp, optimizer, system.software]);
  let costs = byFold.get(key);
  if (costs === undefined) {
    costs = routedCosts({
      graph: atDeviceTokens(graph, part, space.mesh.size),
      phases: flow.phases,
      layers: units.count - 2,
      table,
      cluster,
      preset: 'nccl',
      system,
      optimizer,
      experts,
      active,
      ...defined({ limit }),
      folds: [{ ep, etp }],
    });
    byFold.set(key, costs);
  }
  return costs;
}

/**
 * The layout of the experts of a plan.
 *
 * @throws E_UNSUPPORTED for a plan that trainers do not run
 */
export function requiredLayout(
  { model, part, units }: PlacedBlocks,
  choice: Int32Array,
): ExpertLayout {
  const layout = expertLayout(model, choice, part, units);
  if ('notRun' in layout)
    throw new ShardwrightError('E_UNSUPPORTED', `trainers do not run the plan: ${layout.notRun}`, {
      hint: 'take another recipe, or ask for the exported program with --for shardwright.',
    });
  return layout;
}
