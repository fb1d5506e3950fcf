/** Explains a request that no plan meets: one sentence that says why, with the edit that helps. */

import type { Infeasible } from '../../plan/choice/result.ts';
import { type PlanRequest, recomputesUnderBudget } from '../../plan/request/request.ts';
import { bytesText } from '../../units.ts';

/** Begin of a conflict that is a recipe the request names. */
const RECIPE = 'the recipe ';
/** Begin of one that is what a trainer needs. */
const STEP = 'the step of ';

export function infeasibleText(
  result: Infeasible,
  request: PlanRequest,
): { readonly message: string; readonly hint: string } {
  const budget = bytesText(result.budgetBytes);
  const smallest = result.smallestBudgetBytes;
  const { conflict } = result;
  const enough = result.enoughBytes;
  const known =
    enough === undefined ? '' : `; a plan of ${bytesText(enough)} is known (${enough} bytes)`;
  const short = enough === undefined ? undefined : shortText(conflict, budget, enough);
  if (short !== undefined) return short;
  // One demand that no placement meets, by its flag.
  const alone = conflict.length === 1 && conflict[0]?.startsWith('--') === true;
  const message =
    smallest !== undefined
      ? `no plan fits ${budget} per device: the smallest budget that works is ` +
        `${bytesText(smallest)} (${smallest} bytes)`
      : result.neededBytes !== undefined
        ? `no plan fits ${budget} per device: none needs less than ` +
          `${bytesText(result.neededBytes)}, activations included${known}`
        : conflict.includes('activation memory')
          ? `no plan fits ${budget} per device, activations included${known}`
          : alone
            ? `no plan exists with ${conflict[0]}`
            : `no plan exists: ${conflict.join(' contradicts ')}`;
  const hint =
    smallest !== undefined
      ? `give --memory ${roundedUp(smallest)} or more, more devices, or a leaner --optimizer.`
      : result.neededBytes !== undefined || conflict.includes('activation memory')
        ? (enough === undefined
            ? 'give more --memory'
            : `give --memory ${roundedUp(enough)} or more`) +
          ', more devices, or ' +
          (recomputesUnderBudget(request) ? 'a leaner --optimizer; ' : '--checkpoint auto; ') +
          '--frontier lists what fits.'
        : alone
          ? 'drop it, or ask for what every tensor of it can be: a dim of n rows is cut into n ' +
            'pieces at most.'
          : conflict[0]?.startsWith('no placement of') === true
            ? 'free what --pin, --inputs or --outputs fix around it.'
            : conflict[0]?.startsWith('propagation') === true
              ? 'use --solver auto, which tries every placement.'
              : conflict.some((c) => c.endsWith(' of the program'))
                ? 'drop one of them, or leave those of the program free with --ignore-shardings.'
                : 'drop one of them.';
  return { message, hint };
}

/** A size that is enough, in whole KiB or MiB as `--memory` takes them. */
function roundedUp(bytes: number): string {
  const [unit, size] = bytes < 2 ** 26 ? (['KiB', 2 ** 10] as const) : (['MiB', 2 ** 20] as const);
  return `${Math.ceil(bytes / size)}${unit}`;
}

/** Explains a recipe or a trainer's step that needs more bytes; undefined for other conflicts. */
function shortText(
  [first = '']: readonly string[],
  budget: string,
  enough: number,
): { readonly message: string; readonly hint: string } | undefined {
  const more = `give --memory ${roundedUp(enough)} or more, more devices`;
  const needs = `${bytesText(enough)} (${enough} bytes)`;
  if (first.startsWith(RECIPE))
    return {
      message: `${first} does not fit ${budget} per device: it needs ${needs}`,
      hint: `${more}, or --checkpoint full; without --recipe the best plan that fits is found.`,
    };
  if (!first.startsWith(STEP)) return undefined;
  return {
    message:
      `${first} does not fit ${budget} per device: the leanest plan that was found needs ` + needs,
    hint:
      `${more} or another --mesh, or ask compare, which cuts states further and recomputes as ` +
      'trainers do.',
  };
}
