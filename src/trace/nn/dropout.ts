/** Dropout as a traced module. */

import { dropout } from '../tensor/functional.ts';
import { isTraining } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';

/** Elements set to zero with probability `p` while training; the identity otherwise. */
export class Dropout {
  constructor(readonly p: number) {}

  /** @throws E_TRACE_IMPURE while training without a key */
  forward(x: Tensor, key?: Tensor): Tensor {
    return isTraining() && this.p > 0 ? dropout(x, this.p, key) : x;
  }
}
