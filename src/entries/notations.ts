/**
 * The entry `shardwright/notations`: meshes, placements and shardings in every notation, local
 * types, layouts, einshard and the calculus of einsum. Texts go in, plain records come out; nothing
 * here knows a graph, a price or a solver.
 *
 * @module shardwright/notations
 */
export {
  classify,
  parseEinsum,
  type EinsumEquation,
  type LetterClasses,
} from '../ops/rules/equation.ts';
export { rulesOf } from '../ops/rules/einsum.ts';
export { einsumBackward, type EinsumGradient } from '../ops/einsum/gradient.ts';
export type { EinsumSpec } from '../ops/einsum/placed.ts';
export {
  shardRule,
  type EinsumFault,
  type EinsumSharding,
  type EinsumStep,
  type OperandGradient,
  type OwedCollective,
  type ShardRuleOptions,
} from '../ops/einsum/shard-rule.ts';
export { explain as explainEinsum } from '../ops/einsum/explain.ts';
export { parseMesh, DeviceMesh, type MeshDim } from '../mesh/devices/mesh.ts';
export { init_device_mesh, make_mesh } from '../mesh/devices/aliases.ts';
export type { Placement, ReduceOp } from '../mesh/placements/placement.ts';
export { Cut, normalDim } from '../mesh/placements/shards/cut.ts';
export { Pending } from '../mesh/placements/partials/pending.ts';
export { REPLICATE } from '../mesh/placements/replicate.ts';
export { Shard } from '../mesh/placements/shards/shard.ts';
export { StridedShard } from '../mesh/placements/shards/strided.ts';
export { Ragged } from '../mesh/placements/shards/ragged.ts';
export { Interleaved } from '../mesh/placements/shards/interleaved.ts';
export { Partial, REDUCE_OPS } from '../mesh/placements/partials/partial.ts';
export { NormPartial } from '../mesh/placements/partials/norm-partial.ts';
export {
  lookupMask,
  maskedRows,
  MaskPartial,
  type LookupMask,
} from '../mesh/placements/partials/mask-partial.ts';
export { builtinKinds } from '../mesh/placements/builtin-kinds.ts';
export { PlacementKinds, type PlacementKind } from '../mesh/placements/kinds.ts';
export { sliceKind, type SliceKind, type SliceKindOptions } from '../mesh/placements/slice-kind.ts';
export { placementFaults } from '../mesh/sharding/placement-faults.ts';
export { parsePlacement, parseSharding, type ParseOptions } from '../mesh/sharding/parse.ts';
export {
  cutFurther,
  evenlyShardable,
  heldRows,
  localShape,
  localShapeAt,
  shardable,
  Sharding,
} from '../mesh/sharding/sharding.ts';
export {
  gradientChange,
  type GradientChange,
  type GradientOptions,
} from '../mesh/sharding/gradient.ts';
export { fromMeshView, toMeshView } from '../mesh/sharding/mesh-view.ts';
export { fromDimView, toDimView } from '../mesh/views/dim-view.ts';
export { parsePartitionSpec, PartitionSpec } from '../mesh/views/partition-spec.ts';
export { parseShardedType, ShardedType } from '../mesh/views/sharded-type.ts';
export { parseSpec, printSpec } from '../mesh/sharding/spec-text.ts';
export {
  axesText,
  gradientOf,
  gradientType,
  I,
  typedText,
  V,
  type AxisType,
  type LocalType,
} from '../mesh/local-types/types.ts';
export {
  primitive,
  PRIMITIVES,
  primitiveText,
  redistribution,
  transposeOf,
  type Primitive,
  type PrimitiveName,
} from '../mesh/local-types/primitives.ts';
export {
  gradientState,
  stateName,
  statesOf,
  stateTable,
  type State,
  type Vocabulary,
} from '../mesh/views/four-states.ts';
export {
  commonRefinement,
  flattenDims,
  permuteDims,
  sameDevices,
  submesh,
  unflattenDim,
} from '../mesh/devices/submesh.ts';
export {
  areOrthogonal,
  checkOrthogonal,
  groupsMeet,
  meshAxis,
  type MeshAxis,
} from '../mesh/devices/orthogonal.ts';
export {
  groupLevels,
  hostLevel,
  levelText,
  meshLevels,
  type GroupLevels,
  type PhysicalLevel,
} from '../mesh/devices/levels.ts';
export type { IntTree, Order } from '../mesh/layout/int-tree.ts';
export { compact, compatible, Layout } from '../mesh/layout/layout.ts';
export { parseLayout } from '../mesh/layout/parse.ts';
export {
  crd2idx,
  idx2crd,
  offsetAt,
  offsets as layoutOffsets,
} from '../mesh/layout/coordinates.ts';
export { coalesce, coalesceModes } from '../mesh/layout/coalesce.ts';
export { composition } from '../mesh/layout/composition.ts';
export { complement } from '../mesh/layout/complement.ts';
export { flatDivide, logicalDivide, tiledDivide, zippedDivide } from '../mesh/layout/divide.ts';
export {
  blockedProduct,
  flatProduct,
  logicalProduct,
  rakedProduct,
  tiledProduct,
  zippedProduct,
} from '../mesh/layout/product.ts';
export { leftInverse, rightInverse } from '../mesh/layout/inverse.ts';
export {
  layoutGroups,
  meshLayout,
  stridedShardLayout,
  unflattenLayout,
} from '../mesh/devices/mesh-layout.ts';
export { formatEinshard, parseEinshard, type EinshardExpression } from '../mesh/einshard/syntax.ts';
export { einshardLocalShape, resolveEinshard, type Einshard } from '../mesh/einshard/resolve.ts';
export { einshardBlocks } from '../mesh/einshard/blocks.ts';
export { einshardMesh, fromPlacements, toPlacements, toSpec } from '../mesh/einshard/placements.ts';
