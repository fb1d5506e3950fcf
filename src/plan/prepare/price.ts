/** Prices a program: the placements of every call on the mesh, and the integer program of them. */
import { gradientDtype } from '../../cost/memory/state-bytes.ts';
import { defined } from '../../defined.ts';
import type { Graph } from '../../graph/types.ts';
import { openBodies } from '../../passes/plannable/open-bodies.ts';
import { gradientCasts } from '../../passes/training/gradient-dtype.ts';
import { dataflow } from '../../strategy/dataflow.ts';
import { nodeStrategies, withFacts } from '../../strategy/nodes.ts';
import type { BuildInput } from '../model/input.ts';
import type { Deadline } from '../request/deadline.ts';
import { type GivenPins, givenPins } from '../restrict/given-pins.ts';
import { typedPins } from '../restrict/typed-pins.ts';
import { callFacts } from './call-facts.ts';
import { cutsOf, limitOfRuns, usualStrides } from './offered-cuts.ts';
import type { Setting } from './setting.ts';

/** The parts from which the model is built, and the shardings that the program states. */
interface Priceable {
  readonly input: BuildInput;
  readonly given: GivenPins;
}

/**
 * @throws E_TIME_LIMIT saying in which step, E_UNKNOWN_OP, E_PIN ...
 */
export function priceable(program: Graph, setting: Setting, deadline: Deadline): Priceable {
  const { request, operators, space, cluster, collectives, charges, budgetBytes } = setting;
  const opened = openBodies(program, operators, request);
  const table = opened?.table ?? operators;
  const graph = opened?.graph ?? program;
  const flow = dataflow(graph, table, request.sharing, opened?.loops);
  const annotated = givenPins(graph, request.mesh);
  const typed = typedPins(program, request.mesh, operators);
  const given = { ...annotated, pins: [...annotated.pins, ...typed.pins] };
  const isFree = request.shardings !== 'ignore' && request.outputs === 'free';
  const mostRuns = limitOfRuns(space, request, given);
  const runs = mostRuns === undefined ? {} : { mostRuns };
  const { uneven, unknown } = request;
  const strided = request.strided ?? usualStrides(space);
  const mostDims = Math.max(0, ...flow.types.map((meta) => meta.shape.length));
  const cuts = cutsOf(request, mostDims, operators.kinds);
  const facts = callFacts(request, graph, table, space.mesh.size, opened);
  const listed = nodeStrategies(
    graph,
    flow,
    table,
    space,
    { uneven, unknown, strided, ...cuts, ...runs },
    () => deadline.check('while the placements of calls were listed'),
  );
  const input: BuildInput = {
    graph,
    table,
    ...defined({ opened }),
    flow,
    strategies: facts === undefined ? listed : withFacts(listed, graph, facts),
    space,
    cluster,
    collectives,
    charges,
    optimizer: request.optimizer,
    gradients: request.gradients,
    ...(request.gradients === undefined
      ? {}
      : { inPlace: gradientCasts(graph, gradientDtype(request.gradients, 'f32'), table) }),
    ...defined({ facts }),
    sharing: request.sharing,
    ...defined({ accumulate: request.accumulate }),
    keepCopies: request.copies === 'step',
    ...runs,
    budgetBytes,
    ...(isFree && typed.outputs.length > 0
      ? {
          typedOutputs: new Map(
            typed.outputs.map(({ output, spec }) => [output, space.parse(spec)]),
          ),
        }
      : {}),
    ...defined({ statedDims: request.inputDims }),
  };
  return { input, given };
}
