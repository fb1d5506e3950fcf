/** Builds the table of the operators that come with Shardwright. */

import { decomposedOps } from './aten/decomposed.ts';
import { activationBackwardOps } from './aten/elementwise/activation-backward.ts';
import { logSigmoidOps } from './aten/elementwise/activation-specs.ts';
import { binaryOps } from './aten/elementwise/binary.ts';
import { castOps } from './aten/elementwise/cast.ts';
import { comparisonOps } from './aten/elementwise/comparison.ts';
import { complexOps } from './aten/elementwise/complex.ts';
import { specialOps } from './aten/elementwise/special.ts';
import { unaryOps } from './aten/elementwise/unary.ts';
import { diagonalOps } from './aten/movement/diagonals.ts';
import { embeddingOps } from './aten/movement/embedding.ts';
import { embeddingBagOps } from './aten/movement/embedding-bag.ts';
import { factoryOps } from './aten/movement/factory.ts';
import { gridOps } from './aten/movement/grid.ts';
import { indexingOps } from './aten/movement/indexing.ts';
import { manipulateOps } from './aten/movement/manipulate.ts';
import { paddingOps } from './aten/movement/padding.ts';
import { randomOps } from './aten/movement/random.ts';
import { scatterReduceOps } from './aten/movement/scatter-reduce.ts';
import { upsampleOps } from './aten/movement/upsample.ts';
import { viewOps } from './aten/movement/views.ts';
import { attentionOps } from './aten/products/attention.ts';
import { convolutionOps } from './aten/products/convolution.ts';
import { distanceOps } from './aten/products/distances.ts';
import { einsumOps } from './aten/products/einsum.ts';
import { factorisationOps } from './aten/products/factorisation.ts';
import { flexAttentionOps } from './aten/products/flex-attention.ts';
import { fourierOps } from './aten/products/fourier.ts';
import { fusedOps } from './aten/products/fused.ts';
import { linalgOps } from './aten/products/linalg.ts';
import { matmulOps } from './aten/products/matmul.ts';
import { matrixFunctionOps } from './aten/products/matrix-functions.ts';
import { scaledMmOps } from './aten/products/scaled-mm.ts';
import { solutionOps } from './aten/products/solutions.ts';
import { varlenAttentionOps } from './aten/products/varlen-attention.ts';
import { batchNormOps } from './aten/reductions/batch-norm.ts';
import { lossOps } from './aten/reductions/loss.ts';
import { normOps } from './aten/reductions/norm.ts';
import { poolOps } from './aten/reductions/pool.ts';
import { reduceOps } from './aten/reductions/reduce.ts';
import { searchOps } from './aten/reductions/search.ts';
import { softmaxOps } from './aten/reductions/softmax.ts';
import { OperatorTable } from './record/table.ts';
import { spmdOps } from './spmd/operators.ts';
import { stablehloOps } from './stablehlo/operators.ts';

/** The table that was given last, while anybody still holds it. */
let held: WeakRef<OperatorTable> | undefined;

/**
 * The operators that come with Shardwright: ATen, prims, StableHLO, typed collectives. Tables never
 * change; nothing is registered globally.
 */
export function builtinOperators(): OperatorTable {
  const known = held?.deref();
  if (known !== undefined) return known;
  const table = builtinTable();
  held = new WeakRef(table);
  return table;
}

function builtinTable(): OperatorTable {
  const direct = new OperatorTable([
    ...matmulOps,
    ...unaryOps,
    ...binaryOps,
    ...logSigmoidOps,
    ...activationBackwardOps,
    ...specialOps,
    ...castOps,
    ...complexOps,
    ...reduceOps,
    ...softmaxOps,
    ...lossOps,
    ...normOps,
    ...batchNormOps,
    ...convolutionOps,
    ...poolOps,
    ...attentionOps,
    ...embeddingOps,
    ...embeddingBagOps,
    ...indexingOps,
    ...viewOps,
    ...manipulateOps,
    ...einsumOps,
    ...searchOps,
    ...linalgOps,
    ...upsampleOps,
    ...paddingOps,
    ...diagonalOps,
    ...distanceOps,
    ...fourierOps,
    ...gridOps,
    ...scaledMmOps,
    ...scatterReduceOps,
    ...factorisationOps,
    ...matrixFunctionOps,
    ...solutionOps,
    ...comparisonOps,
    ...fusedOps,
    ...factoryOps,
    ...randomOps,
    ...stablehloOps,
    ...spmdOps,
  ]);
  // New operators come last: tests take every operator in a form by its place.
  return direct.with([...decomposedOps(direct), ...flexAttentionOps, ...varlenAttentionOps]);
}
