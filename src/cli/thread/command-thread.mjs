/**
 * Runs a command in a thread of its own, so that the main thread hears signals. Plain JavaScript,
 * because a worker entry in TypeScript fails under tsx on Node 20; from a source tree it loads the
 * rest through tsx.
 */
import { existsSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

import { keepCompiledCode } from './compile-cache.mjs';
import { compiledProgram } from './compiled-program.mjs';

if (parentPort === null) throw new Error('internal: command-thread.mjs runs as a worker only');
keepCompiledCode();
// In a source tree only, where the development tool is there; the built package has no TypeScript.
const loader = 'tsx/esm/api';
if (existsSync(new URL('./command-thread-main.ts', import.meta.url)))
  (await import(loader)).register();
const { serve } = compiledProgram(workerData.argv) ?? (await import('./command-thread-main.js'));
await serve(parentPort, workerData);
