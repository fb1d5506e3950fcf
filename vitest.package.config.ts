import { defineConfig } from 'vitest/config';

/**
 * The packed files, installed as a user installs them, on every Node that is supported: `npm run
 * test:package`, after a build.
 */
export default defineConfig({
  test: {
    include: ['test/package/**/*.test.ts'],
    testTimeout: 170_000,
    hookTimeout: 600_000,
    pool: 'threads',
    maxWorkers: 1,
    reporters: ['default', './test/support/plain-line-reporter.ts'],
  },
});
