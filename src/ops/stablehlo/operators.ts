/** Lists the operator records of the StableHLO vocabulary. */

import type { OperatorRecord } from '../record/record.ts';
import { collectiveOps } from './collective.ts';
import { elementwiseOps } from './elementwise.ts';
import { identityOps } from './identity.ts';
import { indexingOps } from './indexing.ts';
import { linalgOps } from './linalg.ts';
import { movingOps } from './moving.ts';
import { normOps } from './norm.ts';
import { productOps } from './product.ts';
import { randomOps } from './random.ts';
import { reduceOps } from './reduce.ts';
import { shapeOps } from './shapes.ts';

/** Every record of the StableHLO vocabulary (`stablehlo.*`, `chlo.*`, `sdy.*`). */
export const stablehloOps: readonly OperatorRecord[] = [
  ...productOps,
  ...elementwiseOps,
  ...shapeOps,
  ...movingOps,
  ...identityOps,
  ...linalgOps,
  ...reduceOps,
  ...indexingOps,
  ...normOps,
  ...collectiveOps,
  ...randomOps,
];
