// @ts-check
import { existsSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';

/**
 * A thread of a sweep: prices one program after another. From a build it loads the compiled module beside it; from sources
 * Node needs to be taught TypeScript first.
 */
const compiled = new URL('./thread-main.js', import.meta.url);
let main;
if (existsSync(compiled)) main = await import(compiled.href);
else {
  const { register } = await import('tsx/esm/api');
  register();
  main = await import(new URL('./thread-main.ts', import.meta.url).href);
}
main.serve(parentPort, workerData);
