/**
 * Preparation. In: a graph, a request. Out: the model with its prices, and the problem that the
 * pins of the request leave.
 */
import type { CollectiveModel } from '../cost/collective-model.ts';
import { type Cluster, usableMemoryBytes } from '../cost/hardware/cluster.ts';
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { clusterTopology } from '../cost/hardware/topology.ts';
import { jumpsNote } from '../cost/jumps.ts';
import { gradientDtype } from '../cost/memory/state-bytes.ts';
import { defaultCostPreset } from '../cost/presets/presets.ts';
import { RedistributionCharges } from '../cost/redistribution/charges.ts';
import { Redistributor } from '../cost/redistribution/redistribute.ts';
import { ShardwrightError } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import { checkPlannedDims, parseMesh } from '../mesh/devices/mesh.ts';
import { ShardingSpace } from '../mesh/sharding/space.ts';
import { MOST_FACTORS } from '../ops/expansion/patterns.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { keptForBackwardBytes } from '../passes/checkpoint/joint-values.ts';
import { type CheckpointPolicy, recomputedBy } from '../passes/checkpoint/policies.ts';
import { recomputeInBackward } from '../passes/checkpoint/recompute.ts';
import { openBodies } from '../passes/plannable/open-bodies.ts';
import type { OpenedGraph } from '../passes/plannable/opened-graph.ts';
import { plannable } from '../passes/plannable/plannable.ts';
import { backwardStart } from '../passes/plannable/weight-views.ts';
import { gradientCasts, gradientsIn } from '../passes/training/gradient-dtype.ts';
import type { CompactProblem } from '../solver/problem/restrict.ts';
import { PreparedProblem } from '../solver/search/prepared.ts';
import { RestrictedSolver } from '../solver/search/restricted.ts';
import type { Problem } from '../solver/types.ts';
import { dataflow } from '../strategy/dataflow.ts';
import { nodeStrategies, withFacts } from '../strategy/nodes.ts';
import { bytesText, countedText, secondsText } from '../units.ts';
import { buildModel } from './model/build.ts';
import { ceilingOf } from './model/ceiling.ts';
import type { BuildInput } from './model/input.ts';
import type { Model } from './model/model.ts';
import { cutNotes, cutsOf, limitedSpace, limitOfRuns, usualStrides } from './model/offered-cuts.ts';
import { callFacts, COMPILED_NOTE } from './request/call-facts.ts';
import { Deadline } from './request/deadline.ts';
import { pricesOf } from './request/prices.ts';
import {
  activationsOf,
  peakBinds,
  type PlanRequest,
  type PricedRequest,
  recomputesUnderBudget,
} from './request/request.ts';
import { type GivenPins, givenPins } from './request/source-pins.ts';
import { typedPins } from './request/typed-pins.ts';
import { restrictionOf } from './restrict/pins.ts';
import type { Restriction } from './restrict/restriction.ts';

/** A request made ready: the model, and the problem that the request's pins leave of it. */
export interface Prepared {
  readonly request: PricedRequest;
  /**
   * What a plan folder keeps: the program with its bodies. `model.graph` lists each body in line.
   */
  readonly program: Graph;
  readonly model: Model;
  /** Values that pins take away cost Infinity. */
  readonly problem: Problem;
  /** The same problem with those values left out: what is solved. */
  readonly compact: CompactProblem;
  /**
   * The model's problem, for solves of parts of it: recipes, edits, and the whole where nothing is
   * pinned.
   */
  readonly restrictedSolver: RestrictedSolver;
  /**
   * With all prices, where `model` leaves out those above a ceiling: recipes may need them.
   * Variables and values are the same.
   */
  readonly withoutCeiling?: Pick<Prepared, 'model' | 'restrictedSolver'>;
  readonly collectives: CollectiveModel;
  readonly table: OperatorTable;
  readonly budgetBytes: number;
  readonly assumptions: readonly string[];
  /** Shardings that the program states; they are pins unless the request ignores them. */
  readonly given: GivenPins;
  /** Those of them that are no pins, one sentence each. */
  readonly unpinned: readonly string[];
  /** Restrictions that leave some node nothing; not empty means infeasible whatever the budget. */
  readonly contradictions: readonly string[];
}

/**
 * Builds the model of a request.
 *
 * @param deadline of the whole plan; default none
 * @throws E_TIME_LIMIT saying in which step, E_MESH, E_CLUSTER, E_UNKNOWN_OP, E_PIN, E_REF ... for
 *   a request that cannot be read
 */
export function prepare(
  original: Graph,
  asked: PlanRequest,
  operators: OperatorTable,
  deadline: Deadline = new Deadline(undefined),
): Prepared {
  deadline.check('while the program was read');
  const mesh = parseMesh(asked.mesh);
  checkPlannedDims(mesh);
  const cluster = loadCluster(asked.cluster);
  const space = new ShardingSpace(mesh, operators.kinds);
  const cost = asked.cost ?? defaultCostPreset(cluster);
  const collectives = pricesOf({ ...asked, cost }, cluster, mesh);
  // Whoever reads the plan later, to lower it or to open it again, reads from its request that
  // there are no copies.
  const request: PricedRequest = {
    ...asked,
    cost,
    ...(collectives.copies === 'each-use' ? { sharing: false } : {}),
  };
  // A plan that is found is written however late it is.
  let isPrepared = false;
  const checkTime = (): void => {
    if (!isPrepared) deadline.check('while redistributions were priced');
  };
  const charges = new RedistributionCharges(new Redistributor(space, collectives, { checkTime }));
  refuseShardedText(original);
  const straight = summedIn(
    checkpointed(plannable(original, operators), request, operators, cluster),
    request,
    operators,
  );
  const opened = openBodies(straight, operators, request);
  const table = opened?.table ?? operators;
  const graph = opened?.graph ?? straight;
  const flow = dataflow(graph, table, request.sharing, opened?.loops);
  const annotated = givenPins(graph, request.mesh);
  const typed = typedPins(straight, request.mesh, operators);
  const given = { ...annotated, pins: [...annotated.pins, ...typed.pins] };
  const isFree = request.shardings !== 'ignore' && request.outputs === 'free';
  const mostRuns = limitOfRuns(space, request, given);
  const runs = mostRuns === undefined ? {} : { mostRuns };
  const { uneven, unknown } = request;
  const strided = request.strided ?? usualStrides(space);
  const cuts = cutsOf(
    request,
    Math.max(0, ...flow.types.map((meta) => meta.shape.length)),
    operators.kinds,
  );
  const facts = callFacts(request, graph, table, mesh.size, opened);
  const listed = nodeStrategies(
    graph,
    flow,
    table,
    space,
    { uneven, unknown, strided, ...cuts, ...runs },
    () => deadline.check('while the placements of calls were listed'),
  );
  const strategies = facts === undefined ? listed : withFacts(listed, graph, facts);
  const budgetBytes = usableMemoryBytes(cluster, request);
  const input: BuildInput = {
    graph,
    ...(opened !== undefined ? { opened } : {}),
    flow,
    strategies,
    space,
    cluster,
    collectives,
    charges,
    optimizer: request.optimizer,
    gradients: request.gradients,
    ...(request.gradients === undefined
      ? {}
      : { inPlace: gradientCasts(graph, gradientDtype(request.gradients, 'f32'), table) }),
    ...(facts === undefined ? {} : { facts }),
    sharing: request.sharing,
    ...runs,
    budgetBytes,
    ...(isFree && typed.outputs.length > 0
      ? {
          typedOutputs: new Map(
            typed.outputs.map(({ output, spec }) => [output, space.parse(spec)]),
          ),
        }
      : {}),
    ...(request.inputDims === undefined ? {} : { statedDims: request.inputDims }),
  };
  const free = restricted(input, request, given);
  let { model, restriction, unpinned } = free;
  // A plan is known to cost less only where nothing but time and the memory of states counts. Where
  // its peak turns out to bind, the request is prepared again without a ceiling.
  while (request.objective !== 'parameter-memory' && !peakBinds(request)) {
    const ceilingSeconds = ceilingOf(model, restriction.problem());
    if (ceilingSeconds === undefined) break;
    deadline.check('while the model was built');
    ({ model, restriction, unpinned } = restricted({ ...input, ceilingSeconds }, request, given));
  }
  isPrepared = true;
  return {
    // A policy that is applied stands in the program from here on: asking for it again would apply
    // it twice.
    request: isPolicy(request.checkpoint) ? { ...request, checkpoint: 'none' } : request,
    program: straight,
    model,
    problem: restriction.problem(),
    compact: restriction.compact(),
    restrictedSolver: restrictedSolverOf(model),
    ...(model === free.model
      ? {}
      : {
          withoutCeiling: { model: free.model, restrictedSolver: restrictedSolverOf(free.model) },
        }),
    collectives,
    table,
    budgetBytes,
    assumptions: [
      ...assumptionsOf(model, request, opened, mostRuns, collectives),
      ...cutNotes(model, request, operators.kinds),
      ...statedNotes(request, given, unpinned),
    ],
    given,
    unpinned,
    contradictions: restriction.contradictions(),
  };
}

function restrictedSolverOf(model: Model): RestrictedSolver {
  return new RestrictedSolver(new PreparedProblem(model.problem));
}

/** The model of a program, and what the request's pins leave of it. */
function restricted(
  input: BuildInput,
  request: PlanRequest,
  given: GivenPins,
): { model: Model; restriction: Restriction; unpinned: readonly string[] } {
  const model = buildModel(input);
  return { model, ...restrictionOf(model, request, given) };
}

/** What counts against the budget, by what becomes of activation memory. */
const ACTIVATION_NOTES = {
  off:
    'The budget limits the states alone, parameters, gradients, optimizer state and buffers; ' +
    'activation memory is not modelled.',
  report:
    'The budget limits the states alone, parameters, gradients, optimizer state and buffers; ' +
    'activation memory is reported (--activations report).',
  constraint:
    'The budget limits peak memory: parameters, gradients, optimizer state, activations and ' +
    'copies in flight.',
} as const;

function isPolicy(checkpoint: PlanRequest['checkpoint']): checkpoint is CheckpointPolicy {
  return checkpoint === 'full' || checkpoint === 'selective' || typeof checkpoint === 'number';
}

/**
 * Policies that need no placements are applied here; `auto` and `two-stage` are part of the search.
 */
function checkpointed(
  graph: Graph,
  request: PlanRequest,
  table: OperatorTable,
  cluster: Cluster,
): Graph {
  const { checkpoint } = request;
  if (!isPolicy(checkpoint)) return graph;
  const { graph: twice, originalOf } = recomputeInBackward(
    graph,
    recomputedBy(checkpoint, graph, table, cluster),
  );
  if (originalOf.size > 0) {
    const split = backwardStart(graph);
    const [before, after] = [graph, twice].map((g) => keptForBackwardBytes(g, split, table));
    const saved =
      after < before
        ? `The backward pass finds ${bytesText(after)} kept rather than ${bytesText(before)}, ` +
          'unsharded.'
        : `This saves no memory: the backward pass finds ${bytesText(after)} kept, unsharded, ` +
          `and ${bytesText(before)} without --checkpoint ${checkpoint}. --checkpoint auto ` +
          'chooses by bytes and seconds.';
    return { ...twice, notes: [...(twice.notes ?? []), saved] };
  }
  const note =
    `Under --checkpoint ${checkpoint} nothing is recomputed: the backward pass reads nothing ` +
    'that could.';
  return { ...graph, notes: [...(graph.notes ?? []), note] };
}

/**
 * Gradients in the dtype in which they are to be summed; a program of theirs that is asked for
 * again has them.
 */
function summedIn(graph: Graph, { gradients }: PlanRequest, table: OperatorTable): Graph {
  return gradients === undefined
    ? graph
    : gradientsIn(graph, gradientDtype(gradients, 'f32'), table);
}

/**
 * A graph that is one rank's program has collectives in it and local shapes: there is nothing left
 * to shard.
 */
function refuseShardedText(graph: Graph): void {
  const node = graph.nodes.find((n) => n.kind === 'call' && n.target.includes('c10d_functional'));
  if (node === undefined) return;
  throw new ShardwrightError(
    'E_UNSUPPORTED',
    `the graph is already the program of one rank: it calls ${node.target}`,
    {
      node: node.name,
      hint: 'plan the unsharded model.',
    },
  );
}

/**
 * The mesh with two neighbouring dims of different sizes, which share links, in the other order;
 * undefined where none are.
 */
function turnedMesh({ space: { mesh }, cluster }: Model): string | undefined {
  const hosts = mesh.dims.map((_, d) => clusterTopology(cluster, mesh, [d]).hosts);
  const at = mesh.dims.findIndex(({ size }, d) => {
    const next = mesh.dims[d + 1]?.size ?? 1;
    return size > 1 && next > 1 && size !== next && hosts[d] === 1 && hosts[d + 1] === 1;
  });
  if (at < 0) return undefined;
  const dims = [...mesh.dims];
  [dims[at], dims[at + 1]] = [dims[at + 1], dims[at]];
  return dims.map(({ name, size }) => `${name}=${size}`).join(',');
}

/** What became of the shardings that the program states. */
function statedNotes(
  { shardings }: PlanRequest,
  given: GivenPins,
  unpinned: readonly string[],
): string[] {
  const stated = given.pins.length + given.outputs.length;
  if (shardings === 'ignore')
    return stated === 0
      ? []
      : ['The shardings that the program states are left free (--ignore-shardings).'];
  const pinned = stated + given.skipped.length - unpinned.length;
  if (pinned === 0) return [...unpinned];
  const said =
    `${countedText(pinned, 'sharding')} that the program states ${pinned === 1 ? 'is' : 'are'} ` +
    'pinned';
  return [`${said}; --ignore-shardings leaves ${pinned === 1 ? 'it' : 'them'} free.`, ...unpinned];
}

function assumptionsOf(
  model: Model,
  request: PlanRequest,
  opened: OpenedGraph | undefined,
  mostRuns: number | undefined,
  collectives: CollectiveModel,
): string[] {
  const list = [
    ACTIVATION_NOTES[activationsOf(request)],
    'Objective: compute and communication one after another, no overlap.',
    ...(request.compiled === true ? [COMPILED_NOTE] : []),
    ...(request.gradients === undefined
      ? []
      : [
          model.uses.some((use) => use.stays === true)
            ? `Gradients are kept in ${request.gradients} (--gradients): widened where they ` +
              'are made, and summed over the mesh so.'
            : `Gradients are kept in ${request.gradients} (--gradients). Their sums over the ` +
              'mesh are priced in the dtype of the program.',
        ]),
  ];
  const usable = usableMemoryBytes(model.cluster);
  if (request.memoryBytes !== undefined && request.memoryBytes > usable)
    list.push(
      `The budget of ${bytesText(request.memoryBytes)} is more than a device of ` +
        `${model.cluster.id} has: ${bytesText(usable)} are usable.`,
    );
  const jumps = jumpsNote(collectives);
  list.push(...[collectives.note, jumps].filter((note) => note !== undefined));
  if (request.sharing)
    list.push(
      'A value keeps at most one redistributed copy per phase; uses that want the same ' +
        'placement pay for it once.',
    );
  if (mostRuns !== undefined) list.push(...limitedSpace(model.space, mostRuns, request.sharing));
  if (request.strided === undefined && usualStrides(model.space) === 'off')
    list.push(
      'Dims that views merge are cut in one piece on meshes of so many dims; --strided rows ' +
        'cuts them in strides too.',
    );
  const turned = turnedMesh(model);
  if (turned !== undefined)
    list.push(
      'Nothing is cheaper among plans that cut a tensor dim by outer mesh dims first ' +
        '(parameters and states also by inner ones first). Mesh dims that share links may ' +
        `stand in another order too: --mesh ${turned} is another question.`,
    );
  if (model.strategies.fewerStrides > 0)
    list.push(
      `${countedText(model.strategies.fewerStrides, 'value')} could be cut in more than ` +
        `${MOST_FACTORS} strides of one dim; the smallest factors are considered.`,
    );
  if (model.space.hasRefused)
    list.push(
      'More kinds of strided cuts occur than can be numbered; those that occur last are not ' +
        'considered.',
    );
  for (const { target, count } of model.strategies.replicatedUnknown)
    list.push(
      `${target} (${countedText(count, 'node')}) has no rules and was planned replicated at ` +
        'zero compute.',
    );
  const grouped = model.graph.nodes.filter((node) =>
    node.target.startsWith('aten._grouped_mm.'),
  ).length;
  if (grouped > 0)
    list.push(
      'The plan assumes balanced routing: a device with a share of the experts of a grouped ' +
        `product (${countedText(grouped, 'node')}) is priced with that share of the tokens.`,
    );
  if (model.ceilingSeconds !== undefined)
    list.push(
      `Prices above ${secondsText(model.ceilingSeconds)} are left out: a recipe costs no ` +
        'more in all.',
    );
  if (opened !== undefined)
    list.push(
      'Control flow: each body is listed once, and its time counts once per trip. ' +
        'Loop-invariant redistributions run before the loop.',
      ...(recomputesUnderBudget(request)
        ? [
            `The program has control flow, so that --checkpoint ${request.checkpoint} ` +
              'recomputes nothing; full and selective do.',
          ]
        : []),
      ...opened.notes,
    );
  return [...list, ...model.cluster.assumptions, ...(model.graph.notes ?? [])];
}
