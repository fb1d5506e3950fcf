/**
 * Shards an einsum on a mesh with its gradients: the placement of the result, the moves of operands
 * before the product, and the reductions that each gradient owes. The rules of a mesh dim are those
 * by which operators are planned. Source: E. Yang, "Computing sharding with einsum".
 */

import { checkKinds } from '../../arguments.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { gradientState } from '../../mesh/views/four-states.ts';
import { P, type Rule, type RuleSlot } from '../../ops/record/rule.ts';
import { rulesOf } from '../../ops/rules/einsum.ts';
import { type EinsumEquation, parseEinsum } from '../../ops/rules/equation.ts';
import { einsumBackward, unswappable } from './gradient.ts';
import {
  type EinsumSpec,
  INVARIANT,
  type LetterState,
  PENDING,
  type PlacedOperand,
  readPlaced,
  REPLICATED,
  stateText,
} from './placed.ts';

/** Mesh dims, their sizes in devices, and whether operands are moved or refused. */
export interface ShardRuleOptions {
  /**
   * Names of the mesh dims, outermost first. Default: the keys of the first operand that has any.
   */
  readonly axes?: readonly string[];
  /**
   * Devices along each mesh dim. One of a single device is left out of the answer: nothing is cut,
   * and nothing is owed.
   */
  readonly sizes?: readonly number[];
  /** Names of the operands. Default x, y, z, then `operand 3` and on. */
  readonly names?: readonly string[];
  /**
   * `auto`: operands are cast, sliced and moved as a rule needs, each written down. `strict`: each
   * of that is a fault. Default auto.
   */
  readonly mode?: 'auto' | 'strict';
}

type EinsumStepKind =
  'cast' | 'slice' | 'all_gather' | 'all_reduce' | 'reduce_scatter' | 'all_to_all' | 'redistribute';

/** A move of an operand before the product. Casts and slices are free. */
export interface EinsumStep {
  readonly operand: string;
  /**
   * Mesh dim; for `redistribute`, which changes the order of mesh dims on a letter, all of them.
   */
  readonly axis: string;
  readonly kind: EinsumStepKind;
  readonly from: string;
  readonly to: string;
}

/** Why an einsum cannot run with its operands placed so, and what to write. */
export interface EinsumFault {
  readonly axis: string;
  readonly message: string;
  /** The edit that fixes it. */
  readonly fix: string;
}

/**
 * A collective that the gradient of an operand needs, and the einsum of the gradient does not do.
 */
export interface OwedCollective {
  readonly axis: string;
  readonly collective: Exclude<EinsumStepKind, 'cast' | 'slice' | 'redistribute'>;
  readonly because: string;
}

/** The gradient of one operand: where the einsum leaves it, and which reductions it still owes. */
export interface OperandGradient {
  readonly operand: string;
  /** The equation of the gradient; undefined where it is not an einsum. */
  readonly equation: string | undefined;
  /** Why it is none. */
  readonly refused: string | undefined;
  /** By mesh dim, as the einsum of the gradient leaves it. */
  readonly states: Readonly<Record<string, string>>;
  readonly owes: readonly OwedCollective[];
}

/**
 * The placement of an einsum's result for operands that are placed, the moves before it, and the
 * reductions that gradients owe.
 */
export interface EinsumSharding {
  readonly equation: string;
  readonly axes: readonly string[];
  readonly operands: readonly string[];
  /** By operand and mesh dim, as the product takes them. */
  readonly inputs: readonly Readonly<Record<string, string>>[];
  /** By mesh dim; undefined where there are faults. */
  readonly result: Readonly<Record<string, string>> | undefined;
  readonly steps: readonly EinsumStep[];
  readonly faults: readonly EinsumFault[];
  /** One for each operand; none where there are faults. */
  readonly gradients: readonly OperandGradient[];
}

/**
 * Shards an einsum whose operands are placed: the placement of its result, and the reductions that
 * its gradients owe. Where a mesh dim has no rule for the operands as they are, the rule that needs
 * fewest collectives is taken, then fewest slices, then the first; sizes are not known, so nothing
 * is priced (`plan` does).
 *
 * @throws E_SYNTAX for an equation or a state that cannot be read, E_PLACEMENT for a state that an
 *   operand cannot have
 */
export function shardRule(
  equation: string,
  placements: readonly EinsumSpec[],
  options: ShardRuleOptions = {},
): EinsumSharding {
  checkKinds('shardRule', {
    equation: [equation, 'string'],
    placements: [placements, 'list'],
    options: [options, 'record', 'undefined'],
  });
  const asked = readOperands(equation, placements, options);
  const { read, names, axes, placed } = asked;
  const { operands, output, text } = read;
  const rules = rulesOf(text).filter(sumsOnly);
  const choices = axes.map((_, axis) =>
    choose(
      read,
      rules,
      placed.map((p) => p.states[axis]),
    ),
  );
  const steps = [...changes(asked, choices), ...reordered(asked, choices)];
  const strict = options.mode === 'strict';
  const faults = strict ? steps.map((step) => fault(text, step)) : [];
  const isRefused = faults.length > 0;
  return {
    equation: text,
    axes,
    operands: names,
    inputs: operands.map((letters, k) =>
      perAxis(
        axes,
        choices.map((c) => c.inputs[k]),
        letters,
      ),
    ),
    result: isRefused
      ? undefined
      : perAxis(
          axes,
          choices.map((c) => c.output),
          output,
        ),
    steps: strict ? [] : steps,
    faults,
    gradients: isRefused ? [] : operands.map((_, k) => gradientOf(asked, choices, k)),
  };
}

/** An einsum with its operands placed. Mesh dims of one device are left out. */
interface PlacedEinsum {
  readonly read: EinsumEquation;
  readonly names: readonly string[];
  readonly axes: readonly string[];
  readonly placed: readonly PlacedOperand[];
}

function readOperands(
  equation: string,
  placements: readonly EinsumSpec[],
  options: ShardRuleOptions,
): PlacedEinsum {
  const read = parseEinsum(equation);
  const { operands, text } = read;
  if (placements.length !== operands.length)
    throw new ShardwrightError(
      'E_PLACEMENT',
      `einsum '${text}' has ${operands.length} operands, got ${placements.length} placements`,
    );
  const named = options.axes ?? axesOf(placements);
  const repeated = named.find((axis, i) => named.indexOf(axis) !== i);
  if (repeated !== undefined)
    throw new ShardwrightError('E_PLACEMENT', `mesh dim '${repeated}' is listed twice`);
  const names = operands.map((_, k) => options.names?.[k] ?? OPERAND_NAMES[k] ?? `operand ${k}`);
  const kept = named.flatMap((_, axis) => (options.sizes?.[axis] === 1 ? [] : [axis]));
  return {
    read,
    names,
    axes: kept.map((axis) => named[axis]),
    placed: operands.map((letters, k) =>
      only(readPlaced(placements[k], names[k], letters, named), kept),
    ),
  };
}

/** Steps that change the state of an operand on one mesh dim. */
function changes(
  { read, names, axes, placed }: PlacedEinsum,
  choices: readonly Choice[],
): EinsumStep[] {
  return choices.flatMap((choice, axis) =>
    read.operands.flatMap((letters, k): EinsumStep[] => {
      const [from, to] = [placed[k].states[axis], choice.inputs[k]];
      const kind = stepOf(from, to);
      if (kind === undefined) return [];
      return [
        {
          operand: names[k],
          axis: axes[axis],
          kind,
          from: stateText(from, letters),
          to: stateText(to, letters),
        },
      ];
    }),
  );
}

function gradientOf(
  { read, names, axes, placed }: PlacedEinsum,
  choices: readonly Choice[],
  k: number,
): OperandGradient {
  const states = choices.map((choice, axis) => gradientAt(read, choice, k, axes[axis]));
  const reason = unswappable(read);
  return {
    operand: names[k],
    equation: reason === undefined ? einsumBackward(read.text, k).equation : undefined,
    refused: reason?.message,
    states: perAxis(axes, states, read.operands[k]),
    owes: states.flatMap((state, axis) =>
      owed(read, k, state, choices[axis], placed[k].states[axis], axes[axis]),
    ),
  };
}

function perAxis(
  axes: readonly string[],
  states: readonly LetterState[],
  letters: string,
): Record<string, string> {
  return Object.fromEntries(axes.map((axis, i) => [axis, stateText(states[i], letters)]));
}

const OPERAND_NAMES = ['x', 'y', 'z'];

function axesOf(placements: readonly EinsumSpec[]): readonly string[] {
  const records = placements.filter((p) => typeof p !== 'string');
  if (records.length === 0)
    throw new ShardwrightError('E_PLACEMENT', 'placements in text name no mesh dims', {
      hint: "give them: { axes: ['dp', 'tp'] }.",
    });
  return Object.keys(records[0]);
}

/** The states on some of the mesh dims. */
function only({ states, order }: PlacedOperand, kept: readonly number[]): PlacedOperand {
  const within = [...order].map(([letter, axes]): [string, number[]] => [
    letter,
    axes.flatMap((axis) => (kept.includes(axis) ? [kept.indexOf(axis)] : [])),
  ]);
  return { states: kept.map((axis) => states[axis]), order: new Map(within) };
}

/** States of the operands as a rule takes them, and of the result. */
interface Choice {
  readonly inputs: readonly LetterState[];
  readonly output: LetterState;
}

/** The product of two averages has no type. */
const sumsOnly = (r: Rule): boolean =>
  r.inputs.every((slot) => slot?.kind !== 'partial' || slot.op === P('sum').op);

function choose(eq: EinsumEquation, rules: readonly Rule[], given: readonly LetterState[]): Choice {
  if (given.every(({ kind }) => kind === 'I')) return { inputs: given, output: INVARIANT };
  let best: Choice | undefined;
  let least = [Infinity, Infinity];
  for (const r of rules)
    for (const chunks of cutsOf(r, eq, given)) {
      const candidate = taken(r, eq, chunks);
      const kinds = given.map((from, k) => stepOf(from, candidate.inputs[k]));
      if (given.some((from, k) => unreachable(from, candidate.inputs[k]))) continue;
      const collectives = kinds.filter(
        (kind) => kind !== undefined && kind !== 'cast' && kind !== 'slice',
      ).length;
      const slices = kinds.filter((kind) => kind === 'slice').length;
      if (collectives > least[0] || (collectives === least[0] && slices >= least[1])) continue;
      best = candidate;
      least = [collectives, slices];
    }
  if (best === undefined) throw internalError(`einsum '${eq.text}' has no rule`);
  return best;
}

/** Ways to cut the letter of a rule that some operand has, plain first. */
function cutsOf(r: Rule, eq: EinsumEquation, given: readonly LetterState[]): number[] {
  const letter = letterOf(r, eq);
  if (letter === undefined) return [1];
  return [...new Set([1, ...given.flatMap((g) => (g.letter === letter ? [g.chunks ?? 1] : []))])];
}

function letterOf(r: Rule, eq: EinsumEquation): string | undefined {
  const k = r.inputs.findIndex((slot) => slot?.kind === 'shard');
  const slot = r.inputs[k];
  return slot?.kind === 'shard' ? eq.operands[k][slot.dim] : undefined;
}

function taken(r: Rule, eq: EinsumEquation, chunks: number): Choice {
  const state = (slot: RuleSlot, letters: string): LetterState => {
    if (slot?.kind === 'shard') return { kind: 'S', letter: letters[slot.dim], chunks };
    return slot?.kind === 'partial' ? PENDING : REPLICATED;
  };
  return {
    inputs: r.inputs.map((slot, k) => state(slot, eq.operands[k])),
    output: state(r.outputs[0], eq.output),
  };
}

/** To make addends of what is equal or cut is an edit for experts, not for a planner. */
const unreachable = (from: LetterState, to: LetterState): boolean =>
  to.kind === 'P' && from.kind !== 'P';

function stepOf(from: LetterState, to: LetterState): EinsumStepKind | undefined {
  if (from.kind === to.kind)
    return from.letter === to.letter && (from.chunks ?? 1) === (to.chunks ?? 1)
      ? undefined
      : 'all_to_all';
  if (from.kind === 'S') return 'all_gather';
  if (from.kind === 'P') return to.kind === 'S' ? 'reduce_scatter' : 'all_reduce';
  return to.kind === 'S' ? 'slice' : 'cast';
}

/**
 * Operands that have a letter must be cut on it by the same mesh dims in the same order; the first
 * of them says which.
 */
function reordered(
  { read, names, axes, placed }: PlacedEinsum,
  choices: readonly Choice[],
): EinsumStep[] {
  const steps: EinsumStep[] = [];
  const first = new Map<string, string>();
  read.operands.forEach((letters, k) => {
    for (const letter of new Set(letters)) {
      const cutting = choices.flatMap((c, axis) => (c.inputs[k].letter === letter ? [axis] : []));
      // An earlier cut keeps its order; a new cut lies inside it.
      const before = (placed[k].order.get(letter) ?? []).filter((axis) => cutting.includes(axis));
      const order = [...before, ...cutting.filter((axis) => !before.includes(axis))];
      const text = order.map((axis) => axes[axis]).join(', ');
      const wanted = first.get(letter);
      if (wanted === undefined) first.set(letter, text);
      else if (wanted !== text) {
        const at = letters.indexOf(letter);
        steps.push({
          operand: names[k],
          axis: text,
          kind: 'redistribute',
          from: `dim ${at} by ${text}`,
          to: `dim ${at} by ${wanted}`,
        });
      }
    }
  });
  return steps;
}

function fault(equation: string, { operand, axis, kind, from, to }: EinsumStep): EinsumFault {
  const fix =
    `${kind === 'cast' || kind === 'slice' ? 'convert' : kind}(${operand}, "${axis}", ` +
    `${from}→${to})`;
  const where = `einsum '${equation}' on ${axis}`;
  if (kind === 'cast')
    return {
      axis,
      fix,
      message:
        `${where}: ${operand} is I and another operand is not; their gradients differ on each ` +
        'rank',
    };
  const what =
    kind === 'slice'
      ? 'a slice'
      : kind === 'redistribute'
        ? 'another order of mesh dims'
        : `an ${kind}`;
  return {
    axis,
    fix,
    message:
      `Implicit redistribution occurred for ${where}: ${operand} is ${from} and would need ` +
      `${what} to ${to}`,
  };
}

/** State of the gradient of operand `k`, from the rules of its own einsum. */
function gradientAt(
  eq: EinsumEquation,
  { inputs, output }: Choice,
  k: number,
  axis: string,
): LetterState {
  const own: LetterState = { ...inputs[k], kind: gradientState(inputs[k].kind) };
  if (unswappable(eq) !== undefined || inputs.every(({ kind }) => kind === 'I')) return own;
  const { equation } = einsumBackward(eq.text, k);
  const back = parseEinsum(equation);
  const cotangent: LetterState = { ...output, kind: gradientState(output.kind) };
  const given = inputs.map((state, i) => (i === k ? cotangent : state));
  for (const r of rulesOf(equation).filter(sumsOnly))
    for (const chunks of cutsOf(r, back, given)) {
      const { inputs: wanted, output: state } = taken(r, back, chunks);
      if (given.some((from, i) => stepOf(from, wanted[i]) !== undefined)) continue;
      if (state.kind !== own.kind || state.letter !== own.letter) continue;
      return state;
    }
  throw internalError(`the gradient '${equation}' of '${eq.text}' has no rule on ${axis}`);
}

function owed(
  eq: EinsumEquation,
  k: number,
  gradient: LetterState,
  { inputs, output }: Choice,
  given: LetterState,
  axis: string,
): OwedCollective[] {
  const step = stepOf(given, inputs[k]);
  const cut = [...inputs.map((s) => s.letter), output.letter].find(
    (letter) => letter !== undefined,
  );
  const summed = cut !== undefined && !eq.operands[k].includes(cut);
  const why = summed
    ? `${cut}, cut on ${axis}, is summed over in it`
    : 'each rank has a part of it';
  switch (step) {
    case 'all_to_all':
      return [{ axis, collective: 'all_to_all', because: 'the operand was moved by one' }];
    case 'all_gather':
      return [{ axis, collective: 'reduce_scatter', because: 'the operand was gathered' }];
    case 'reduce_scatter':
      return [{ axis, collective: 'all_gather', because: 'the operand was scattered' }];
    case 'slice':
      return [{ axis, collective: 'all_reduce', because: 'each rank used a slice of the operand' }];
    default:
      return gradient.kind === 'P' ? [{ axis, collective: 'all_reduce', because: why }] : [];
  }
}
