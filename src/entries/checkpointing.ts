/**
 * The entry `shardwright/checkpointing` decides which forward results a backward pass keeps and
 * which it computes again. It takes graphs or chains of stages with a budget in bytes, and gives
 * the kept results, the seconds and the peak in bytes.
 *
 * @module shardwright/checkpointing
 */
export {
  checkmate,
  checkmateProgram,
  type RematGraph,
  type RematOptions,
  type RematResult,
  type RematStage,
} from '../passes/checkpoint/checkmate.ts';
export {
  evaluateKept,
  type KeepEvaluation,
  kneeBudget,
  type ProgramOrder,
  type RecomputeGraph,
  recomputeGraph,
} from '../passes/checkpoint/evaluate.ts';
export {
  bestKept,
  greedyKept,
  type KeepChoice,
  type KeepItem,
} from '../passes/checkpoint/knapsack.ts';
export {
  checkpointModules,
  type ModuleDiscard,
  type ModuleStatistics,
  type PerModuleOptions,
  type PerModuleResult,
} from '../passes/checkpoint/per-module.ts';
export { chooseRegion, type RegionChoice, type RegionOp } from '../passes/checkpoint/per-op.ts';
export {
  type CurveLine,
  curveLines,
  type RecomputeCurve,
  recomputeCurve,
} from '../passes/checkpoint/recompute-curve.ts';
export {
  type ChainSchedule,
  type ChainStage,
  type ChainStep,
  rotor,
} from '../passes/checkpoint/rotor.ts';
