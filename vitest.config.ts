import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  resolve: { alias: { shardwright: fileURLToPath(new URL('./src/index.ts', import.meta.url)) } },
  test: {
    include: ['test/**/*.test.ts'],
    // These need PyTorch: `npm run test:engines`.
    exclude: ['test/engines/**'],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    pool: 'threads',
    maxWorkers: 2,
    // Nothing in src keeps state between calls, so files may share the loaded modules: a third of the time is saved.
    isolate: false,
    reporters: ['default', './test/support/plain-line-reporter.ts'],
  },
});
