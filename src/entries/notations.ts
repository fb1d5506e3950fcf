/**
 * The entry `shardwright/notations`: meshes, placements and shardings in every notation, local
 * types, layouts, einshard and the calculus of einsum. They are read from texts into plain records,
 * without a graph, a price or a solver.
 *
 * @module shardwright/notations
 */
export { init_device_mesh, make_mesh } from '../mesh/devices/aliases.ts';
export {
  type GroupLevels,
  groupLevels,
  hostLevel,
  levelText,
  meshLevels,
  type PhysicalLevel,
} from '../mesh/devices/levels.ts';
export { DeviceMesh, type MeshDim, parseMesh } from '../mesh/devices/mesh.ts';
export {
  commonRefinement,
  flattenDims,
  permuteDims,
  sameDevices,
  submesh,
  unflattenDim,
} from '../mesh/devices/submesh.ts';
export {
  type Primitive,
  primitive,
  type PrimitiveName,
  PRIMITIVES,
  primitiveText,
  redistribution,
  transposeOf,
} from '../mesh/local-types/primitives.ts';
export {
  axesText,
  type AxisType,
  gradientOf,
  gradientType,
  I,
  type LocalType,
  typedText,
  V,
} from '../mesh/local-types/types.ts';
export { builtinKinds } from '../mesh/placements/builtin-kinds.ts';
export { type PlacementKind, PlacementKinds } from '../mesh/placements/kinds.ts';
export {
  type LookupMask,
  lookupMask,
  maskedRows,
  MaskPartial,
} from '../mesh/placements/partials/mask-partial.ts';
export { NormPartial } from '../mesh/placements/partials/norm-partial.ts';
export { Partial, REDUCE_OPS } from '../mesh/placements/partials/partial.ts';
export { Pending } from '../mesh/placements/partials/pending.ts';
export type { Placement, ReduceOp } from '../mesh/placements/placement.ts';
export { REPLICATE } from '../mesh/placements/replicate.ts';
export { Cut, normalDim } from '../mesh/placements/shards/cut.ts';
export { Interleaved } from '../mesh/placements/shards/interleaved.ts';
export { Ragged } from '../mesh/placements/shards/ragged.ts';
export { Shard } from '../mesh/placements/shards/shard.ts';
export { StridedShard } from '../mesh/placements/shards/strided.ts';
export { type SliceKind, sliceKind, type SliceKindOptions } from '../mesh/placements/slice-kind.ts';
export {
  type GradientChange,
  gradientChange,
  type GradientOptions,
} from '../mesh/sharding/gradient.ts';
export { fromMeshView, toMeshView } from '../mesh/sharding/mesh-view.ts';
export { parsePlacement } from '../mesh/sharding/parse.ts';
export { placementFaults } from '../mesh/sharding/placement-faults.ts';
export {
  cutFurther,
  evenlyShardable,
  heldRows,
  localShape,
  localShapeAt,
  shardable,
  Sharding,
} from '../mesh/sharding/sharding.ts';
export { parseSpec, printSpec } from '../mesh/sharding/spec-text.ts';
export { fromDimView, toDimView } from '../mesh/views/dim-view.ts';
export {
  gradientState,
  type State,
  stateName,
  statesOf,
  stateTable,
  type Vocabulary,
} from '../mesh/views/four-states.ts';
export { parsePartitionSpec, PartitionSpec } from '../mesh/views/partition-spec.ts';
export { parseShardedType, ShardedType } from '../mesh/views/sharded-type.ts';
export { drawSharding, type ShardingDrawing } from '../notations/draw/draw-sharding.ts';
export { einshardBlocks } from '../notations/einshard/blocks.ts';
export {
  einshardMesh,
  fromPlacements,
  toPlacements,
  toSpec,
} from '../notations/einshard/placements.ts';
export {
  type Einshard,
  einshardLocalShape,
  resolveEinshard,
} from '../notations/einshard/resolve.ts';
export {
  type AnyParseOptions as ParseOptions,
  parseAnySharding as parseSharding,
} from '../notations/einshard/on-mesh.ts';
export {
  type EinshardExpression,
  formatEinshard,
  parseEinshard,
} from '../notations/einshard/syntax.ts';
export { explain as explainEinsum } from '../notations/einsum/explain.ts';
export { einsumBackward, type EinsumGradient } from '../notations/einsum/gradient.ts';
export type { EinsumSpec } from '../notations/einsum/placed.ts';
export {
  type EinsumFault,
  type EinsumSharding,
  type EinsumStep,
  type OperandGradient,
  type OwedCollective,
  shardRule,
  type ShardRuleOptions,
} from '../notations/einsum/shard-rule.ts';
export { coalesce, coalesceModes } from '../notations/layout/coalesce.ts';
export { complement } from '../notations/layout/complement.ts';
export { composition } from '../notations/layout/composition.ts';
export {
  crd2idx,
  idx2crd,
  offsets as layoutOffsets,
  offsetAt,
} from '../notations/layout/coordinates.ts';
export {
  flatDivide,
  logicalDivide,
  tiledDivide,
  zippedDivide,
} from '../notations/layout/divide.ts';
export type { IntTree, Order } from '../notations/layout/int-tree.ts';
export { leftInverse, rightInverse } from '../notations/layout/inverse.ts';
export { compact, compatible, Layout } from '../notations/layout/layout.ts';
export {
  layoutGroups,
  meshLayout,
  stridedShardLayout,
  unflattenLayout,
} from '../notations/layout/mesh-layout.ts';
export {
  areOrthogonal,
  checkOrthogonal,
  groupsMeet,
  type MeshAxis,
  meshAxis,
} from '../notations/layout/orthogonal.ts';
export { parseLayout } from '../notations/layout/parse.ts';
export {
  blockedProduct,
  flatProduct,
  logicalProduct,
  rakedProduct,
  tiledProduct,
  zippedProduct,
} from '../notations/layout/product.ts';
export { rulesOf } from '../ops/rules/einsum.ts';
export {
  classify,
  type EinsumEquation,
  type LetterClasses,
  parseEinsum,
} from '../ops/rules/equation.ts';
