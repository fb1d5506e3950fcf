import { spec } from '../../src/trace/record/spec.ts';
import { type Tensor, trace } from '../../src/trace/trace.ts';

/** Runs `body` on a traced f32[4, 8] and an integer tensor. */
export function withTensor<T>(body: (t: Tensor, u: Tensor) => T, proxy = true): T {
  let result: T | undefined;
  trace(
    ({ t, u }) => {
      result = body(t, u);
      return t;
    },
    { t: spec([4, 8]), u: spec([4, 8]) },
    { checkTwice: false, proxy },
  );
  return result as T;
}

export { refusal as errorOf } from '../support/thrown.ts';
