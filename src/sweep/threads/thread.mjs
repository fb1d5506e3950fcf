/**
 * A thread of a sweep: prices one program after another. Plain JavaScript, because a worker entry
 * in TypeScript fails under vitest and tsx on Node 20; from a source tree it loads the rest through
 * tsx.
 */
import { existsSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

if (parentPort === null) throw new Error('internal: thread.mjs runs as a worker only');
// In a source tree only, where the development tool is there; the built package has no TypeScript.
const loader = 'tsx/esm/api';
if (existsSync(new URL('./thread-main.ts', import.meta.url))) (await import(loader)).register();
const { serve } = await import('./thread-main.js');
serve(parentPort, workerData);
