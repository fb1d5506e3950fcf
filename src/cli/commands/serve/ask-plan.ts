/**
 * Answers the page's questions about a plan that was made for it: the strategies of a value, the
 * cost of another one, files for an engine. The header `x-question` of a request names the plan;
 * the response is lines of JSON with the steps and then the output of the command.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';

import * as z from 'zod';

import { readQuestion } from './question.ts';
import { runCommand } from './run-command.ts';
import type { Served } from './served.ts';

const value = z.string().max(10_000);
const questionSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('explain'), plan: value, node: value }),
  z.strictObject({
    kind: z.literal('force'),
    plan: value,
    node: value,
    placement: value,
    // `NODE=SPEC` of the placements that it is priced on top of.
    before: z.array(value).max(1000),
  }),
  z.strictObject({ kind: z.literal('export'), plan: value, target: value }),
]);
type Question = z.infer<typeof questionSchema>;

export async function askPlan(
  request: IncomingMessage,
  response: ServerResponse,
  { headers, kept, commandLine }: Served,
): Promise<void> {
  const read = readQuestion(questionSchema, request.headers['x-question'], fieldsOf);
  response.writeHead('fault' in read ? 400 : 200, {
    ...headers,
    'content-type': 'application/x-ndjson',
  });
  const say = (line: object): void => void response.write(`${JSON.stringify(line)}\n`);
  const fault = (code: string, message: string, hint = ''): void =>
    say({ fault: { code, message, hint } });
  const folder = 'fault' in read ? undefined : kept.folder(read.question.plan);
  if ('fault' in read) fault('E_USAGE', read.fault.message, read.fault.hint);
  else if (folder === undefined) fault('E_USAGE', 'this plan is no longer kept; plan again');
  else {
    const { question } = read;
    const { code, out, err } = await runCommand(
      [...commandLine, ...wordsOf(question, join(folder, 'plan'))],
      response,
      (step) => say({ step }),
    );
    if (code === 0) say({ printed: out.replaceAll(folder, '') });
    else fault('E_PLAN', err.trim().replaceAll(folder, ''));
  }
  response.end();
}

/** The fields of the kind of a question, or the kinds. */
function fieldsOf({ kind }: Readonly<Record<string, unknown>>): readonly string[] {
  const own = questionSchema.options.find(({ shape }) => shape.kind.value === kind);
  return own === undefined
    ? questionSchema.options.map(({ shape }) => shape.kind.value)
    : Object.keys(own.shape);
}

/** A value is one word with its flag, or comes after `--`, so that none is read as a flag. */
function wordsOf(question: Question, plan: string): string[] {
  switch (question.kind) {
    case 'explain':
      return ['explain', '--json', '--', plan, question.node];
    case 'force':
      return [
        'explain',
        ...question.before.map((pin) => `--force=${pin}`),
        `--force=${question.placement}`,
        '--',
        plan,
        question.node,
      ];
    case 'export':
      return ['export', '--json', `--target=${question.target}`, '--', plan];
  }
}
