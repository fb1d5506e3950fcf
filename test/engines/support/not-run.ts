/** What rules.test.ts cannot run, so that it cannot grow in silence. */
export const REFUSED: readonly string[] = [];
export const NOT_RUN: Readonly<Record<string, readonly string[]>> = {};
