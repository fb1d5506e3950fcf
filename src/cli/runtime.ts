/**
 * A plan is a short program with much code: V8's optimizing compiler, eager by default, spends more
 * CPU seconds on code that runs for a few milliseconds than it saves. Optimising later (after 15
 * times the work of V8's default) takes a quarter to a third off a whole `plan` process and costs
 * long solves nothing that can be measured: their loops pass the mark at once. Figures:
 * bench/results.md. V8 renames its flags and prints a line about one that it does not know, so each
 * is set in the releases that have it, and in others none.
 */
import { setFlagsFromString } from 'node:v8';

import { keepCompiledCode } from './thread/compile-cache.mjs';

/** By V8 release: Node 20 counts bytes of executed bytecode, Node 22 and 24 count calls. */
const OPTIMIZE_LATER: Readonly<Record<string, string>> = {
  '11.3': '--interrupt-budget=1000000',
  '12.4': '--invocation-count-for-turbofan=45000',
  '13.6': '--invocation-count-for-turbofan=45000',
};

/** To be called before anything else is loaded. */
export function tuneRuntime(): void {
  const flag = OPTIMIZE_LATER[process.versions.v8.split('.', 2).join('.')];
  if (flag !== undefined) setFlagsFromString(flag);
  keepCompiledCode();
}
