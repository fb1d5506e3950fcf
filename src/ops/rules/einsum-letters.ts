/**
 * Reads the equation of a `torch.einsum` call: the letters of each operand and of the result, and
 * the size of each letter.
 */
import type { OpContext } from '../record/record.ts';

interface Letters {
  /** With its `->`. */
  readonly equation: string;
  readonly operands: readonly string[];
  readonly output: string;
  readonly sizes: ReadonlyMap<string, number>;
}

/**
 * The letters of a call. Without an arrow the result has those that occur once, in alphabetical
 * order. @throws E_TYPE
 */
export function letters(ctx: OpContext): Letters {
  const given = ctx.text('equation').replaceAll(' ', '');
  if (given.includes('.'))
    ctx.fail(`'${given}': dims under an ellipsis have no letters here; name them`);
  const [left, right] = given.split('->');
  const operands = left.split(',');
  const output =
    right ??
    [...new Set(left.replaceAll(',', ''))]
      .filter((l) => left.split(l).length === 2)
      .sort()
      .join('');
  if (operands.length !== ctx.inputs.length)
    ctx.fail(`'${given}' has ${operands.length} operands, got ${ctx.inputs.length}`);
  const sizes = new Map<string, number>();
  operands.forEach((own, i) => {
    const { shape } = ctx.inputs[i];
    if (own.length !== shape.length || !/^[A-Za-z]*$/.test(own))
      ctx.fail(`'${own}' does not name the dims of [${shape.join(', ')}]`);
    [...own].forEach((l, d) => {
      if ((sizes.get(l) ?? shape[d]) !== shape[d])
        ctx.fail(`'${l}' has ${sizes.get(l)} and ${shape[d]} rows`);
      sizes.set(l, shape[d]);
    });
  });
  const strange = [...output].find((l, i) => !sizes.has(l) || output.indexOf(l) !== i);
  if (strange !== undefined)
    ctx.fail(`the result names '${strange}', which no operand has, or twice`);
  return { equation: `${operands.join(',')}->${output}`, operands, output, sizes };
}
