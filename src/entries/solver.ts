/**
 * The entry `shardwright/solver`: the choice problem (the energy of a pairwise Markov random field
 * with linear rows), its exact solver, and the checker of its certificates, which shares no code
 * with the solver.
 *
 * @module shardwright/solver
 */
export { solveAnytime } from '../contest/anytime.ts';
export { IopddlError, readIopddl } from '../contest/iopddl.ts';
export type { ContestOptions } from '../contest/options.ts';
export {
  evaluate as evaluateChoice,
  hashProblem,
  type Verdict,
  verifyCertificate,
} from '../solver/check/verify.ts';
export type { LinearProgram } from '../solver/milp/linear-program.ts';
export { lpText } from '../solver/milp/lp-text.ts';
export { ProblemBuilder } from '../solver/problem/builder.ts';
export { solve, solveNow } from '../solver/solve.ts';
export type {
  Certificate,
  CertificateRow,
  LinearRow,
  Problem,
  Progress,
  Solution,
  SolveOptions,
  SolverStep,
  StepName,
  UsagePiece,
} from '../solver/types.ts';
