/**
 * The entry `shardwright/cost`: clusters and the prices of collectives. It reads a cluster by its
 * name or text, takes measured tables of collectives, gives the cost model of a preset, and plans
 * redistributions of a tensor; sizes are in bytes, times in seconds.
 *
 * @module shardwright/cost
 */
export type { CollectiveModel, CostRecord } from '../cost/collective-model.ts';
export type { Cluster } from '../cost/hardware/cluster.ts';
export {
  type CollectiveRow,
  parseCollectiveTable,
  tabledClusterText,
} from '../cost/hardware/collective-table.ts';
export { clusterNames, loadCluster } from '../cost/hardware/load-cluster.ts';
export { type PriceJump, priceJumps } from '../cost/jumps.ts';
export { COST_PRESETS } from '../cost/presets/names.ts';
export { collectiveModel } from '../cost/presets/presets.ts';
export {
  type PlannedRedistribution,
  type PlannedStep,
  planRedistribution,
  type RedistributionQuestion,
} from '../cost/plan-redistribution.ts';
export type { CollectiveKind } from '../mesh/collective-kinds.ts';
