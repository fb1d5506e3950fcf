/**
 * The entry `shardwright/graph`: graphs and what makes graphs from graphs. It builds, prints,
 * parses and checks a graph, adds the backward pass and the optimizer's step, rewrites control flow
 * and sizes, and evaluates a graph on numbers. Every pass takes a graph and returns a new one.
 *
 * @module shardwright/graph
 */
export { GraphBuilder } from '../graph/build.ts';
export { graphHash } from '../graph/hash.ts';
export { lintGraph } from '../graph/lint.ts';
export { parseGraph } from '../graph/text/parse.ts';
export { printGraph } from '../graph/text/write.ts';
export type { Arg, DType, Node, Output, TensorType, ValueType } from '../graph/types.ts';
export { fromList, NDArray } from '../ndarray/array.ts';
export { joinForwardBackward } from '../passes/autodiff/from-parts.ts';
export { jointGraph, type JointOptions, type Wanted } from '../passes/autodiff/joint.ts';
export { type SavedValue, savedValues } from '../passes/autodiff/saved.ts';
export { type CfgLoop, loopsOf } from '../passes/control/cfg/cfg-flow.ts';
export { type Block, type Cfg, checkCfg, runCfg } from '../passes/control/cfg/cfg.ts';
export { structure, type Structured } from '../passes/control/cfg/structure.ts';
export {
  type BoundedLoopOptions,
  boundedLoopsToScans,
} from '../passes/control/loops/bounded-loops.ts';
export { hoistInvariants, type HoistOptions } from '../passes/control/loops/hoist-invariants.ts';
export { raiseLoops } from '../passes/control/loops/raise-loops.ts';
export { type UnrollOptions, unrollScan } from '../passes/control/loops/unroll-scan.ts';
export { predicate, type Predicated, type PredicateOptions } from '../passes/control/predicate.ts';
export { forwardPart, withoutDeadCode } from '../passes/dead-code.ts';
export {
  fusedComputeSeconds,
  type FusedGroup,
  fusedGroups,
  type FusedSeconds,
} from '../passes/fusion/fusion.ts';
export { atSizes, type OpenSize, openSizes } from '../passes/sizes/fix-sizes.ts';
export { shrinkGraph, type ShrinkOptions, type Shrunk } from '../passes/sizes/shrink.ts';
export type { CutPoint } from '../passes/stages/cut-points.ts';
export type { SumOf } from '../passes/stages/results.ts';
export { type Cuttable, cuttable, type StagedGraph } from '../passes/stages/split.ts';
export type { Message, StageGraph } from '../passes/stages/write-stage.ts';
export {
  adam,
  type AdamOptions,
  adamw,
  type Optimizer,
  sgd,
  type SgdOptions,
} from '../passes/training/optimizer.ts';
export { trainStep, type TrainStepOptions } from '../passes/training/train-step.ts';
export {
  evaluateGraph,
  type EvaluateOptions,
  type Evaluation,
  type Value,
} from '../simulate/evaluate.ts';
export { drawInputs } from '../simulate/inputs.ts';
