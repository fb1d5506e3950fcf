import { activationBackwardOps } from './aten/activation-backward.ts';
import { attentionOps } from './aten/attention.ts';
import { batchNormOps } from './aten/batch-norm.ts';
import { binaryOps } from './aten/binary.ts';
import { castOps } from './aten/cast.ts';
import { complexOps } from './aten/complex.ts';
import { convolutionOps } from './aten/convolution.ts';
import { decomposedOps } from './aten/decomposed.ts';
import { einsumOps } from './aten/einsum.ts';
import { embeddingOps } from './aten/embedding.ts';
import { embeddingBagOps } from './aten/embedding-bag.ts';
import { factoryOps } from './aten/factory.ts';
import { indexingOps } from './aten/indexing.ts';
import { linalgOps } from './aten/linalg.ts';
import { lossOps } from './aten/loss.ts';
import { manipulateOps } from './aten/manipulate.ts';
import { matmulOps } from './aten/matmul.ts';
import { normOps } from './aten/norm.ts';
import { poolOps } from './aten/pool.ts';
import { randomOps } from './aten/random.ts';
import { reduceOps } from './aten/reduce.ts';
import { searchOps } from './aten/search.ts';
import { softmaxOps } from './aten/softmax.ts';
import { unaryOps } from './aten/unary.ts';
import { upsampleOps } from './aten/upsample.ts';
import { viewOps } from './aten/views.ts';
import { comparisonOps } from './aten/comparison.ts';
import { factorisationOps } from './aten/factorisation.ts';
import { fusedOps } from './aten/fused.ts';
import { gridOps } from './aten/grid.ts';
import { scaledMmOps } from './aten/scaled-mm.ts';
import { scatterReduceOps } from './aten/scatter-reduce.ts';
import { spmdOps } from './spmd/operators.ts';
import { stablehloOps } from './stablehlo/operators.ts';
import { OperatorTable } from './table.ts';

/** The operators that come with Shardwright: ATen, prims, StableHLO, typed collectives. A new table each time; nothing is registered globally. */
export function builtinOperators(): OperatorTable {
  const direct = new OperatorTable([
    ...matmulOps,
    ...unaryOps,
    ...binaryOps,
    ...activationBackwardOps,
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
    ...gridOps,
    ...scaledMmOps,
    ...scatterReduceOps,
    ...factorisationOps,
    ...comparisonOps,
    ...fusedOps,
    ...factoryOps,
    ...randomOps,
    ...stablehloOps,
    ...spmdOps,
  ]);
  return direct.with(decomposedOps(direct));
}
