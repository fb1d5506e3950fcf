/**
 * Sharding rules of contractions, generated from einsum letters. For every letter: shard it in each
 * operand that carries it and replicate the others; the output is sharded on the letter, or is a
 * pending sum if the letter is contracted. A contraction is linear in each operand separately, so a
 * pending sum or average of ONE operand passes to the output; `P, P -> P` is false for products.
 */

import { checkKinds } from '../../arguments.ts';
import { LINEAR_KINDS, P, R, type Rule, rule, type RuleSlot, S } from '../record/rule.ts';
import { lettersOf, parseEinsum, repeats } from './equation.ts';

interface EinsumOptions {
  /** Offer the linear kinds per operand. Default true. */
  readonly linear?: boolean;
  /**
   * The function is linear in all operands together (addition, not product): offers `P, P -> P`.
   * Default false.
   */
  readonly jointlyLinear?: boolean;
  /** A tensor added to the output, listed as the FIRST input: its shape and the output's. */
  readonly bias?: { readonly shape: readonly number[]; readonly output: readonly number[] };
}

/**
 * Every single-dim rule of an equation: nothing cut, each letter cut wherever it occurs, and a
 * pending sum or average of one operand. `mk,kn->mn` has 8. The operators that are products have
 * these rules.
 *
 * @throws E_SYNTAX as `parseEinsum`
 */
export function rulesOf(equation: string): readonly Rule[] {
  checkKinds('rulesOf', { equation: [equation, 'string'] });
  const { operands, text } = parseEinsum(equation);
  const same = rule(
    operands.map(() => R),
    [R],
  );
  return [same, ...einsumRules(text)];
}

/**
 * Single-dim rules of a contraction, without the all-replicate rule: batch letters, contracted
 * letters, free letters in operand order, then linearity. A letter that one operand repeats (a
 * diagonal) stays whole.
 */
export function einsumRules(equation: string, options: EinsumOptions = {}): Rule[] {
  if (options.bias !== undefined) return makeRules(equation, options);
  const key = `${equation} ${options.linear !== false} ${options.jointlyLinear === true}`;
  let rules = known.get(key);
  if (rules === undefined) known.set(key, (rules = makeRules(equation, options)));
  return [...rules];
}

/**
 * One letter cut in every operand that has it: the result is cut on it, or a pending sum where it
 * has no such letter.
 *
 * @param cut how a dim is cut, where that is more than evenly or not
 */
export function cutLetter(
  equation: string,
  letter: string,
  cut: (dim: number) => RuleSlot = (dim) => S(dim),
): { readonly inputs: readonly RuleSlot[]; readonly output: RuleSlot } {
  const { operands, output } = parseEinsum(equation);
  const slot = (own: string, without: RuleSlot): RuleSlot =>
    own.includes(letter) ? cut(own.indexOf(letter)) : without;
  return { inputs: operands.map((own) => slot(own, R)), output: slot(output, P('sum')) };
}

/**
 * Rules by equation and options: a pure function of them, kept because models repeat few equations
 * many times.
 */
const known = new Map<string, readonly Rule[]>();

function makeRules(equation: string, options: EinsumOptions): Rule[] {
  const { operands, output } = parseEinsum(equation);
  const { bias } = options;
  const rules: Rule[] = [];
  const add = (inputs: readonly RuleSlot[], out: RuleSlot, ext = false): void => {
    const slots = bias === undefined ? inputs : [biasSlot(bias.shape, bias.output, out), ...inputs];
    rules.push(rule(slots, [out], ext ? { origin: 'ext' } : {}));
  };
  for (const letter of lettersInRuleOrder(operands, output)) {
    if (operands.some((o) => repeats(o, letter))) continue;
    const carriers = operands.filter((o) => o.includes(letter)).length;
    const { inputs, output: out } = cutLetter(equation, letter);
    // A contracted letter that only one of several operands carries is a plain sum over it; 2.13
    // does not list it.
    add(inputs, out, out?.kind === 'partial' && carriers < operands.length);
  }
  if (options.jointlyLinear === true) {
    for (const kind of LINEAR_KINDS)
      add(
        operands.map(() => P(kind)),
        P(kind),
      );
  } else if (options.linear !== false) {
    for (const kind of LINEAR_KINDS) {
      operands.forEach((_, i) => {
        add(
          operands.map((__, j) => (i === j ? P(kind) : R)),
          P(kind),
        );
      });
    }
  }
  return rules;
}

/**
 * Placement of a tensor that broadcasts into the output: it follows the output's cut, and is
 * pending where the output is.
 */
function biasSlot(shape: readonly number[], output: readonly number[], out: RuleSlot): RuleSlot {
  if (out === null || out.kind !== 'shard') return out;
  const dim = out.dim - (output.length - shape.length);
  if (dim < 0 || (shape[dim] === 1 && output[out.dim] !== 1)) return R;
  return { ...out, dim };
}

/**
 * Matrix FLOPs of a two-operand contraction: 2 per multiply-add, times the product of all letter
 * sizes.
 */
export function einsumFlops(equation: string, ...shapes: readonly (readonly number[])[]): number {
  const { operands } = parseEinsum(equation);
  const sizes = new Map<string, number>();
  operands.forEach((letters, i) => {
    [...letters].forEach((letter, d) => sizes.set(letter, shapes[i][d]));
  });
  let product = 2;
  for (const size of sizes.values()) product *= size;
  return product;
}

/**
 * Batch letters, contracted letters, then free letters: the order in which 2.13 lists its rules (it
 * breaks ties).
 */
function lettersInRuleOrder(operands: readonly string[], output: string): string[] {
  const rank = (letter: string): number => {
    if (!output.includes(letter)) return 1;
    return operands.length > 1 && operands.every((o) => o.includes(letter)) ? 0 : 2;
  };
  return lettersOf(operands).sort((a, b) => rank(a) - rank(b));
}
