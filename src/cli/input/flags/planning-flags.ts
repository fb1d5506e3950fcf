/**
 * Flags of every command that plans: what is sought, what is fixed, how it is solved. Each says
 * what it sets in the request.
 */

import { ShardwrightError, suggestion } from '../../../errors.ts';
import {
  CHECKPOINT_POLICIES,
  COPIES,
  DEFAULT_REQUEST,
  MAPS,
  OBJECTIVES,
  type PlanRequest,
  SOLVERS,
  STRIDED,
  UNEVEN,
} from '../../../plan/request/request.ts';
import { list, off, or, text, value } from './flag.ts';
import { countFrom, oneOf, parseCount, parseFraction } from './read.ts';
import {
  COMPILED,
  HOLDS,
  INPUT_DIMS,
  MEMORY,
  PRICES,
  QUIET,
  TIME_LIMIT,
  UNKNOWN_OPERATORS,
} from './shared-flags.ts';

/** Passes of a step. */
export const ACCUMULATE = value(
  '--accumulate <n>',
  'microbatches of a step: the program is the pass of one, gradients are added up and reduced ' +
    'in the last (default: 1)',
  countFrom(1),
  (accumulate) => (accumulate === 1 ? {} : { accumulate }),
);

/** A checkpointing policy by name, or a share between 0 and 1. */
function parseCheckpoint(given: string, flag: string): NonNullable<PlanRequest['checkpoint']> {
  if (/^[-0-9.]/.test(given))
    return parseFraction(
      given,
      flag,
      'the share of what selective keeps, from 0 to 1, such as 0.5 or 50%.',
    );
  const policy = CHECKPOINT_POLICIES.find((name) => name === given);
  if (policy !== undefined) return policy;
  throw new ShardwrightError(
    'E_USAGE',
    `${flag} '${given}' is not one of ${CHECKPOINT_POLICIES.join(', ')}, nor a share from 0 to 1`,
    { hint: suggestion(given, CHECKPOINT_POLICIES, 'policies') },
  );
}

export const PLAN_FLAGS = {
  pin: list(
    '--pin <NODE=SPEC>',
    'fix the placement of a node or parameter, such as lm_head.weight=S(0)R, w=a b -> a8 b 8 ' +
      'or w=P("dp", None)',
    async (given) => (await import('../../../plan/restrict/pins.ts')).parsePin(given),
    (pins) => ({ pins }),
  ),
  inputs: or(
    value('--inputs <SPEC>', 'one placement for all inputs, or free', text, (inputs) => ({
      inputs,
    })),
    DEFAULT_REQUEST.inputs,
  ),
  outputs: or(
    value('--outputs <SPEC>', 'one placement for all outputs, or free', text, (outputs) => ({
      outputs,
    })),
    DEFAULT_REQUEST.outputs,
  ),
  objective: or(
    value(
      '--objective <name>',
      `what the plan minimises: ${OBJECTIVES.join(', ')}; with time a recipe is taken whose ` +
        'simulated step is shorter, with serial none',
      oneOf(OBJECTIVES),
      (objective) => ({ objective }),
    ),
    DEFAULT_REQUEST.objective,
  ),
  ...PRICES,
  compiled: COMPILED,
  accumulate: ACCUMULATE,
  solver: or(
    value('--solver <name>', SOLVERS.join(', '), oneOf(SOLVERS), (solver) => ({ solver })),
    DEFAULT_REQUEST.solver,
  ),
  gap: value(
    '--gap <fraction>',
    'relative gap that is good enough; above it the exit code is 4 (default: 0; 1% where the ' +
      'budget limits peak memory)',
    parseFraction,
    // A zero that was asked for is not the default of zero.
    (gap) => (gap === 0 ? { gap, budgetGap: 0 } : { gap }),
  ),
  seed: or(
    value(
      '--seed <n>',
      'seed of the library solvers (highs, javascript-lp-solver); the own solver draws no ' +
        'random numbers',
      parseCount,
      (seed) => ({ seed }),
    ),
    `${DEFAULT_REQUEST.seed}`,
  ),
  uneven: or(
    value(
      '--uneven <policy>',
      `whether a dim may be sharded into unequal pieces: ${UNEVEN.join(', ')}`,
      oneOf(UNEVEN),
      (uneven) => ({ uneven }),
    ),
    DEFAULT_REQUEST.uneven,
  ),
  strided: value(
    '--strided <which>',
    'strided shards of dims that views merge, such as batch and sequence: rows (the leading ' +
      'dims), all, off (default: rows on meshes of up to three dims)',
    oneOf(STRIDED),
    (strided) => ({ strided }),
  ),
  ...UNKNOWN_OPERATORS,
  sharing: off(
    '--no-sharing',
    'pay a redistribution at every use, even where uses could share one copy',
    (sharing) => ({ sharing }),
  ),
  copies: value(
    '--copies <life>',
    `how long a redistributed copy may live: ${COPIES.join(' or ')}. step keeps what the forward ` +
      'pass gathered or reduced for the backward pass, pass redistributes in each (default: ' +
      'pass, or step where that makes the plan faster)',
    oneOf(COPIES),
    (copies) => ({ copies }),
  ),
  maps: value(
    '--maps <how>',
    `how a map is sharded: ${MAPS.join(' or ')}. bodies shards the tensors in its body, rows ` +
      'gives each device some of its rows',
    oneOf(MAPS),
    (maps) => ({ maps }),
  ),
  cut: list(
    '--cut <placement>',
    'a further placement to consider, such as "_S(0, 3)"',
    text,
    (cuts) => (cuts.length > 0 ? { cuts } : {}),
  ),
  ...MEMORY,
  ...HOLDS,
  checkpoint: value(
    '--checkpoint <policy>',
    'recompute forward nodes in the backward pass: none (default), full, selective, a share ' +
      'from 0 to 1, two-stage (chosen after the placements) or auto (chosen with them); both ' +
      'limit peak memory to the budget',
    parseCheckpoint,
    (checkpoint) => ({ checkpoint }),
  ),
  ...TIME_LIMIT,
  ...INPUT_DIMS,
  ...QUIET,
};
