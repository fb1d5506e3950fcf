/**
 * Explains an einsum on a mesh in words: lines that name each letter, its class, the operands that
 * have it and the effect of cutting it, then the placement of the result, and the reductions that
 * each gradient owes.
 */

import { checkKinds } from '../../arguments.ts';
import { classify, parseEinsum } from '../../ops/rules/equation.ts';
import type { EinsumSpec } from './placed.ts';
import { type EinsumSharding, shardRule, type ShardRuleOptions } from './shard-rule.ts';

/**
 * The answer of `shardRule` in lines of text.
 *
 * @throws as `shardRule`
 */
export function explain(
  equation: string,
  placements: readonly EinsumSpec[],
  options: ShardRuleOptions = {},
): readonly string[] {
  checkKinds('explainEinsum', {
    equation: [equation, 'string'],
    placements: [placements, 'list'],
    options: [options, 'record', 'undefined'],
  });
  const sharding = shardRule(equation, placements, options);
  return [
    `einsum ${sharding.equation}`,
    ...letterLines(sharding),
    ...stepLines(sharding),
    ...outcomeLines(sharding),
  ];
}

function letterLines({ equation, axes, operands, inputs }: EinsumSharding): string[] {
  const { operands: letters, output } = parseEinsum(equation);
  const classes = classify(equation);
  const all = [...new Set(letters.join(''))];
  return all.map((letter) => {
    const holders = letters.flatMap((own, k) => (own.includes(letter) ? [operands[k]] : []));
    const lacking = letters.flatMap((own, k) => (own.includes(letter) ? [] : [operands[k]]));
    const kind = classes.batch.includes(letter)
      ? 'batch'
      : output.includes(letter)
        ? 'free'
        : 'contraction';
    const cutting = axes.filter((axis) =>
      letters.some(
        (own, k) => own.includes(letter) && cutsDim(inputs[k][axis], own.indexOf(letter)),
      ),
    );
    const where =
      `  ${letter}  ${kind.padEnd(11)} in ` +
      `${holders.join(', ')}${output.includes(letter) ? ' and the result' : ''}`;
    if (cutting.length === 0) return `${where}; not cut`;
    const by = cutting.join(', ');
    if (kind === 'contraction') return `${where}; cut on ${by}: the result is a pending sum`;
    const many = lacking.length > 1;
    const rest =
      `; ${lacking.join(', ')} ${many ? 'are' : 'is'} broadcast along it, so ` +
      `${many ? 'their gradients sum' : 'its gradient sums'} over it`;
    if (lacking.length === 0) return `${where}; cut on ${by}: the result is cut`;
    return `${where}; cut on ${by}: the result is cut${rest}`;
  });
}

/** Tells whether a state such as `S(1)` or `_S(1, 2)` cuts that dim. */
const cutsDim = (state: string, dim: number): boolean =>
  new RegExp(`^_?S\\(${dim}[,)]`).test(state);

function stepLines({ steps, faults }: EinsumSharding): string[] {
  return [
    ...steps.map(
      ({ operand, axis, kind, from, to }) => `  ${operand}: ${kind} on ${axis}, ${from} → ${to}`,
    ),
    ...faults.flatMap(({ message, fix }) => [`  ${message}`, `    write ${fix}`]),
  ];
}

function outcomeLines({ axes, result, gradients }: EinsumSharding): string[] {
  if (result === undefined) return ['result: refused'];
  const states = (by: Readonly<Record<string, string>>): string =>
    axes.map((axis) => `${by[axis]} on ${axis}`).join(', ');
  if (axes.length === 0)
    return gradients.map(
      (g) => `gradient of ${g.operand}: ${g.equation ?? `no einsum, ${g.refused}`}`,
    );
  return [
    `result: ${states(result)}`,
    ...gradients.flatMap(({ operand, equation, refused, states: own, owes }) => [
      `gradient of ${operand}: ${equation ?? `no einsum, ${refused}`}, ${states(own)}`,
      ...(owes.length === 0
        ? ['  owes nothing']
        : owes.map((o) => `  owes 1 ${o.collective} on ${o.axis}: ${o.because}`)),
    ]),
  ];
}
