/**
 * Runs `partsThread` in a thread of its own. Plain JavaScript for the same reason as `worker.mjs`.
 */
import { existsSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

if (parentPort === null) throw new Error('internal: parts-worker.mjs runs as a worker only');
// In a source tree only, where the development tool is there; the built package has no TypeScript.
const loader = 'tsx/esm/api';
if (existsSync(new URL('./parts-thread.ts', import.meta.url))) (await import(loader)).register();
const { partsThread } = await import('./parts-thread.js');
partsThread(parentPort, workerData);
