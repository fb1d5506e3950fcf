/** What the checks against PyTorch cannot run or find different, so that it cannot grow in silence. */
export const REFUSED: readonly string[] = [];
export const NOT_RUN: Readonly<Record<string, readonly string[]>> = {};
export const ABSENT: readonly string[] = [];
export const OTHER_SCHEMA: readonly string[] = [];
export const KERNEL_LIMITS: readonly string[] = [];
