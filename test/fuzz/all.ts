/** Every fuzzer; one file a kind. */
import { CERTIFICATES } from './certificates.ts';
import { FOLDERS } from './folders.ts';
import { ILP, PLAN_ILP } from './ilp.ts';
import { INPUTS } from './inputs.ts';
import { PINS } from './pins.ts';
import type { Fuzzer } from './runner.ts';
import { ANYTIME, SOLVER } from './solver.ts';

export const FUZZERS: readonly Fuzzer[] = [
  SOLVER,
  ANYTIME,
  CERTIFICATES,
  ILP,
  PLAN_ILP,
  PINS,
  FOLDERS,
  ...INPUTS,
];
