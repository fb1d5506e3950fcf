/** A request made ready to be solved: the question, all prices, and what its pins leave. */
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { CompactProblem } from '../../solver/problem/restrict.ts';
import type { RestrictedSolver } from '../../solver/search/restricted.ts';
import type { Problem } from '../../solver/types.ts';
import type { Model } from '../model/model.ts';
import type { PricedRequest } from '../request/request.ts';
import type { GivenPins } from '../restrict/given-pins.ts';

/** The question, with every default resolved. */
export interface Question {
  /** An applied checkpoint policy is part of `program`, and no longer of the request. */
  readonly request: PricedRequest;
  /** The program in a plan folder, with its bodies. `model.graph` has each body inlined. */
  readonly program: Graph;
  /** The operators of `program`. `model.table` has also those that its regions became. */
  readonly operators: OperatorTable;
  /** Shardings that the program states; they are pins unless the request ignores them. */
  readonly given: GivenPins;
  /** Bytes of a device. */
  readonly budgetBytes: number;
}

/** The part of the model's problem that pins leave. */
export interface Left {
  /** With the variables and values of the model; values that pins take away cost Infinity. */
  readonly problem: Problem;
  /** The same problem with those values left out: what is solved. */
  readonly compact: CompactProblem;
  /** Restrictions that leave some node nothing; not empty means infeasible whatever the budget. */
  readonly contradictions: readonly string[];
  /** Shardings that the program states and that are not pins, one sentence each. */
  readonly unpinned: readonly string[];
}

/** A request that is ready to be solved. */
export interface Prepared {
  readonly question: Question;
  readonly model: Model;
  readonly left: Left;
  /**
   * The model's problem, for solves of parts of it: recipes, edits, and the whole where nothing is
   * pinned.
   */
  readonly solver: RestrictedSolver;
  /**
   * The same with all prices, where `model` leaves out those above a ceiling: recipes, and plans
   * whose peak binds, may need them. Variables and values are the same.
   */
  readonly allPrices?: Prepared;
  /** Assumptions, one sentence each. */
  readonly notes: readonly string[];
}
