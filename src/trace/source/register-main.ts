/** The module behind `shardwright/register`: installs the hook for the file on the command line. */
import { resolve } from 'node:path';

import { registerTraceHook } from './register.ts';

const [, entry] = process.argv;
registerTraceHook(entry === undefined ? {} : { files: [resolve(entry)] });

export { registerTraceHook };
