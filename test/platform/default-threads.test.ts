import { availableParallelism } from 'node:os';

import { afterEach, expect, it, vi } from 'vitest';

import { defaultThreads } from '../../src/platform/platform.ts';

afterEach(() => vi.unstubAllEnvs());

it('as many threads price as SHARDWRIGHT_THREADS says, or as there are cores', () => {
  vi.stubEnv('SHARDWRIGHT_THREADS', '3');
  expect(defaultThreads()).toBe(3);
  vi.stubEnv('SHARDWRIGHT_THREADS', '');
  expect(defaultThreads()).toBe(availableParallelism());
  for (const odd of ['0', '-1', 'two', '1.5', '1e3', ' ']) {
    vi.stubEnv('SHARDWRIGHT_THREADS', odd);
    expect(defaultThreads, odd).toThrow(/^SHARDWRIGHT_THREADS is '/);
  }
});
