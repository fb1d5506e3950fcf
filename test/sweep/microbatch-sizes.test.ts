import { expect, it } from 'vitest';

import { microbatchSizes } from '../../src/sweep/model/microbatch-sizes.ts';

it('sizes of a microbatch go by tokens: few sequences of a long one, up to 64 of a short one', () => {
  expect(microbatchSizes(8192)).toEqual([1, 2, 4]);
  expect(microbatchSizes(2048)).toEqual([1, 2, 4, 8]);
  expect(microbatchSizes(1024)).toEqual([1, 2, 4, 8, 16]);
  expect(microbatchSizes(257)).toEqual([1, 2, 4, 8, 16, 32]);
  expect(microbatchSizes(128)).toEqual([1, 2, 4, 8, 16, 32, 64]);
});
