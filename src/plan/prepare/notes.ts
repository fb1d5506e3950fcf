/** The assumptions that a plan states, in whole sentences. */
import { usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import { clusterTopology } from '../../cost/hardware/topology.ts';
import { jumpsNote } from '../../cost/jumps.ts';
import { MOST_FACTORS } from '../../ops/expansion/patterns.ts';
import { bytesText, countedText, secondsText } from '../../units.ts';
import type { Model } from '../model/model.ts';
import {
  activationsOf,
  type PlanRequest,
  type PricedRequest,
  recomputesUnderBudget,
} from '../request/request.ts';
import type { GivenPins } from '../restrict/given-pins.ts';
import { COMPILED_NOTE, pricedCompiler, XLA_NOTE } from './call-facts.ts';
import { cutNotes, limitedSpace, limitOfRuns, usualStrides } from './offered-cuts.ts';
import type { Question } from './prepared.ts';

/** One sentence for each thing that the planner assumed. */
export function notesOf(
  model: Model,
  { request, given }: Pick<Question, 'request' | 'given'>,
  unpinned: readonly string[],
): string[] {
  return [
    ...planNotes(request, model),
    ...spaceNotes(model, request, given),
    ...programNotes(model, request),
    ...model.cluster.assumptions,
    ...(model.graph.notes ?? []),
    ...cutNotes(model, request, model.table.kinds),
    ...statedNotes(request, given, unpinned),
  ];
}

/** Notes on the budget, the objective and the prices. */
function planNotes(request: PricedRequest, { graph, uses, cluster, collectives }: Model): string[] {
  const compiler = pricedCompiler(request, graph);
  const usable = usableMemoryBytes(cluster);
  return [
    ACTIVATION_NOTES[activationsOf(request)],
    'Objective: compute and communication one after another, no overlap.',
    ...(request.accumulate === undefined
      ? []
      : [
          `A step has ${request.accumulate} passes over microbatches (--accumulate). Calls and ` +
            'the objective have the seconds of one pass, in which what brings gradients to ' +
            `their placements counts 1/${request.accumulate}: it runs in the last pass alone. ` +
            'The step has the seconds of all of them. Gradients are there throughout, and those ' +
            'that wait for their reduction beside them.',
        ]),
    ...(compiler === undefined ? [] : [compiler === 'xla' ? XLA_NOTE : COMPILED_NOTE]),
    ...(request.gradients === undefined
      ? []
      : [
          uses.some((use) => use.stays === true)
            ? `Gradients are kept in ${request.gradients} (--gradients): widened where they ` +
              'are made, and summed over the mesh so.'
            : `Gradients are kept in ${request.gradients} (--gradients). Their sums over the ` +
              'mesh are priced in the dtype of the program.',
        ]),
    ...(request.memoryBytes !== undefined && request.memoryBytes > usable
      ? [
          `The budget of ${bytesText(request.memoryBytes)} is more than a device of ` +
            `${cluster.id} has: ${bytesText(usable)} are usable.`,
        ]
      : []),
    ...[collectives.note, jumpsNote(collectives)].filter((note) => note !== undefined),
  ];
}

/** Which placements were considered. */
function spaceNotes(model: Model, request: PlanRequest, given: GivenPins): string[] {
  const { space, strategies } = model;
  const mostRuns = limitOfRuns(space, request, given);
  const turned = turnedMesh(model);
  return [
    ...(request.sharing
      ? [
          request.copies === 'step'
            ? 'A value keeps at most one redistributed placement; its copy is made once for both ' +
              'passes, or once for each, and uses that want it pay for it once.'
            : 'A value keeps at most one redistributed copy per phase; uses that want the same ' +
              'placement pay for it once.',
        ]
      : []),
    ...(mostRuns === undefined ? [] : limitedSpace(space, mostRuns, request.sharing)),
    ...(request.strided === undefined && usualStrides(space) === 'off'
      ? [
          'Dims that views merge are cut in one piece on meshes of so many dims; --strided rows ' +
            'cuts them in strides too.',
        ]
      : []),
    ...(turned === undefined
      ? []
      : [
          'Nothing is cheaper among plans that cut a tensor dim by outer mesh dims first ' +
            '(parameters and states also by inner ones first). Mesh dims that share links may ' +
            `stand in another order too: --mesh ${turned} is another question.`,
        ]),
    ...(strategies.fewerStrides > 0
      ? [
          `${countedText(strategies.fewerStrides, 'value')} could be cut in more than ` +
            `${MOST_FACTORS} strides of one dim; the smallest factors are considered.`,
        ]
      : []),
    ...(space.hasRefused
      ? [
          'More kinds of strided cuts occur than can be numbered; those that occur last are not ' +
            'considered.',
        ]
      : []),
  ];
}

/** Assumptions about calls, about prices that were left out, and about control flow. */
function programNotes(model: Model, request: PlanRequest): string[] {
  const { graph, opened, strategies, ceilingSeconds } = model;
  const grouped = graph.nodes.filter(({ target }) => target.startsWith('aten._grouped_mm.')).length;
  return [
    ...strategies.replicatedUnknown.map(
      ({ target, count }) =>
        `${target} (${countedText(count, 'node')}) has no rules and was planned replicated at ` +
        'zero compute.',
    ),
    ...(grouped > 0
      ? [
          'The plan assumes balanced routing: a device with a share of the experts of a grouped ' +
            `product (${countedText(grouped, 'node')}) is priced with that share of the tokens.`,
        ]
      : []),
    ...(ceilingSeconds === undefined
      ? []
      : [
          `Prices above ${secondsText(ceilingSeconds)} are left out: a recipe costs no ` +
            'more in all.',
        ]),
    ...(opened === undefined
      ? []
      : [
          'Control flow: each body is listed once, and its time counts once per trip. ' +
            'Loop-invariant redistributions run before the loop.',
          ...(recomputesUnderBudget(request)
            ? [
                `The program has control flow, so that --checkpoint ${request.checkpoint} ` +
                  'recomputes nothing; full and selective do.',
              ]
            : []),
          ...opened.notes,
        ]),
  ];
}

/** Notes on the bytes that count against the budget, by the treatment of activation memory. */
const ACTIVATION_NOTES = {
  off:
    'The budget limits the states alone, parameters, gradients, optimizer state and buffers; ' +
    'activation memory is not modelled.',
  report:
    'The budget limits the states alone, parameters, gradients, optimizer state and buffers; ' +
    'activation memory is reported (--activations report).',
  trainer:
    'The budget limits the step of the trainer: its states, and the activations that it keeps ' +
    '(--activations trainer). Those of the calls of the plan are not followed.',
  constraint:
    'The budget limits peak memory: parameters, gradients, optimizer state, activations and ' +
    'copies in flight.',
} as const;

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

/** Notes on the shardings that the program states. */
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
