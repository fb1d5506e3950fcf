/**
 * Runs a linear-programming library on the program of a job and gives its answer; better solutions
 * are posted as they come. It is plain JavaScript, because the worker that loads it is.
 */

/**
 * A program without names, a matrix in compressed rows.
 * @typedef {object} Program
 * @property {number} columns
 * @property {number} rows
 * @property {Float64Array} cost
 * @property {Float64Array} lower
 * @property {Float64Array} upper
 * @property {Uint8Array} integer
 * @property {Int32Array} starts
 * @property {Int32Array} indices
 * @property {Float64Array} values
 * @property {Float64Array} rowLower
 * @property {Float64Array} rowUpper
 */

/**
 * @typedef {object} Job
 * @property {number} id
 * @property {'highs' | 'javascript-lp-solver'} library
 * @property {Program} program
 * @property {Float64Array} [start] column values of a known solution
 * @property {number} [timeLimitSeconds]
 * @property {number} seed
 */

/**
 * The answer of the library. `values` may be fractional, partial or wrong: the caller checks.
 * @typedef {object} Answer
 * @property {number} id
 * @property {string} word
 * @property {Float64Array} [values]
 * @property {number} [bound] the library's own bound in scaled cost: evidence only
 */

/** @type {Promise<import('highs').Highs> | undefined} */
let loading;

const WORDS = [
  'Not set',
  'Load error',
  'Model error',
  'Presolve error',
  'Solve error',
  'Postsolve error',
  'Empty',
  'Optimal',
  'Infeasible',
  'Infeasible or unbounded',
  'Unbounded',
  'Objective bound reached',
  'Objective target reached',
  'Time limit reached',
  'Iteration limit reached',
  'Unknown',
  'Solution limit reached',
  'Interrupted',
];

/**
 * @param {Job} job
 * @param {(message: { id: number, incumbent: Float64Array }) => void} post
 * @returns {Promise<Answer>}
 */
async function runHighs(job, post) {
  const { program: p } = job;
  loading ??= import('highs').then(({ default: load }) => load());
  const highs = await loading;
  const { variableType, callbackType } = highs.constants;
  const model = highs.createModel({
    numCols: p.columns,
    numRows: p.rows,
    colCost: p.cost,
    colLower: p.lower,
    colUpper: p.upper,
    rowLower: p.rowLower,
    rowUpper: p.rowUpper,
    matrix: {
      format: 'csr',
      numRows: p.rows,
      numCols: p.columns,
      starts: p.starts,
      indices: p.indices,
      values: p.values,
    },
    integrality: Array.from(p.integer, (flag) =>
      flag === 1 ? variableType.integer : variableType.continuous,
    ),
  });
  try {
    // The default relative gap of 1e-4 stops short of the optimum and still says "Optimal".
    model.options.set({
      output_flag: false,
      mip_rel_gap: 0,
      mip_abs_gap: 0,
      random_seed: job.seed,
    });
    if (job.timeLimitSeconds !== undefined) model.options.set('time_limit', job.timeLimitSeconds);
    if (job.start !== undefined) model.setSolution({ colValue: job.start });
    model.run({
      [callbackType.mipImprovingSolution]: (/** @type {import('highs').CallbackEvent} */ event) => {
        if (event.data.mip_solution !== undefined)
          post({ id: job.id, incumbent: event.data.mip_solution });
        return undefined;
      },
    });
    const word = WORDS[model.getModelStatus()] ?? 'Unknown';
    // 2: a feasible primal solution exists (kSolutionStatusFeasible).
    const values =
      Number(model.info.get('primal_solution_status')) === 2
        ? model.getSolution().colValue
        : undefined;
    const bound = Number(model.info.get('mip_dual_bound'));
    return {
      id: job.id,
      word,
      ...(values === undefined ? {} : { values }),
      ...(Number.isFinite(bound) ? { bound } : {}),
    };
  } finally {
    model.dispose();
  }
}

/**
 * Columns whose upper bound follows from a row "sum of non-negative terms <= bound": the dense
 * tableau of javascript-lp-solver pays for every bound with a row.
 * @param {Program} p
 */
function impliedUpper(p) {
  const upper = new Float64Array(p.columns).fill(Infinity);
  for (let r = 0; r < p.rows; r++) {
    let fits = p.rowUpper[r] !== Infinity;
    for (let k = p.starts[r]; fits && k < p.starts[r + 1]; k++)
      fits = p.values[k] > 0 && p.lower[p.indices[k]] === 0;
    for (let k = p.starts[r]; fits && k < p.starts[r + 1]; k++) {
      const j = p.indices[k];
      upper[j] = Math.min(upper[j], p.rowUpper[r] / p.values[k]);
    }
  }
  return upper;
}

/**
 * @param {Job} job
 * @returns {Promise<Answer>}
 */
async function runJslp(job) {
  const { program: p } = job;
  const { default: solver } = await import('javascript-lp-solver');
  // Every name is an integer that is made here: a misspelt constraint name would silently be a free
  // coefficient.
  /** @type {Record<string, { min?: number, max?: number, equal?: number }>} */
  const constraints = {};
  /** @type {Record<string, Record<string, number>>} */
  const variables = {};
  /** @type {Record<string, 1>} */
  const ints = {};
  const implied = impliedUpper(p);
  for (let j = 0; j < p.columns; j++) {
    if (p.lower[j] !== 0)
      throw new Error(
        `internal: column ${j} has lower bound ${p.lower[j]}; only 0 is supported here`,
      );
    variables[`x${j}`] = { cost: p.cost[j] };
    if (p.integer[j] === 1) ints[`x${j}`] = 1;
    if (p.upper[j] < implied[j]) {
      constraints[`u${j}`] = { max: p.upper[j] };
      variables[`x${j}`][`u${j}`] = 1;
    }
  }
  for (let r = 0; r < p.rows; r++) {
    const [lo, hi] = [p.rowLower[r], p.rowUpper[r]];
    if (p.starts[r] === p.starts[r + 1]) continue;
    if (lo === hi) constraints[`r${r}`] = { equal: lo };
    else
      constraints[`r${r}`] = {
        ...(lo === -Infinity ? {} : { min: lo }),
        ...(hi === Infinity ? {} : { max: hi }),
      };
    for (let k = p.starts[r]; k < p.starts[r + 1]; k++)
      variables[`x${p.indices[k]}`][`r${r}`] = p.values[k];
  }
  const model = {
    optimize: 'cost',
    opType: /** @type {const} */ ('min'),
    constraints,
    variables,
    ints,
    options: {
      presolve: false,
      ...(job.timeLimitSeconds === undefined
        ? {}
        : { timeout: Math.max(1, job.timeLimitSeconds * 1000) }),
    },
  };
  const full = /** @type {import('javascript-lp-solver').SolveResult} */ (solver.Solve(model));
  if (!full.feasible) return { id: job.id, word: 'infeasible' };
  const values = new Float64Array(p.columns);
  for (let j = 0; j < p.columns; j++) values[j] = Number(full[`x${j}`] ?? 0);
  return {
    id: job.id,
    word: full.isIntegral === true ? 'integral' : 'integrality not claimed',
    values,
  };
}

/**
 * @param {Job} job
 * @param {(message: { id: number, incumbent: Float64Array }) => void} post
 * @returns {Promise<Answer>}
 */
export function runLibrary(job, post) {
  return job.library === 'highs' ? runHighs(job, post) : runJslp(job);
}
