/**
 * The format of a certificate: the numbers by which both modes of the solver write their proofs and
 * the checker reads them. Nothing else is common to solver and checker.
 *
 * Factors are named by number: the edges of the problem are 0..E-1 (a self loop keeps its number
 * but is part of its variable's costs), every factor that an elimination makes gets the next free
 * number. Values are positions among the values that are still alive, in ascending order, so that
 * equal layers write equal lists.
 */

/**
 * Step codes; the comment gives the arguments that follow the code. A list is an index into the
 * certificate's lists.
 */
export const STEP = {
  /** j, i, f: edge f makes x_j a function of x_i; j is replaced by that function everywhere. */
  merge: 1,
  /**
   * i, list of pairs (d, w) in order: position d of i is deleted because position w is at least as
   * good whatever the neighbours do, or, with w = -1, because d is forbidden or has no finite
   * partner in some factor.
   */
  drop: 2,
  /**
   * f: edge f is a function of its first plus a function of its second variable; both move into the
   * unaries.
   */
  separate: 3,
  /** f, g: edge g joins the same two variables as f and is added to it. */
  add: 4,
  /**
   * v: minimise over v; with two neighbours or more the result is the next free factor, else it
   * joins a unary.
   */
  eliminate: 5,
  /**
   * f, u, v, list, list: amounts per position of u and of v move from edge f into the unaries of u
   * and v.
   */
  shift: 6,
  /**
   * list of one number (or none): minima move into the constant, then what alone exceeds that cost
   * is forbidden.
   */
  prune: 7,
  /**
   * f, u, v: the finite pairs of edge f, ordered by u, then v, become the values of the next free
   * variable.
   */
  fuse: 8,
  /**
   * list: one price per row, in units of 2^-40, enters the unaries, rounded; the priced bounds
   * leave the constant.
   */
  price: 9,
  /** No arguments. The rest is minimised under the rows by Pareto elimination. */
  pareto: 10,
  /**
   * v, n: n parts follow, each `part`, steps, `end`; together they hold every value of v. Nothing
   * follows the last.
   */
  branch: 11,
  /** list: the positions of the branching variable that this part keeps. */
  part: 12,
  end: 13,
  /**
   * No arguments. Until the next `prune`, eliminations keep every cost, however large: nothing is
   * forbidden on the way.
   */
  whole: 14,
  /**
   * bits, list, list: one price per row, in units of 2^-40, and triples (f, l, m) of an edge f and
   * the lists of what leaves it for the values of its first and of its second variable (-1:
   * nothing), in units of 2^-bits. They replace those set before; parts of a branch begin with
   * them, and so does `sweep`. What is left costs at least the sum of all minima.
   */
  messages: 15,
  /**
   * bits, list, n: prices as above, and the messages that n sweeps of the checker make of those set
   * before.
   */
  sweep: 16,
  /**
   * No arguments. Deletes every value that costs infinity or has no finite partner in some factor,
   * until none is left.
   */
  support: 17,
} as const;

/**
 * Kinds of the arguments of each code: `i` a plain number, `m` a list of integers, `v` a list of
 * costs.
 */
export const ARGUMENTS: readonly string[] = [
  '',
  'iii',
  'im',
  'i',
  'ii',
  'i',
  'iiivv',
  'v',
  'iii',
  'v',
  '',
  'ii',
  'm',
  '',
  '',
  'ivm',
  'ivi',
  '',
];

/** Bits behind the point of a price. */
export const PRICE_SCALE = 40n;
