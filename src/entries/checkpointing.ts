/**
 * The entry `shardwright/checkpointing`: which forward results a backward pass keeps and which it
 * computes again. Graphs or chains of stages go in with a budget in bytes; what is kept, the
 * seconds and the peak in bytes come out.
 *
 * @module shardwright/checkpointing
 */
export {
  checkpointModules,
  type ModuleDiscard,
  type ModuleStatistics,
  type PerModuleOptions,
  type PerModuleResult,
} from '../passes/checkpoint/per-module.ts';
export {
  curveLines,
  recomputeCurve,
  type CurveLine,
  type RecomputeCurve,
} from '../passes/checkpoint/recompute-curve.ts';
export { chooseRegion, type RegionChoice, type RegionOp } from '../passes/checkpoint/per-op.ts';
export {
  rotor,
  type ChainSchedule,
  type ChainStage,
  type ChainStep,
} from '../passes/checkpoint/rotor.ts';
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
  kneeBudget,
  recomputeGraph,
  type KeepEvaluation,
  type ProgramOrder,
  type RecomputeGraph,
} from '../passes/checkpoint/evaluate.ts';
export {
  bestKept,
  greedyKept,
  type KeepChoice,
  type KeepItem,
} from '../passes/checkpoint/knapsack.ts';
