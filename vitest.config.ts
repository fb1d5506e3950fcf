import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';

import { defineConfig } from 'vitest/config';

import { tuneRuntime } from './src/cli/runtime.ts';

// The threads of the tests are young and allocate much: with V8's defaults its helper threads,
// which collect garbage and optimise code, take as much processor time as half of the tests
// themselves. A young generation of 64 MiB instead of 16 is collected less often, and functions are
// optimised after as much work as the command line asks for (src/cli/runtime.ts).
tuneRuntime();
setFlagsFromString('--min-semi-space-size=64');
setFlagsFromString('--max-semi-space-size=64');

const src = fileURLToPath(new URL('./src/', import.meta.url));

export default defineConfig({
  resolve: {
    alias: [
      { find: /^shardwright$/, replacement: `${src}index.ts` },
      { find: /^shardwright\/(.*)$/, replacement: `${src}entries/$1.ts` },
    ],
  },
  test: {
    include: ['test/**/*.test.ts'],
    // These need PyTorch (`npm run test:engines`), or the registry (`npm run test:package`).
    exclude: ['test/engines/**', 'test/package/**'],
    // Random tests draw the same examples in every run; FAST_CHECK_SEED draws others.
    setupFiles: ['./test/support/fast-check-seed.ts'],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    pool: 'threads',
    maxWorkers: 2,
    // The tests use all cores as they are: what prices in threads of its own would load the sources
    // once more in each of them.
    env: { SHARDWRIGHT_THREADS: '1' },
    // Nothing in src keeps state between calls, so files may share the loaded modules: a third of
    // the time is saved.
    isolate: false,
    reporters: ['default', './test/support/plain-line-reporter.ts'],
  },
});
