import { expect, test } from 'vitest';

import { deviceSums } from '../../src/step/device-sums.ts';
import type { Unit } from '../../src/step/unit.ts';

const unit = (prefetchedBytes: number): Unit => ({
  forwardRoom: 0,
  backwardRoom: 0,
  gatherForward: 1,
  gatherBackward: 1,
  scatter: 1,
  stepSum: 0,
  stepGather: 0,
  forward: 1,
  input: 1,
  weight: 1,
  compute: 3,
  exchange: 0,
  pairedForward: 0,
  pairedBackward: 0,
  parameterBytes: 0,
  gradientBytes: 0,
  optimizerBytes: 0,
  keptBytes: 0,
  temporaryBytes: 0,
  prefetchedBytes,
  update: 0,
  boundaryBytes: 0,
  boundary: 0,
});

test('parameters are gathered ahead only where collectives run beside compute', () => {
  const units = [unit(9), unit(4), unit(7)];
  const spans = [{ first: 0, end: 3 }];
  // The first unit of a chunk has no neighbour before it that could gather it.
  expect(deviceSums(units, spans, 0, true).aheadBytes).toBe(7);
  expect(deviceSums(units, spans, 0, false).aheadBytes).toBe(0);
});

test('beside another microbatch a unit with experts holds its temporary values and what it keeps', () => {
  const plain = { ...unit(0), temporaryBytes: 500, keptBytes: 90 };
  const experts = { ...unit(0), exchange: 1, temporaryBytes: 30, keptBytes: 12 };
  const smaller = { ...unit(0), exchange: 1, temporaryBytes: 35, keptBytes: 1 };
  const sums = deviceSums([plain, experts, smaller], [{ first: 0, end: 3 }], 0, true);
  expect(sums.besideBytes).toBe(30 + 12);
  expect(sums.temporaryBytes).toBe(500);
});
