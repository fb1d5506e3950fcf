/**
 * The entry `shardwright/plan`: the steps and records behind a plan. It prepares a request, asks
 * what changes where a node is forced or the budget differs, reads, writes, compares and checks
 * plans, and runs their programs on virtual devices and on a clock.
 *
 * @module shardwright/plan
 */
export { type ExportSource, exportSource } from '../backend/target.ts';
export { exportFiles } from '../export/export.ts';
export {
  type HloCollective,
  type HloOptions,
  type HloSummary,
  readHlo,
} from '../import/hlo/collectives.ts';
export {
  type DeviceProgram,
  programAtRank,
  type ProgramValue,
  type RandomPiece,
} from '../lower/program/program.ts';
export { type PromisedCollective, promisedCollectives } from '../lower/promised.ts';
export { randomPlan } from '../plan/choice/random-plan.ts';
export { transferPlan } from '../plan/choice/transfer.ts';
export { prepare } from '../plan/prepare/prepare.ts';
export type { Prepared } from '../plan/prepare/prepared.ts';
export { checkPlan, type MadeAgain, type PlanCheck } from '../plan/questions/check-plan.ts';
export type { PlanDifference } from '../plan/questions/differences.ts';
export { reopen, type Reopened } from '../plan/questions/explain.ts';
export {
  type Frontier,
  type FrontierMiss,
  type FrontierOptions,
  type FrontierPoint,
  type FrontierStep,
  memoryFrontier,
} from '../plan/questions/memory-frontier.ts';
export { planAtEnds, type RangeEnd, rangeEnds } from '../plan/questions/size-range.ts';
export {
  type Forced,
  forceNode,
  type PlanChange,
  type WhatIf,
  WhatIfHistory,
} from '../plan/questions/what-if-history.ts';
export type { PlanCertificate } from '../plan/record/certificate.ts';
export { diffPlans, type PlanDiff } from '../plan/record/diff.ts';
export {
  type PlanFolder,
  type PlanTexts,
  planTexts,
  readPlanFolder,
} from '../plan/record/folder.ts';
export { type Clock, Deadline, type DeadlineOptions } from '../plan/request/deadline.ts';
export { DEFAULT_REQUEST } from '../plan/request/request.ts';
export { type PreparedOptions, shardPrepared } from '../shard.ts';
export type { OverlapCandidate } from '../simulate/overlap/candidates.ts';
export { type OverlapPlan, overlapPlan } from '../simulate/overlap/plan.ts';
export {
  type OverlapOptions,
  type OverlapSearch,
  searchOverlap,
} from '../simulate/overlap/search.ts';
export { type DeviceRun, type ExecutedCollective, runDevices } from '../simulate/ranks/devices.ts';
export { bucketProgram } from '../simulate/timeline/bucket-program.ts';
export { play, type Timeline } from '../simulate/timeline/play.ts';
