import { fileURLToPath } from 'node:url';

import { defineConfig } from 'vitest/config';

const src = fileURLToPath(new URL('./src/', import.meta.url));

/**
 * The checks against real PyTorch: `npm run test:engines`, which finds or installs the Python that
 * they need.
 */
export default defineConfig({
  resolve: {
    alias: [
      { find: /^shardwright$/, replacement: `${src}index.ts` },
      { find: /^shardwright\/(.*)$/, replacement: `${src}entries/$1.ts` },
    ],
  },
  test: {
    include: ['test/engines/**/*.test.ts'],
    testTimeout: 170_000,
    hookTimeout: 170_000,
    pool: 'threads',
    maxWorkers: 2,
    reporters: ['default', './test/support/plain-line-reporter.ts'],
  },
});
