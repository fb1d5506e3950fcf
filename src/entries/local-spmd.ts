/**
 * The entry `shardwright/local-spmd`: the code that one device runs. It has the regions of such
 * code in traced programs, typed collectives under the names of spmd_types, JAX and Megatron, and
 * the checks of their types by mode and by execution.
 *
 * @module shardwright/local-spmd
 */
export type { Advice } from '../local-spmd/advice.ts';
export { checkTypes, type CheckTypesOptions, type TypedGraph } from '../local-spmd/check-types.ts';
export type {
  CheckOptions,
  CheckReport,
  LocalNotGlobal,
  ModeReport,
  StrippedRun,
} from '../local-spmd/check.ts';
export { type Mode, MODES, typeInMode } from '../local-spmd/modes.ts';
export type { Meaning, OperandType } from '../local-spmd/operator-types.ts';
export { typeCall } from '../local-spmd/type-call.ts';
export type { Violation } from '../local-spmd/typed.ts';
export type { SpecWord, TypeWord } from '../local-spmd/words.ts';
export { type Cause, erase, type EraseOptions, why } from '../lower/typed/erased.ts';
export { strictProgram, type StrictOptions } from '../lower/strict-program.ts';
export {
  type CheckedCollective,
  checkPlannedModes,
  type PlanCheckReport,
} from '../plan/questions/spmd-check.ts';
export { type OffOnDifference, offOnDifference } from '../simulate/off-on.ts';
export { type ReplicaFault, replicaFaults } from '../simulate/ranks/replicas.ts';
export { check, eraseable } from '../simulate/strip.ts';
export {
  allGatherInvariant,
  jaxAllGather,
  jaxAllToAll,
  pcast,
  type PieceOptions,
  ppermute,
  pscatter,
  psum,
  psumScatter,
  pvary,
} from '../trace/spmd/jax-names.ts';
export { localMap, type LocalMapOptions } from '../trace/spmd/local-map.ts';
export * as megatron from '../trace/spmd/megatron.ts';
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
} from '../trace/spmd/verbs.ts';
