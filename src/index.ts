/**
 * The entry `shardwright`: it makes a plan with its proof from a program, and answers questions
 * about plans. Everything takes plain records and returns plain records.
 *
 * - `trace` and `importGraph` give the graph of a program;
 * - `shard` gives its plan, or why there is none;
 * - `lower` gives the program that each device runs under a plan;
 * - `verify` runs that program with numbers, `simulate` plays its timeline;
 * - `explain` says why a node is placed as it is;
 * - `compare` prices the known recipes on all meshes of some devices;
 * - `audit` measures how far a plan of yours is from the best one;
 * - `exportPlan` writes a plan for an engine.
 *
 * Beside these functions and their types it has the inputs that `trace` asks for. Everything else
 * has an entry of its own: `shardwright/trace` is the vocabulary of traced programs,
 * `shardwright/graph` graphs and passes over them, and so on (`src/entries`). No name is exported
 * by two of them. (`src/entries/page.ts` is no entry of the package: it is what the page loads.)
 *
 * @module shardwright
 */
export type { ExportedPlan, ExportFile, ExportLoss, ExportResult } from './backend/target.ts';
export { ShardwrightError } from './errors.ts';
export { type ExportOptions, exportPlan } from './export/export.ts';
export { EXPORT_TARGETS } from './export/targets.ts';
export type { Graph } from './graph/types.ts';
export { type GraphImportOptions, importGraph } from './import/import.ts';
export { lower, type LowerablePlan, type LowerOptions } from './lower/lower.ts';
export type { Infeasible, PlannedResult } from './plan/choice/result.ts';
export { explainNode as explain, type NodeExplanation } from './plan/questions/explain.ts';
export type { Plan } from './plan/record/types.ts';
export type { GivenRequest, Pin, PlanRequest } from './plan/request/request.ts';
export type { Answer } from './recipes/answer.ts';
export type { Answered } from './recipes/chosen-step.ts';
export { type Audit, audit, type AuditOptions, type Edit } from './audit.ts';
export { type CompareOptions, type CompareRequest } from './recipes/compare/compare-graph.ts';
export type { Comparison } from './recipes/compare/comparison.ts';
export { shard, type ShardOptions } from './shard.ts';
export { simulate, type SimulateOptions, type Simulation } from './simulate/timeline/simulate.ts';
export { type Mismatch, type Verification, verify, type VerifyOptions } from './simulate/verify.ts';
export { compare } from './sweep/pipeline/compare.ts';
export { dim, type DimOptions, type DimSpec, spec } from './trace/record/spec.ts';
export {
  input,
  type InputTree,
  type OutputTree,
  parameter,
  Tensor,
  trace,
  type TraceOptions,
} from './trace/trace.ts';
