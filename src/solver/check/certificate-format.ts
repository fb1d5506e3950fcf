/**
 * The format of a certificate: the numbers by which both modes of the solver write their proofs and
 * the checker reads them. Nothing else is common to solver and checker. `docs/certificates.md` says
 * what each step means and when it is refused.
 *
 * Factors are named by number: the edges of the problem are 0..E-1 (a self loop keeps its number
 * but is part of its variable's costs), every factor that an elimination makes gets the next free
 * number. Values are positions among the values that are still alive, in ascending order, so that
 * equal layers write equal lists.
 */

/**
 * Every step: its code, and the kinds of the arguments that follow the code. `i` is a plain number,
 * `m` the index of a list of integers, `v` the index of a list of costs.
 */
const STEPS = {
  /** j, i, f: edge f makes x_j a function of x_i; j is replaced by that function everywhere. */
  merge: { code: 1, args: 'iii' },
  /**
   * i, list of pairs (d, w) in order: position d of i is deleted because position w is at least as
   * good whatever the neighbours do, or, with w = -1, because d is forbidden or has no finite
   * partner in some factor.
   */
  drop: { code: 2, args: 'im' },
  /**
   * f: edge f is a function of its first plus a function of its second variable; both move into the
   * unaries.
   */
  separate: { code: 3, args: 'i' },
  /** f, g: edge g joins the same two variables as f and is added to it. */
  add: { code: 4, args: 'ii' },
  /**
   * v: minimise over v; with two neighbours or more the result is the next free factor, else it
   * joins a unary.
   */
  eliminate: { code: 5, args: 'i' },
  /**
   * f, u, v, list, list: amounts per position of u and of v move from edge f into the unaries of u
   * and v.
   */
  shift: { code: 6, args: 'iiivv' },
  /**
   * list of one number (or none): minima move into the constant, then what alone exceeds that cost
   * is forbidden.
   */
  prune: { code: 7, args: 'v' },
  /**
   * f, u, v: the finite pairs of edge f, ordered by u, then v, become the values of the next free
   * variable.
   */
  fuse: { code: 8, args: 'iii' },
  /**
   * list: one price per row, in units of 2^-40, enters the unaries, rounded; the priced bounds
   * leave the constant.
   */
  price: { code: 9, args: 'v' },
  /** The rest is minimised under the rows by Pareto elimination. */
  pareto: { code: 10, args: '' },
  /**
   * v, n: n parts follow, each `part`, steps, `end`; together they hold every value of v. Nothing
   * follows the last.
   */
  branch: { code: 11, args: 'ii' },
  /** list: the positions of the branching variable that this part keeps. */
  part: { code: 12, args: 'm' },
  end: { code: 13, args: '' },
  /**
   * Until the next `prune`, eliminations keep every cost, however large: nothing is forbidden on
   * the way.
   */
  whole: { code: 14, args: '' },
  /**
   * bits, list, list: one price per row, in units of 2^-40, and triples (f, l, m) of an edge f and
   * the lists of what leaves it for the values of its first and of its second variable (-1:
   * nothing), in units of 2^-bits. They replace those set before; parts of a branch begin with
   * them, and so does `sweep`. What is left costs at least the sum of all minima.
   */
  messages: { code: 15, args: 'ivm' },
  /**
   * bits, list, n: prices as above, and the messages that n sweeps of the checker make of those set
   * before.
   */
  sweep: { code: 16, args: 'ivi' },
  /**
   * Deletes every value that costs infinity or has no finite partner in some factor, until none is
   * left.
   */
  support: { code: 17, args: '' },
} as const;

type Steps = typeof STEPS;

/** Codes of the steps by name. */
export const STEP = Object.fromEntries(
  Object.entries(STEPS).map(([name, { code }]) => [name, code]),
) as { readonly [Name in keyof Steps]: Steps[Name]['code'] };

/** Kinds of the arguments of each code; undefined for what is not the code of a step. */
export const ARGUMENTS: readonly (string | undefined)[] = Object.values(STEPS).reduce<
  (string | undefined)[]
>((kinds, { code, args }) => {
  kinds[code] = args;
  return kinds;
}, []);

/** Bits behind the point of a price. */
export const PRICE_SCALE = 40n;
