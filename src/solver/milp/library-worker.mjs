/**
 * Runs the linear-programming libraries off the main thread: an abort of their code (HiGHS:
 * "RuntimeError: Aborted()" past 2 GiB) becomes this worker's `error` event, and a run that ignores
 * its clock can be terminated. Plain JavaScript, because a worker entry in TypeScript fails under
 * vitest and tsx on Node 20.
 */
import { parentPort } from 'node:worker_threads';

import { runLibrary } from './library-run.mjs';

if (parentPort === null) throw new Error('internal: library-worker.mjs runs as a worker only');
const port = parentPort;

port.on('message', (/** @type {Parameters<typeof runLibrary>[0]} */ job) => {
  runLibrary(job, (message) => port.postMessage(message)).then(
    (answer) => port.postMessage(answer),
    (/** @type {unknown} */ fault) => {
      // An abort poisons the library's memory: die, so that the next job gets a fresh worker.
      setImmediate(() => {
        throw fault;
      });
    },
  );
});
