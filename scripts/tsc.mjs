/**
 * The compiler of TypeScript 7, which is native and takes a tenth of the time of 6. The latter stays
 * for what has no interface in 7 yet: the rules of ESLint, and the reader of traced programs.
 */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const require = createRequire(import.meta.url);

/** Path of the script to be run by Node. */
export const TSC = join(dirname(require.resolve('typescript-7/package.json')), 'bin', 'tsc');
