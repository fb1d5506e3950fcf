/**
 * The entry `shardwright/solver`: the choice problem (the energy of a pairwise Markov random field
 * with linear rows), its exact solver, and the checker of its certificates, which shares no code
 * with the solver.
 *
 * @module shardwright/solver
 */
export { solve, solveNow } from '../solver/solve.ts';
export {
  evaluate as evaluateChoice,
  hashProblem,
  verifyCertificate,
  type Verdict,
} from '../solver/check/verify.ts';
export { IopddlError, readIopddl } from '../solver/problem/iopddl.ts';
export { ProblemBuilder } from '../solver/problem/builder.ts';
export type {
  Certificate,
  CertificateRow,
  LinearRow,
  Problem,
  Progress,
  ProveOptions,
  Solution,
  SolveOptions,
  SolverStep,
  StepName,
  UsagePiece,
} from '../solver/types.ts';
export { lpText } from '../solver/milp/lp-text.ts';
export type { LinearProgram } from '../solver/milp/linear-program.ts';
