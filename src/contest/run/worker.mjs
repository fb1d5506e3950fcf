/**
 * Carries members of the anytime search in a thread of their own. Plain JavaScript, because a
 * worker entry in TypeScript fails under vitest and tsx on Node 20; from a source tree it loads the
 * members through tsx.
 */
import { existsSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

if (parentPort === null) throw new Error('internal: worker.mjs runs as a worker only');
const port = parentPort;
// In a source tree only, where the development tool is there; the built package has no TypeScript.
const loader = 'tsx/esm/api';
if (existsSync(new URL('./member.ts', import.meta.url))) (await import(loader)).register();
const { Member } = await import('./member.js');
const { monotonicMilliseconds: milliseconds } = await import('../../platform/platform.js');

/**
 * @type {{ model: import('../model/model.js').Model, seeds: { member: number, seed: number }[],
 *   control: Int32Array, deadline: number }}
 */
const { model, seeds, control, deadline } = workerData;
const stopped = () => Atomics.load(control, 0) !== 0 || milliseconds() > deadline;
/** @type {Map<number, InstanceType<typeof Member>>} */
const members = new Map();
for (const { member, seed } of seeds) members.set(member, new Member(model, seed, stopped));

port.on(
  'message',
  (/** @type {{ member: number, orders: import('./member.js').Orders }} */ { member, orders }) => {
    const carried = members.get(member);
    if (carried === undefined) throw new Error(`internal: no member ${member} in this thread`);
    port.postMessage({ member, report: carried.round(orders) });
  },
);
