import { expect, test } from 'vitest';

import { trainerText } from '../../src/report/model/trainer-text.ts';

test('a trainer is named with the release that its record follows, where it follows one', () => {
  expect(trainerText('megatron')).toBe(
    'Megatron-LM, megatron-core 0.16.1 (--for asks for another)',
  );
  expect(trainerText('maxtext')).toBe('MaxText (--for asks for another)');
  expect(trainerText('mine')).toBe('mine');
});
