/**
 * What a call throws: the product's error, its line of text, or its hint. A call that throws
 * nothing fails the test.
 */

import { ShardwrightError } from '../../src/errors.ts';

/** The product's error that a call ends in; any other error is thrown on. */
export function refusal(run: () => unknown): ShardwrightError {
  try {
    run();
  } catch (error) {
    if (error instanceof ShardwrightError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

/** Code and message of that error. */
export function refusalText(run: () => unknown): string {
  const { code, message } = refusal(run);
  return `${code}: ${message}`;
}

/** The hint of that error; empty where it has none. */
export function hintOf(run: () => unknown): string {
  return String(refusal(run).details.hint ?? '');
}
