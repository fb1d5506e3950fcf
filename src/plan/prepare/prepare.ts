/**
 * A graph and a request made ready to be solved, in four steps: settle the request, make the
 * program that is planned, price it, restrict it to what pins leave.
 */
import { checkKinds } from '../../arguments.ts';
import { internalError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { builtinOperators } from '../../ops/builtin.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { PreparedProblem } from '../../solver/search/prepared.ts';
import { RestrictedSolver } from '../../solver/search/restricted.ts';
import type { Problem } from '../../solver/types.ts';
import { buildModel } from '../model/build.ts';
import type { BuildInput } from '../model/input.ts';
import type { Model } from '../model/model.ts';
import { completeRequest } from '../request/check-call.ts';
import { Deadline } from '../request/deadline.ts';
import {
  type GivenRequest,
  peakBinds,
  type PlanRequest,
  type PricedRequest,
} from '../request/request.ts';
import { restrictionOf } from '../restrict/pins.ts';
import { ceilingOf } from './ceiling.ts';
import { notesOf } from './notes.ts';
import type { Left, Prepared, Question } from './prepared.ts';
import { priceable } from './price.ts';
import { isPolicy, plannableProgram } from './program.ts';
import { type Setting, settle } from './setting.ts';

/**
 * @param deadline of the whole plan; default none
 * @throws E_TIME_LIMIT saying in which step, E_MESH, E_CLUSTER, E_UNKNOWN_OP, E_PIN, E_REF ... for
 *   a request that cannot be read
 */
export function prepare(
  original: Graph,
  given: GivenRequest,
  operators: OperatorTable = builtinOperators(),
  deadline: Deadline = new Deadline(undefined),
): Prepared {
  checkKinds('prepare', {
    graph: [original, 'graph'],
    table: [operators, 'operators'],
    deadline: [deadline, ['check', 'leftSeconds']],
  });
  const asked = completeRequest(given);
  deadline.check('while the program was read');
  // A plan that is found is written however late it is.
  let isPrepared = false;
  const setting = settle(asked, operators, () => {
    if (!isPrepared) deadline.check('while redistributions were priced');
  });
  const prepared = preparedProgram(plannableProgram(original, setting), setting, deadline);
  isPrepared = true;
  return prepared;
}

/**
 * Another program of the same question, one with recomputed nodes: what prices are known stays
 * known. Its request says that the search chose them, and does not ask for recomputation again.
 */
export function onOtherProgram({ question, model }: Prepared, program: Graph): Prepared {
  const { space, cluster, collectives, charges } = model;
  const setting: Setting = {
    request: {
      ...question.request,
      activations: 'constraint',
      checkpoint: 'none',
      recomputation: 'chosen',
    },
    operators: question.operators,
    space,
    cluster,
    collectives,
    charges,
    budgetBytes: question.budgetBytes,
  };
  return preparedProgram(plannableProgram(program, setting), setting, new Deadline(undefined));
}

/** The same question where the peak is known to bind: its request says so, all prices count. */
export function holdingPeak(prepared: Prepared): Prepared {
  const { request } = prepared.question;
  if (peakBinds(request)) return prepared;
  const { allPrices = prepared } = prepared;
  return {
    ...allPrices,
    question: { ...allPrices.question, request: { ...request, activations: 'constraint' } },
  };
}

/** The same question under another budget; no price is left out, and prices stay known. */
export function withBudget(prepared: Prepared, budgetBytes: number): Prepared {
  const { question, model, left, ...others } = prepared.allPrices ?? prepared;
  const bounded = (problem: Problem): Problem =>
    problem.rows === undefined
      ? problem
      : { ...problem, rows: problem.rows.map((row) => ({ ...row, bound: budgetBytes })) };
  const request = { ...question.request, memoryBytes: budgetBytes };
  return {
    ...others,
    question: { ...question, request, budgetBytes },
    model: { ...model, problem: bounded(model.problem) },
    left: {
      ...left,
      problem: bounded(left.problem),
      compact: { ...left.compact, problem: bounded(left.compact.problem) },
    },
  };
}

/**
 * The same question with other pins: model and tables are those that are there, unless prices were
 * left out of them, and only what the pins leave is made again.
 *
 * @param request differs from the prepared one in its pins, or in whether those of the program
 *   hold, alone
 * @throws E_REF, E_PIN for pins that the graph does not admit
 */
export function withPins(prepared: Prepared, request: PricedRequest): Prepared {
  const { question, model } = prepared;
  const rest = ({ pins: _, shardings: __, ...others }: PlanRequest): string =>
    JSON.stringify(Object.entries(others).sort());
  if (rest(request) !== rest(question.request))
    throw internalError('a request that differs in more than its pins');
  // Prices were left out because a plan with the pins as they were is known; with other pins they
  // may be what is left.
  if (model.ceilingSeconds !== undefined)
    return prepare(question.program, request, question.operators);
  const asked = { ...question, request };
  return { ...prepared, question: asked, left: leftOf(model, asked) };
}

function preparedProgram(program: Graph, setting: Setting, deadline: Deadline): Prepared {
  const { request, operators, budgetBytes } = setting;
  const { input, given } = priceable(program, setting, deadline);
  const asked: Question = { request, program, operators, given, budgetBytes };
  // A policy that is applied is part of the program from here on: asking for it again would apply
  // it twice.
  const question: Question = isPolicy(request.checkpoint)
    ? { ...asked, request: { ...request, checkpoint: 'none' } }
    : asked;
  const priced = belowCeiling(input, asked, deadline);
  const assembled = ({ model, left }: Priced): Prepared => ({
    question,
    model,
    left,
    solver: new RestrictedSolver(new PreparedProblem(model.problem)),
    notes: notesOf(model, asked, left.unpinned),
  });
  const [all, below] = priced;
  return below === undefined ? assembled(all) : { ...assembled(below), allPrices: assembled(all) };
}

interface Priced {
  readonly model: Model;
  readonly left: Left;
}

/**
 * The model with all prices and, where whole units cannot tell its cheap ones apart, the one
 * without prices above a known plan. A plan is known to cost less only where nothing but time and
 * the memory of states counts.
 */
function belowCeiling(
  input: BuildInput,
  question: Question,
  deadline: Deadline,
): readonly [all: Priced, below: Priced | undefined] {
  const priced = (ceiling: Pick<BuildInput, 'ceilingSeconds'>): Priced => {
    const model = buildModel({ ...input, ...ceiling });
    return { model, left: leftOf(model, question) };
  };
  const { request } = question;
  const all = priced({});
  if (request.objective === 'parameter-memory' || peakBinds(request)) return [all, undefined];
  for (let below: Priced | undefined; ;) {
    const { model, left } = below ?? all;
    const ceilingSeconds = ceilingOf(model, left.problem);
    if (ceilingSeconds === undefined) return [all, below];
    deadline.check('while the model was built');
    below = priced({ ceilingSeconds });
  }
}

function leftOf(model: Model, { request, given }: Pick<Question, 'request' | 'given'>): Left {
  const { restriction, unpinned } = restrictionOf(model, request, given);
  return {
    problem: restriction.problem(),
    compact: restriction.compact(),
    contradictions: restriction.contradictions(),
    unpinned,
  };
}
