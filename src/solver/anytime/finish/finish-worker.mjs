/**
 * Runs `finish` (or, on a job with `kind: 'plan'`, `branchTree`) in a thread of its own: HiGHS is one long call, and past its memory it poisons the thread that it runs in.
 * Posts `{ update: { choice, cost } }` for every better choice and `{ answer }` at the end. Plain JavaScript for the same
 * reason as `worker.mjs`.
 */
import { existsSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

if (parentPort === null) throw new Error('internal: finish-worker.mjs runs as a worker only');
const port = parentPort;
// In a source tree only, where the development tool is there; the built package has no TypeScript.
const loader = 'tsx/esm/api';
if (existsSync(new URL('./finish.ts', import.meta.url))) (await import(loader)).register();
/** @type {unknown} */
let answer;
if (workerData.kind === 'plan') {
  const { branchTree } = await import('./branch-tree.js');
  answer = await branchTree(workerData);
} else {
  const { finish } = await import('./finish.js');
  const update = (/** @type {Int32Array} */ choice, /** @type {number} */ cost) =>
    port.postMessage({ update: { choice, cost } });
  answer = await finish(workerData, update);
}
port.postMessage({ answer });
