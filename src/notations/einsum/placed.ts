/**
 * Reads the placements of an einsum's operands, a text for each state on each mesh dim, and gives
 * them by letters, with the order in which mesh dims cut one letter. States are S, I, R and P of
 * `four-states.ts`.
 */

import { ShardwrightError, suggestion } from '../../errors.ts';
import type { State } from '../../mesh/views/four-states.ts';
import { isPartitionSpec, parsePartitionSpec } from '../../mesh/views/partition-spec.ts';

/**
 * One operand: a state for each mesh dim by name, `{ dp: 'S(b)', tp: 'R' }`, the states side by
 * side in the order of the mesh, `S(b)R`, or a spec of the tensor dims, `P(("tp", "dp"), None)`, in
 * which a mesh dim without mark is I. A cut names the letter or the dim: `S(b)` or `S(1)`; `_S(1,
 * 2)` cuts in strides of two chunks.
 */
export type EinsumSpec = string | Readonly<Record<string, string>>;

/** State on one mesh dim. */
export interface LetterState {
  readonly kind: State;
  /** The letter of a cut. */
  readonly letter?: string;
  /** Chunks that are cut each, of a strided cut; 1 of a plain one. */
  readonly chunks?: number;
}

export interface PlacedOperand {
  /** By position of the mesh dim. */
  readonly states: readonly LetterState[];
  /** Mesh dims that cut a letter, major first. */
  readonly order: ReadonlyMap<string, readonly number[]>;
}

export const REPLICATED: LetterState = { kind: 'R' };
export const INVARIANT: LetterState = { kind: 'I' };
export const PENDING: LetterState = { kind: 'P' };

/**
 * Reads where an operand is.
 *
 * @param name of the operand, for messages
 * @throws E_PLACEMENT for a letter or dim that it has not, a mesh dim that is unknown, missing or
 *   used twice; E_SYNTAX for text that is not a state
 */
export function readPlaced(
  spec: EinsumSpec,
  name: string,
  letters: string,
  axes: readonly string[],
): PlacedOperand {
  if (typeof spec !== 'string') {
    const given = Object.keys(spec);
    const strange = given.find((axis) => !axes.includes(axis));
    if (strange !== undefined)
      throw wrong(
        name,
        `there is no mesh dim '${strange}'`,
        suggestion(strange, axes, 'mesh dims'),
      );
    const states = axes.map((axis) => {
      if (!Object.hasOwn(spec, axis))
        throw wrong(
          name,
          `nothing is said of mesh dim '${axis}'`,
          `add its state, as in { ${axis}: 'R' }.`,
        );
      const [state, ...more] = readStates(spec[axis], name, letters);
      if (state === undefined || more.length > 0)
        throw wrong(name, `'${spec[axis]}' is not one state`, 'write S(b), R, I or P.');
      return state;
    });
    return { states, order: meshOrder(states) };
  }
  if (isPartitionSpec(spec)) return fromDims(spec, name, letters, axes);
  const states = readStates(spec, name, letters);
  if (states.length !== axes.length)
    throw wrong(
      name,
      `'${spec}' has ${states.length} states for ${axes.length} mesh dims`,
      `write one of S(b), R, I, P for each of ${axes.join(', ')}.`,
    );
  return { states, order: meshOrder(states) };
}

const STATE =
  /\s*(?:(_?S)\(\s*(-?\d{1,9}|[A-Za-z])\s*(?:,\s*(\d{1,9})\s*)?\)|([RI])|P(?:\(\s*sum\s*\))?(?!\())\s*/y;

function readStates(text: string, name: string, letters: string): LetterState[] {
  const states: LetterState[] = [];
  STATE.lastIndex = 0;
  while (STATE.lastIndex < text.length) {
    const at = STATE.lastIndex;
    const found = STATE.exec(text);
    if (found === null)
      throw new ShardwrightError(
        'E_SYNTAX',
        `${name}: '${text}' has no state at column ${at + 1}`,
        {
          position: { line: 1, column: at + 1 },
          excerpt: text,
          hint: 'write one of S(b), S(0), _S(0, 2), R, I, P for each mesh dim.',
        },
      );
    const [, cut, where, chunks, equal] = found;
    if (cut === undefined)
      states.push(equal === 'R' ? REPLICATED : equal === 'I' ? INVARIANT : PENDING);
    else {
      if ((cut === '_S') !== (chunks !== undefined) || Number(chunks ?? 1) < 1)
        throw wrong(
          name,
          `'${found[0].trim()}' is not a cut`,
          'write S(0), or _S(0, 2) for a cut of each of two chunks.',
        );
      states.push({
        kind: 'S',
        letter: letterAt(where, name, letters),
        chunks: Number(chunks ?? 1),
      });
    }
  }
  return states;
}

function letterAt(where: string, name: string, letters: string): string {
  const dim = Number(where);
  const letter = Number.isInteger(dim)
    ? letters.at(dim >= letters.length || dim < -letters.length ? Infinity : dim)
    : where;
  if (letter === undefined || !letters.includes(letter))
    throw wrong(
      name,
      `${name} has no ${Number.isInteger(dim) ? `dim ${where}` : `letter '${where}'`}`,
      `its letters are '${letters}'.`,
    );
  return letter;
}

/** Mesh dims cut in their order, the first outermost. */
function meshOrder(states: readonly LetterState[]): Map<string, number[]> {
  const order = new Map<string, number[]>();
  states.forEach(({ letter }, axis) => {
    if (letter !== undefined) order.set(letter, [...(order.get(letter) ?? []), axis]);
  });
  return order;
}

function fromDims(
  text: string,
  name: string,
  letters: string,
  axes: readonly string[],
): PlacedOperand {
  const spec = parsePartitionSpec(text).forRank(letters.length);
  const states = axes.map(() => INVARIANT);
  const order = new Map<string, number[]>();
  const place = (axis: string, state: LetterState): number => {
    const at = axes.indexOf(axis);
    if (at < 0)
      throw wrong(name, `there is no mesh dim '${axis}'`, suggestion(axis, axes, 'mesh dims'));
    states[at] = state;
    return at;
  };
  spec.dims.forEach((cut, dim) => {
    const letter = letters[dim];
    if (cut.length > 0)
      order.set(
        letter,
        cut.map((axis) => place(axis, { kind: 'S', letter, chunks: 1 })),
      );
  });
  for (const [axis, op] of spec.unreduced) {
    if (op !== 'sum')
      throw wrong(name, `a pending '${op}' is not a state of a gradient`, 'only sums are.');
    place(axis, PENDING);
  }
  for (const axis of spec.reduced) place(axis, REPLICATED);
  return { states, order };
}

/** `S(1)`, `_S(1, 2)`, `R`, `I` or `P`, as the tensor of these letters has it. */
export function stateText({ kind, letter, chunks = 1 }: LetterState, letters: string): string {
  if (letter === undefined) return kind;
  const dim = letters.indexOf(letter);
  return chunks === 1 ? `S(${dim})` : `_S(${dim}, ${chunks})`;
}

function wrong(name: string, message: string, hint: string): ShardwrightError {
  return new ShardwrightError(
    'E_PLACEMENT',
    message.startsWith(name) ? message : `${name}: ${message}`,
    { hint },
  );
}
