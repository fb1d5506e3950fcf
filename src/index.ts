/** The public library. Everything takes plain records and returns plain records. */
export { ShardwrightError } from './errors.ts';
export type { Graph, Node, Output, TensorType, ValueType, Arg, DType } from './graph/types.ts';
export { GraphBuilder } from './graph/build.ts';
export { lintGraph } from './graph/lint.ts';
export { printGraph } from './graph/text/write.ts';
export { graphHash } from './graph/hash.ts';
export { parseGraph } from './graph/text/parse.ts';
export { importGraph } from './import/import.ts';
export { readHlo, type HloCollective, type HloOptions, type HloSummary } from './import/hlo/collectives.ts';
export { builtinOperators } from './ops/builtin.ts';
export { defineOp, type OperatorRecord } from './ops/record/record.ts';
export { decomposedOp, type Body, type Decompose, type DecomposedSpec } from './ops/vjp/composite/decomposed.ts';
export { OperatorTable } from './ops/record/table.ts';
export { OperatorRegistry } from './ops/registry.ts';
export { P, R, rule, S } from './ops/record/rule.ts';
export { classify, parseEinsum, type EinsumEquation, type LetterClasses } from './ops/rules/equation.ts';
export { rulesOf } from './ops/rules/einsum.ts';
export { einsumBackward, type EinsumGradient } from './ops/einsum/gradient.ts';
export type { EinsumSpec } from './ops/einsum/placed.ts';
export {
  shardRule,
  type EinsumFault,
  type EinsumSharding,
  type EinsumStep,
  type OperandGradient,
  type OwedCollective,
  type ShardRuleOptions,
} from './ops/einsum/shard-rule.ts';
export { explain } from './ops/einsum/explain.ts';
export { inferCall } from './ops/record/infer.ts';
export { graphFlops } from './ops/flops.ts';
export { VjpCall, type Gradients, type Vjp, type VjpEntry, type Vjps } from './ops/vjp/vjp.ts';
export { jointGraph, type JointOptions, type Wanted } from './passes/autodiff/joint.ts';
export { joinForwardBackward } from './passes/autodiff/from-parts.ts';
export { savedValues, type SavedValue } from './passes/autodiff/saved.ts';
export { forwardPart, withoutDeadCode } from './passes/dead-code.ts';
export { trainStep, type TrainStepOptions } from './passes/training/train-step.ts';
export { adam, adamw, sgd, type AdamOptions, type Optimizer, type SgdOptions } from './passes/training/optimizer.ts';
export { parseMesh, DeviceMesh, type MeshDim } from './mesh/devices/mesh.ts';
export { init_device_mesh, make_mesh } from './mesh/devices/aliases.ts';
export type { Placement, ReduceOp } from './mesh/placements/placement.ts';
export { Cut, normalDim } from './mesh/placements/cut.ts';
export { Pending } from './mesh/placements/pending.ts';
export { REPLICATE } from './mesh/placements/replicate.ts';
export { Shard } from './mesh/placements/shard.ts';
export { StridedShard } from './mesh/placements/strided.ts';
export { Ragged } from './mesh/placements/ragged.ts';
export { Interleaved } from './mesh/placements/interleaved.ts';
export { Partial, REDUCE_OPS } from './mesh/placements/partial.ts';
export { NormPartial } from './mesh/placements/norm-partial.ts';
export { lookupMask, maskedRows, MaskPartial, type LookupMask } from './mesh/placements/mask-partial.ts';
export { builtinKinds } from './mesh/placements/builtin-syntax.ts';
export { PlacementKinds, type PlacementKind } from './mesh/placements/kinds.ts';
export { sliceKind, type SliceKind, type SliceKindOptions } from './mesh/placements/slice-kind.ts';
export { placementFaults } from './mesh/sharding/placement-faults.ts';
export { parsePlacement, parseSharding, type ParseOptions } from './mesh/sharding/parse.ts';
export {
  cutFurther,
  evenlyShardable,
  heldRows,
  localShape,
  localShapeAt,
  shardable,
  Sharding,
} from './mesh/sharding/sharding.ts';
export { fromMeshView, toMeshView } from './mesh/sharding/mesh-view.ts';
export { fromDimView, toDimView } from './mesh/views/dim-view.ts';
export { parsePartitionSpec, PartitionSpec } from './mesh/views/partition-spec.ts';
export { parseShardedType, ShardedType } from './mesh/views/sharded-type.ts';
export { parseSpec, printSpec } from './mesh/sharding/spec-text.ts';
export {
  axesText,
  gradientOf,
  gradientType,
  I,
  typedText,
  V,
  type AxisType,
  type LocalType,
} from './mesh/local-types/types.ts';
export {
  primitive,
  PRIMITIVES,
  primitiveText,
  redistribution,
  transposeOf,
  type Primitive,
  type PrimitiveName,
} from './mesh/local-types/primitives.ts';
export type { SpecWord, TypeWord } from './local-spmd/words.ts';
export {
  gradientState,
  stateName,
  statesOf,
  stateTable,
  type State,
  type Vocabulary,
} from './mesh/views/four-states.ts';
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
export type { Finding as RuleFinding, Validation as RuleCheck } from './simulate/rule-check/check.ts';
export {
  commonRefinement,
  flattenDims,
  permuteDims,
  sameDevices,
  submesh,
  unflattenDim,
} from './mesh/devices/submesh.ts';
export { areOrthogonal, checkOrthogonal, groupsMeet, meshAxis, type MeshAxis } from './mesh/devices/orthogonal.ts';
export {
  groupLevels,
  hostLevel,
  levelText,
  meshLevels,
  type GroupLevels,
  type PhysicalLevel,
} from './mesh/devices/levels.ts';
export type { IntTree, Order } from './mesh/layout/int-tree.ts';
export { compact, compatible, Layout } from './mesh/layout/layout.ts';
export { parseLayout } from './mesh/layout/parse.ts';
export { crd2idx, idx2crd, offsetAt, offsets as layoutOffsets } from './mesh/layout/coordinates.ts';
export { coalesce, coalesceModes } from './mesh/layout/coalesce.ts';
export { composition } from './mesh/layout/composition.ts';
export { complement } from './mesh/layout/complement.ts';
export { flatDivide, logicalDivide, tiledDivide, zippedDivide } from './mesh/layout/divide.ts';
export {
  blockedProduct,
  flatProduct,
  logicalProduct,
  rakedProduct,
  tiledProduct,
  zippedProduct,
} from './mesh/layout/product.ts';
export { leftInverse, rightInverse } from './mesh/layout/inverse.ts';
export { layoutGroups, meshLayout, stridedShardLayout, unflattenLayout } from './mesh/devices/mesh-layout.ts';
export { formatEinshard, parseEinshard, type EinshardExpression } from './mesh/einshard/syntax.ts';
export { einshardLocalShape, resolveEinshard, type Einshard } from './mesh/einshard/resolve.ts';
export { einshardBlocks } from './mesh/einshard/blocks.ts';
export { einshardMesh, fromPlacements, toPlacements, toSpec } from './mesh/einshard/placements.ts';
export { loadCluster, clusterNames, type Cluster } from './cost/hardware/cluster.ts';
export { parseCollectiveTable, tabledClusterText, type CollectiveRow } from './cost/hardware/collective-table.ts';
export { collectiveModel } from './cost/presets/presets.ts';
export { COST_PRESETS } from './cost/presets/names.ts';
export type { CollectiveKind, CollectiveModel, CostRecord } from './cost/collective-model.ts';
export { priceJumps, type PriceJump } from './cost/jumps.ts';
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
export { dim, randomKey, spec, TensorSpec, type DimOptions, type DimSpec } from './trace/record/spec.ts';
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
  pcast,
  ppermute,
  pscatter,
  psum,
  psumScatter,
  pvary,
  type PieceOptions,
} from './trace/spmd/jax-names.ts';
export { checkTypes, type CheckTypesOptions, type TypedGraph } from './local-spmd/check-types.ts';
export { replicaFaults, type ReplicaFault } from './simulate/replicas.ts';
export { erase, why, type Cause, type EraseOptions } from './plan/lower/typed/erased.ts';
export * as megatron from './trace/spmd/megatron.ts';
export { check, eraseable, type CheckOptions, type CheckReport, type LocalNotGlobal } from './local-spmd/check.ts';
export { MODES, typeInMode, type Mode } from './local-spmd/modes.ts';
export { typeCall } from './local-spmd/type-call.ts';
export type { Meaning, OperandType } from './local-spmd/operator-types.ts';
export type { Violation } from './local-spmd/typed.ts';
export { checkpoint } from './trace/control/checkpoint.ts';
export { recompute, save } from './trace/tensor/retain.ts';
export { customVjp } from './trace/custom/custom-vjp.ts';
export { cond, type BodyTree, type CondOptions } from './trace/control/cond.ts';
export { foriLoop, map, scan, whileLoop, type ScanOptions, type WhileOptions } from './trace/control/loops.ts';
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
export { checkCfg, runCfg, type Block, type Cfg } from './passes/control/cfg.ts';
export { loopsOf, type CfgLoop } from './passes/control/cfg-flow.ts';
export { structure, type Structured } from './passes/control/structure.ts';
export { predicate, type Predicated, type PredicateOptions } from './passes/control/predicate.ts';
export { atSizes, openSizes, type OpenSize } from './passes/sizes/fix-sizes.ts';
export { unrollScan, type UnrollOptions } from './passes/control/unroll-scan.ts';
export { hoistInvariants, type HoistOptions } from './passes/control/hoist-invariants.ts';
export { raiseLoops } from './passes/control/raise-loops.ts';
export { fusedComputeSeconds, fusedGroups, type FusedGroup, type FusedSeconds } from './passes/fusion/fusion.ts';
export { boundedLoopsToScans, type BoundedLoopOptions } from './passes/control/bounded-loops.ts';
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
export { shard, shardPrepared, type Infeasible, type ShardResult } from './plan/shard.ts';
export {
  memoryFrontier,
  type Frontier,
  type FrontierMiss,
  type FrontierOptions,
  type FrontierPoint,
  type FrontierStep,
} from './plan/memory-frontier.ts';
export {
  checkpointModules,
  type ModuleDiscard,
  type ModuleStatistics,
  type PerModuleOptions,
  type PerModuleResult,
} from './passes/checkpoint/per-module.ts';
export {
  curveLines,
  recomputeCurve,
  type CurveLine,
  type RecomputeCurve,
} from './passes/checkpoint/recompute-curve.ts';
export type { RegionOp } from './passes/checkpoint/per-op.ts';
export { rotor, type ChainSchedule, type ChainStage, type ChainStep } from './passes/checkpoint/rotor.ts';
export {
  checkmate,
  checkmateProgram,
  type RematGraph,
  type RematOptions,
  type RematResult,
  type RematStage,
} from './passes/checkpoint/checkmate.ts';
export { solve, solveNow } from './solver/solve.ts';
export { evaluate as evaluateChoice, hashProblem, verifyCertificate, type Verdict } from './solver/check/verify.ts';
export { verifyDual, type DualCertificate } from './solver/check/dual.ts';
export { IopddlError, readIopddl } from './solver/problem/iopddl.ts';
export { ProblemBuilder } from './solver/problem/builder.ts';
export type { Certificate, LinearRow, Problem, Solution, SolveOptions, UsagePiece } from './solver/types.ts';
export { lpText } from './solver/milp/lp-text.ts';
export type { LinearProgram } from './solver/milp/linear-program.ts';
export {
  evaluateKept,
  kneeBudget,
  recomputeGraph,
  type KeepEvaluation,
  type ProgramOrder,
  type RecomputeGraph,
} from './passes/checkpoint/evaluate.ts';
export { bestKept, greedyKept, type KeepChoice, type KeepItem } from './passes/checkpoint/knapsack.ts';
export type { Plan } from './plan/record/types.ts';
export type { PlanCertificate } from './plan/record/certificate.ts';
export { checkPlan, type PlanCheck, type PlanDifference } from './plan/check-plan.ts';
export { planTexts, readPlanFolder, type PlanFolder, type PlanTexts } from './plan/record/folder.ts';
export { lower, type LowerablePlan } from './plan/lower/lower.ts';
export { programAtRank, type DeviceProgram, type ProgramValue, type RandomPiece } from './plan/lower/program.ts';
export { promisedCollectives, type PromisedCollective } from './plan/lower/promised.ts';
export { randomPlan } from './plan/record/random-plan.ts';
export { transferPlan } from './plan/questions/transfer.ts';
export { shrinkGraph, type Shrunk, type ShrinkOptions } from './passes/sizes/shrink.ts';
export { runDevices, type DeviceRun, type ExecutedCollective } from './simulate/devices.ts';
export { evaluateGraph, type Evaluation, type EvaluateOptions, type Value } from './simulate/evaluate.ts';
export { fromList, NDArray } from './ndarray/array.ts';
export { drawInputs } from './simulate/inputs.ts';
export { verify, type Mismatch, type Verification, type VerifyOptions } from './simulate/verify.ts';
export { simulate, type SimulateOptions, type Simulation } from './simulate/timeline/simulate.ts';
export {
  overlapAware,
  type OverlapAware,
  type OverlapCandidate,
  type OverlapOptions,
} from './simulate/timeline/overlap-aware.ts';
export { bucketProgram } from './simulate/timeline/bucket-program.ts';
export { overlapPlan, type OverlapPlan } from './simulate/timeline/overlap-plan.ts';
export { play, type Timeline } from './simulate/timeline/play.ts';
export { pipelineTrace, timelineTrace, type TraceFile } from './simulate/timeline/trace.ts';
export { playPipeline, type PipelineRun, type PipelineTimes } from './simulate/pipeline/play.ts';
export { PIPELINE_SCHEDULES, type PipelineSchedule, type PipelineShape } from './simulate/pipeline/schedules.ts';
export { buildModel, countParameters, type BuildOptions, type ParameterCounts } from './models/build.ts';
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
export { compare, type CompareOptions } from './zoo/compare/compare-graph.ts';
export type { Comparison } from './zoo/compare/comparison.ts';
export { nextBest, rankedChoices, type RankedChoice } from './zoo/compare/next-best.ts';
export { mergeComparisons } from './zoo/compare/conclude-comparison.ts';
export { audit, type Audit, type AuditOptions, type Edit } from './zoo/audit.ts';
export { lint, lintPlan, type Finding, type LintInput } from './zoo/recipes/lint.ts';
export { modelFacts, type ModelFacts } from './zoo/recipes/model-facts.ts';
export { partitionStages, type Partition, type PipelineUnit } from './zoo/pipeline/partition.ts';
export { layerUnits, unsharded, type LayerUnit } from './zoo/pipeline/units.ts';
export { formatPipelineLayout, parsePipelineLayout, type PipelineLayout } from './zoo/pipeline/layout.ts';
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
export {
  explainNode,
  forceNode,
  reopen,
  type Forced,
  type NodeExplanation,
  type Reopened,
} from './plan/questions/explain.ts';
