/**
 * The four states in which a mesh dim can hold a tensor, and their names in DTensor, JAX and
 * spmd-types.
 */

import { checkKinds } from '../../arguments.ts';
import type { Placement } from '../placements/placement.ts';
import { isPending } from '../sharding/sharding.ts';

/**
 * The four states in which a mesh dim can hold a tensor, with their names in other systems. The
 * mesh view of this library describes the data only, so its `R` covers both I and R; the dim view
 * and the rules of gradients tell them apart.
 */
export type State = 'S' | 'I' | 'R' | 'P';

/** Whose words name the state of a tensor. */
export type Vocabulary = 'ours' | 'dtensor' | 'jax-explicit' | 'jax-manual' | 'spmd-types';

export const STATES: readonly State[] = ['S', 'I', 'R', 'P'];
export const VOCABULARIES: readonly Vocabulary[] = [
  'ours',
  'dtensor',
  'jax-explicit',
  'jax-manual',
  'spmd-types',
];

/** The tensor and mesh dim that the names describe. */
interface StateSubject {
  /** Name of the mesh dim. */
  readonly axis: string;
  /** Tensor dim that it cuts, for S. */
  readonly dim: number;
  /** Global size of that tensor dim. */
  readonly size: number;
}

/**
 * Name of a state: `Shard(0)` in DTensor, `8@x` in JAX's explicit types, `{V:x}` in its manual
 * ones. Empty where the vocabulary leaves the state unmarked; undefined where it has no such state
 * (DTensor has no R).
 */
export function stateName(
  state: State,
  vocabulary: Vocabulary,
  subject: StateSubject,
): string | undefined {
  checkKinds('stateName', {
    state: [state, 'string'],
    vocabulary: [vocabulary, 'string'],
    subject: [subject, 'subject'],
  });
  const { axis, dim, size } = subject;
  switch (vocabulary) {
    case 'ours':
      return state === 'S' ? `S(${dim})` : state;
    case 'spmd-types':
      return state === 'S' ? `S(${dim}) or V` : state;
    case 'dtensor':
      return { S: `Shard(${dim})`, I: 'Replicate()', R: undefined, P: 'Partial(sum)' }[state];
    case 'jax-explicit':
      return { S: `${size}@${axis}`, I: '', R: `{R:${axis}}`, P: `{U:${axis}}` }[state];
    case 'jax-manual':
      return { S: `{V:${axis}}`, I: '', R: `{R:${axis}}`, P: `{U:${axis}}` }[state];
  }
}

/**
 * State of the gradient of a value: pending where the value is reduced, and the other way round.
 */
export function gradientState(state: State): State {
  checkKinds('gradientState', { state: [state, 'string'] });
  return ({ S: 'S', I: 'I', R: 'P', P: 'R' } as const)[state];
}

/** The data that the ranks along the mesh dim hold. */
function stateData(state: State): string {
  return {
    S: 'different slices',
    I: 'equal',
    R: 'equal',
    P: 'addends of a pending reduction',
  }[state];
}

/** The states that a placement may mean: a replicated value is I or R, undecided. */
export function statesOf(p: Placement): readonly State[] {
  checkKinds('statesOf', { p: [p, 'placement'] });
  if (isPending(p)) return ['P'];
  return p.dim === undefined ? ['I', 'R'] : ['S'];
}

/** The table of names, one line for each state, columns two blanks apart. */
export function stateTable(subject: StateSubject): string {
  checkKinds('stateTable', { subject: [subject, 'subject'] });
  const named = (state: State, vocabulary: Vocabulary): string => {
    const name = stateName(state, vocabulary, subject);
    return name === undefined ? '-' : name === '' ? 'unmarked' : name;
  };
  const rows = [
    [...VOCABULARIES, 'data', 'gradient'],
    ...STATES.map((state) => [
      ...VOCABULARIES.map((vocabulary) => named(state, vocabulary)),
      stateData(state),
      named(gradientState(state), 'ours'),
    ]),
  ];
  const widths = rows[0].map((_, c) => Math.max(...rows.map((row) => row[c].length)));
  return rows
    .map((row) =>
      row
        .map((cell, c) => cell.padEnd(widths[c]))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
