/** Reads the header `x-question` of the page, and says what is wrong with one by its field. */
import type * as z from 'zod';

import { suggestion, valueText } from '../../../errors.ts';
import { firstItems, itemAt } from '../../../item-at.ts';

/** A fault of a question, and the edit that fixes it. */
interface QuestionFault {
  readonly message: string;
  readonly hint: string;
}

/**
 * @param known the fields of a question of this kind, or the kinds where it states another
 * @returns the question, or its first fault
 */
export function readQuestion<T>(
  schema: z.ZodType<T>,
  header: string | string[] | undefined,
  known: (given: Readonly<Record<string, unknown>>) => readonly string[],
): { readonly question: T } | { readonly fault: QuestionFault } {
  const wanted = 'the header x-question holds it as JSON, URI-encoded.';
  if (header === undefined)
    return { fault: { message: 'the request has no question', hint: wanted } };
  let given: unknown;
  try {
    given = JSON.parse(decodeURIComponent(String(header)));
  } catch {
    return { fault: { message: 'the question is no JSON', hint: wanted } };
  }
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    return { fault: { message: `the question is ${valueText(given)}`, hint: wanted } };
  const parsed = schema.safeParse(given);
  if (parsed.success) return { question: parsed.data };
  const { issues } = parsed.error;
  // A misspelt field is missing, too: its own name says more.
  const issue = issues.find(({ code }) => code === 'unrecognized_keys') ?? itemAt(issues, 0);
  return { fault: faultOf(issue, given as Record<string, unknown>, known) };
}

function faultOf(
  issue: z.core.$ZodIssue,
  given: Readonly<Record<string, unknown>>,
  known: (given: Readonly<Record<string, unknown>>) => readonly string[],
): QuestionFault {
  if (issue.code === 'unrecognized_keys') {
    const [field] = firstItems(issue.keys, 1);
    return {
      message: `a question has no field '${field.slice(0, 80)}'`,
      hint: suggestion(field, known(given), 'fields'),
    };
  }
  const field = String(issue.path[0] ?? '');
  const found = given[field];
  if (found === undefined)
    return {
      message: `the question does not state '${field}'`,
      hint: `fields: ${known(given).join(', ')}`,
    };
  if (issue.code === 'invalid_union' && typeof found === 'string')
    return {
      message: `a question is of no kind '${found.slice(0, 80)}'`,
      hint: suggestion(found, known(given), 'kinds'),
    };
  const place = issue.path.map(String).join('.');
  return { message: `${place} of the question: ${issue.message}`, hint: '' };
}
