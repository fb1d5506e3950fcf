/**
 * Runs `finishThread` in a thread of its own. Plain JavaScript for the same reason as `worker.mjs`.
 */
import { existsSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

if (parentPort === null) throw new Error('internal: finish-worker.mjs runs as a worker only');
// In a source tree only, where the development tool is there; the built package has no TypeScript.
const loader = 'tsx/esm/api';
if (existsSync(new URL('./finish-thread.ts', import.meta.url))) (await import(loader)).register();
const { finishThread } = await import('./finish-thread.js');
await finishThread(parentPort, workerData);
