import { fileURLToPath } from 'node:url';

import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const src = fileURLToPath(new URL('./src/', import.meta.url));

/** Files that take minutes, the longest first: begun last, one would run alone on two cores. */
const LONG = ['python-package', 'python-training', 'running', 'train-llama', 'jax-export'];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification): number => {
      const found = LONG.findIndex((name) => moduleId.endsWith(`/${name}.test.ts`));
      return found < 0 ? LONG.length : found;
    };
    return (await super.sort(files)).sort((a, b) => place(a) - place(b));
  }
}

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
    // Both cores are taken, and files share the loaded modules, as in `vitest.config.ts`.
    env: { SHARDWRIGHT_THREADS: '1' },
    isolate: false,
    sequence: { sequencer: LongestFirst },
    reporters: ['default', './test/support/plain-line-reporter.ts'],
  },
});
