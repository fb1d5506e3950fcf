/**
 * The entry `shardwright`: a program goes in, a plan with its proof comes out, and what follows
 * from a plan. Everything takes plain records and returns plain records.
 *
 * The road: `trace` or `importGraph` gives a graph, `shard` its plan, `lower` the program of a
 * device, `verify` runs it with numbers, `simulate` plays its timeline, `compare` prices the
 * recipes beside it, `audit` says how far another plan is from it, `explain` why a node is placed
 * as it is, `exportPlan` writes it for an engine. The other exports are their parts, and the
 * vocabulary of traced programs. `shardwright/notations`, `shardwright/checkpointing` and
 * `shardwright/solver` are parts of their own; this entry has their exports too.
 *
 * @module shardwright
 */
// The ten of the road.
export {
  capture,
  input,
  parameter,
  Tensor,
  trace,
  type Capture,
  type InputTree,
  type OutputTree,
  type TraceOptions,
} from './trace/trace.ts';
export { importGraph, type GraphImportOptions } from './import/import.ts';
export { shard, shardPrepared, type ShardOptions } from './plan/shard.ts';
export type { Infeasible, PlannedResult, ShardResult } from './plan/search/result.ts';
export { lower, type LowerablePlan } from './plan/lower/lower.ts';
export { verify, type Mismatch, type Verification, type VerifyOptions } from './simulate/verify.ts';
export { simulate, type SimulateOptions, type Simulation } from './simulate/timeline/simulate.ts';
export { compare, type CompareOptions } from './zoo/compare/compare-graph.ts';
export { audit, type Audit, type AuditOptions, type Edit } from './zoo/audit.ts';
export {
  explainNode as explain,
  forceNode,
  reopen,
  type Forced,
  type NodeExplanation,
  type Reopened,
} from './plan/questions/explain.ts';
export { exportPlan, type ExportOptions } from './export/export.ts';
export {
  exportSource,
  type ExportedPlan,
  type ExportFile,
  type ExportLoss,
  type ExportResult,
  type ExportSource,
} from './export/target.ts';
export { EXPORT_TARGETS } from './export/targets.ts';

// Parts that have entries of their own.
export * from './entries/notations.ts';
export * from './entries/checkpointing.ts';
export * from './entries/solver.ts';

// Their parts, and the vocabulary of traced programs.
export { ShardwrightError } from './errors.ts';
export type { Graph, Node, Output, TensorType, ValueType, Arg, DType } from './graph/types.ts';
export { GraphBuilder } from './graph/build.ts';
export { lintGraph } from './graph/lint.ts';
export { printGraph } from './graph/text/write.ts';
export { graphHash } from './graph/hash.ts';
export { parseGraph } from './graph/text/parse.ts';
export {
  readHlo,
  type HloCollective,
  type HloOptions,
  type HloSummary,
} from './import/hlo/collectives.ts';
export { builtinOperators } from './ops/builtin.ts';
export { defineOp, type OperatorRecord } from './ops/record/record.ts';
export {
  decomposedOp,
  type Body,
  type Decompose,
  type DecomposedSpec,
} from './ops/vjp/composite/decomposed.ts';
export { OperatorTable } from './ops/record/table.ts';
export { OperatorRegistry } from './ops/registry.ts';
export { P, R, rule, S } from './ops/record/rule.ts';
export { inferCall } from './ops/record/infer.ts';
export { graphFlops } from './ops/flops.ts';
export { VjpCall, type Gradients, type Vjp, type VjpEntry, type Vjps } from './ops/vjp/vjp.ts';
export { jointGraph, type JointOptions, type Wanted } from './passes/autodiff/joint.ts';
export { joinForwardBackward } from './passes/autodiff/from-parts.ts';
export { savedValues, type SavedValue } from './passes/autodiff/saved.ts';
export { forwardPart, withoutDeadCode } from './passes/dead-code.ts';
export { trainStep, type TrainStepOptions } from './passes/training/train-step.ts';
export {
  adam,
  adamw,
  sgd,
  type AdamOptions,
  type Optimizer,
  type SgdOptions,
} from './passes/training/optimizer.ts';
export type { SpecWord, TypeWord } from './local-spmd/words.ts';
export { admit, type Admission } from './strategy/admit.ts';
export {
  expandCall as expandRules,
  operatorCall,
  propagateCall as propagate,
  type OperatorCall,
  type PropagateCallOptions,
  type Propagated,
  type Strategy,
} from './strategy/operator-call.ts';
export { checkRules, type RuleCheckOptions } from './simulate/rule-check/check-rules.ts';
export type {
  Finding as RuleFinding,
  Validation as RuleCheck,
} from './simulate/rule-check/check.ts';
export type { Cluster } from './cost/hardware/cluster.ts';
export { loadCluster, clusterNames } from './cost/hardware/load-cluster.ts';
export {
  parseCollectiveTable,
  tabledClusterText,
  type CollectiveRow,
} from './cost/hardware/collective-table.ts';
export { collectiveModel } from './cost/presets/presets.ts';
export { COST_PRESETS } from './cost/presets/names.ts';
export type { CollectiveKind, CollectiveModel, CostRecord } from './cost/collective-model.ts';
export { priceJumps, type PriceJump } from './cost/jumps.ts';
export {
  dim,
  randomKey,
  spec,
  TensorSpec,
  type DimOptions,
  type DimSpec,
} from './trace/record/spec.ts';
export { buffer, guardOn, isTraining, param, scope, withSharding } from './trace/tensor/state.ts';
export { sizes, Sym, type Size } from './trace/sizes/sizes.ts';
export { GraphCache, type CachedCapture, type GraphCacheOptions } from './trace/capture/cache.ts';
export { apply, applyTuple } from './trace/tensor/tensor.ts';
export { einsum } from './trace/tensor/einsum.ts';
export { associativeScan } from './trace/control/associative-scan.ts';
export { localMap, type LocalMapOptions } from './trace/spmd/local-map.ts';
export {
  allGather,
  allReduce,
  allToAll,
  assertType,
  axisIndex,
  axisSize,
  contract,
  convert,
  outPartial,
  permute,
  redistribute,
  reduceScatter,
  reinterpret,
  type VerbTypes,
} from './trace/spmd/verbs.ts';
export {
  allGatherInvariant,
  jaxAllGather,
  jaxAllToAll,
  pcast,
  ppermute,
  pscatter,
  psum,
  psumScatter,
  pvary,
  type PieceOptions,
} from './trace/spmd/jax-names.ts';
export { checkTypes, type CheckTypesOptions, type TypedGraph } from './local-spmd/check-types.ts';
export { offOnDifference, type OffOnDifference } from './simulate/off-on.ts';
export { replicaFaults, type ReplicaFault } from './simulate/ranks/replicas.ts';
export { erase, why, type Cause, type EraseOptions } from './plan/lower/typed/erased.ts';
export * as megatron from './trace/spmd/megatron.ts';
export {
  check,
  eraseable,
  type CheckOptions,
  type CheckReport,
  type LocalNotGlobal,
} from './local-spmd/check.ts';
export type { Advice } from './local-spmd/advice.ts';
export {
  checkPlannedModes,
  type CheckedCollective,
  type PlanCheckReport,
} from './plan/questions/spmd-check.ts';
export { MODES, typeInMode, type Mode } from './local-spmd/modes.ts';
export { typeCall } from './local-spmd/type-call.ts';
export type { Meaning, OperandType } from './local-spmd/operator-types.ts';
export type { Violation } from './local-spmd/typed.ts';
export { checkpoint } from './trace/control/checkpoint.ts';
export { recompute, save } from './trace/tensor/retain.ts';
export { customVjp } from './trace/custom/custom-vjp.ts';
export { cond, type BodyTree, type CondOptions } from './trace/control/cond.ts';
export {
  foriLoop,
  map,
  scan,
  whileLoop,
  type ScanOptions,
  type WhileOptions,
} from './trace/control/loops.ts';
export type { Policy } from './trace/control/policy.ts';
export { customOp, type CustomOp, type CustomOpSpec } from './trace/custom/custom-op.ts';
export {
  captureRegions,
  type HostRead,
  type Region,
  type RegionCapture,
  type RegionOptions,
} from './trace/capture/regions.ts';
export { branch, captureCfg, jump, leave, type BlockSpec } from './trace/capture/control-cfg.ts';
export { checkCfg, runCfg, type Block, type Cfg } from './passes/control/cfg/cfg.ts';
export { loopsOf, type CfgLoop } from './passes/control/cfg/cfg-flow.ts';
export { structure, type Structured } from './passes/control/cfg/structure.ts';
export { predicate, type Predicated, type PredicateOptions } from './passes/control/predicate.ts';
export { atSizes, openSizes, type OpenSize } from './passes/sizes/fix-sizes.ts';
export { unrollScan, type UnrollOptions } from './passes/control/loops/unroll-scan.ts';
export { hoistInvariants, type HoistOptions } from './passes/control/loops/hoist-invariants.ts';
export { raiseLoops } from './passes/control/loops/raise-loops.ts';
export {
  fusedComputeSeconds,
  fusedGroups,
  type FusedGroup,
  type FusedSeconds,
} from './passes/fusion/fusion.ts';
export {
  boundedLoopsToScans,
  type BoundedLoopOptions,
} from './passes/control/loops/bounded-loops.ts';
export {
  arange,
  cat,
  crossEntropy,
  dropout,
  embedding,
  matmul,
  mseLoss,
  scaledDotProductAttention,
  splitKey,
  stack,
  stopGradient,
  where,
  zeros,
} from './trace/tensor/functional.ts';
export * as functional from './trace/tensor/functional.ts';
export { MultiHeadAttention } from './trace/nn/attention.ts';
export { Conv2d } from './trace/nn/conv.ts';
export { Dropout } from './trace/nn/dropout.ts';
export { MLP, SwiGLU } from './trace/nn/feed-forward.ts';
export { Embedding, Linear } from './trace/nn/linear.ts';
export { MixtureOfExperts } from './trace/nn/moe.ts';
export { LayerNorm, RMSNorm } from './trace/nn/norm.ts';
export { GRUCell, LSTMCell } from './trace/nn/recurrent.ts';
export { rotate, rotation, type Rotation } from './trace/nn/rope.ts';
export { Transformer, TransformerBlock, type TransformerConfig } from './trace/nn/transformer.ts';
/** What modules transformed by the source-level front end call. */
export * as sourceHooks from './trace/source/hooks.ts';
export type { ControlFlow, ControlSite, Variables } from './trace/record/control-interface.ts';
export { DEFAULT_REQUEST, type Pin, type PlanRequest } from './plan/request/request.ts';
export { prepare, type Prepared } from './plan/prepare.ts';
export { planAtEnds, rangeEnds, type RangeEnd } from './plan/questions/size-range.ts';
export {
  memoryFrontier,
  type Frontier,
  type FrontierMiss,
  type FrontierOptions,
  type FrontierPoint,
  type FrontierStep,
} from './plan/memory-frontier.ts';
export type { Plan } from './plan/record/types.ts';
export type { PlanCertificate } from './plan/record/certificate.ts';
export { checkPlan, type PlanCheck, type PlanDifference } from './plan/check-plan.ts';
export {
  planTexts,
  readPlanFolder,
  type PlanFolder,
  type PlanTexts,
} from './plan/record/folder.ts';
export {
  programAtRank,
  type DeviceProgram,
  type ProgramValue,
  type RandomPiece,
} from './plan/lower/program/program.ts';
export { promisedCollectives, type PromisedCollective } from './plan/lower/promised.ts';
export { randomPlan } from './plan/record/random-plan.ts';
export { transferPlan } from './plan/questions/transfer.ts';
export { shrinkGraph, type Shrunk, type ShrinkOptions } from './passes/sizes/shrink.ts';
export { runDevices, type DeviceRun, type ExecutedCollective } from './simulate/ranks/devices.ts';
export {
  evaluateGraph,
  type Evaluation,
  type EvaluateOptions,
  type Value,
} from './simulate/evaluate.ts';
export { fromList, NDArray } from './ndarray/array.ts';
export { drawInputs } from './simulate/inputs.ts';
export {
  searchOverlap,
  type OverlapOptions,
  type OverlapSearch,
} from './simulate/overlap/search.ts';
export type { OverlapCandidate } from './simulate/overlap/candidates.ts';
export { bucketProgram } from './simulate/timeline/bucket-program.ts';
export { overlapPlan, type OverlapPlan } from './simulate/overlap/plan.ts';
export { play, type Timeline } from './simulate/timeline/play.ts';
export { pipelineTrace, timelineTrace, type TraceFile } from './simulate/timeline/trace.ts';
export { playPipeline, type PipelineRun, type PipelineTimes } from './simulate/pipeline/play.ts';
export {
  PIPELINE_SCHEDULES,
  type PipelineSchedule,
  type PipelineShape,
} from './simulate/pipeline/schedules.ts';
export {
  buildModel,
  countParameters,
  type BuildOptions,
  type ParameterCounts,
} from './models/build.ts';
export { MODEL_TYPES, parseModelConfig, type ModelConfig } from './models/families.ts';
export { knownModelConfig, modelEntries, modelEntry, type ModelEntry } from './models/registry.ts';
export {
  paddedVocabulary,
  tensorRanks,
  vocabularyPadding,
  type VocabularyPad,
  type VocabularyPadding,
} from './models/vocabulary.ts';
export {
  denseMesh,
  DERIVED_AXES,
  expertFold,
  strategyGroups,
  type ExpertFold,
  type FoldSizes,
} from './zoo/recipes/expert-mesh.ts';
export {
  MEGATRON_ORDERS,
  megatronMeshes,
  type MegatronMeshes,
  type MegatronSizes,
} from './zoo/pipeline/megatron-order.ts';
export {
  fullyShard,
  modulePreset,
  parallelizeModule,
  type ModulePreset,
  type ModuleStyle,
} from './zoo/recipes/module-presets.ts';
export { priceRecipes, type RecipeResult } from './zoo/compare/compare.ts';
export type { Comparison } from './zoo/compare/comparison.ts';
export { nextBest, rankedChoices, type RankedChoice } from './zoo/compare/next-best.ts';
export { mergeComparisons } from './zoo/compare/conclude-comparison.ts';
export { lint, lintPlan, type Finding, type LintInput } from './zoo/recipes/lint.ts';
export { modelFacts, type ModelFacts } from './zoo/recipes/inputs/model-facts.ts';
export { partitionStages, type Partition, type PipelineUnit } from './zoo/pipeline/partition.ts';
export { layerUnits, unsharded, type LayerUnit } from './zoo/pipeline/units.ts';
export {
  formatPipelineLayout,
  parsePipelineLayout,
  type PipelineLayout,
} from './zoo/pipeline/layout.ts';
export { NAMED_RECIPES, namedRecipe, type NamedRecipe } from './zoo/recipes/registry.ts';
export { einshardParameters, type EinshardParameter } from './report/text/einshard-plan.ts';
export { annotatedProgram } from './report/analysis/program.ts';
export { planSummary } from './report/text/summary.ts';
export { analyse, type GatherOptions } from './report/model/gather.ts';
export { reportOf, type Report, type ReportInput } from './report/model/data.ts';
export { htmlPage } from './report/html/page.ts';
export { drawParameters, type Drawings } from './report/html/drawings.ts';
export { markdownReport } from './report/written/markdown.ts';
export { textReport } from './report/written/plain-text.ts';
export { diffPlans, type PlanDiff } from './plan/record/diff.ts';
