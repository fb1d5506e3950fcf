/**
 * Plans a file that the page sent, with the command line in a process of its own, so that the
 * search has all threads and all memory of the machine. The header `x-question` of the request has
 * the flags and its body is the file; the response is lines of JSON with the steps, then the plan
 * folder, its report and a name for questions about it, or a fault. A client that goes away ends
 * the search.
 */
import { createWriteStream, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

import * as z from 'zod';

import { isScript } from '../../input/script-name.ts';
import { readQuestion } from './question.ts';
import { runCommand } from './run-command.ts';
import type { Served } from './served.ts';

/** Largest file; the readers of models take no more either. */
const MOST_BYTES = 256 * 2 ** 20;
/** Questions that are planned at once; each takes all cores. A file that is sent slowly is none. */
const MOST_AT_ONCE = 2;

const value = z.string().max(10_000);
const questionSchema = z.strictObject({
  name: value,
  mesh: value,
  cluster: z.string().regex(/^[\w.-]*$/),
  memory: value,
  batch: value,
  sequence: value,
  layers: value,
  optimizer: value.default(''),
  schedule: value.default(''),
  microbatches: value.default(''),
  pins: z.array(value).max(1000),
});
type Question = z.infer<typeof questionSchema>;

let running = 0;

export async function planLocally(
  request: IncomingMessage,
  response: ServerResponse,
  served: Served,
): Promise<void> {
  const { headers, kept, allowPrograms } = served;
  const refuse = (status: number, message: string, hint = ''): void => {
    response.writeHead(status, {
      ...headers,
      'content-type': 'application/x-ndjson',
      connection: 'close',
    });
    say(response, { fault: { code: 'E_USAGE', message, hint } });
    // The rest of a body that is still arriving is not waited for.
    response.end(() => request.destroy());
  };
  const read = readQuestion(questionSchema, request.headers['x-question'], () =>
    Object.keys(questionSchema.shape),
  );
  if ('fault' in read) return refuse(400, read.fault.message, read.fault.hint);
  const { question } = read;
  const name = `model-${question.name.replaceAll(/[^\w.-]/g, '_').slice(-80)}`;
  if (isScript(name) && !allowPrograms)
    return refuse(
      403,
      `${question.name} is a program, which would run as the owner of this server`,
      'start `shardwright serve --allow-programs`, or trace it and send its graph.',
    );
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-serve-'));
  let isPlanning = false;
  try {
    const file = join(folder, name);
    if (!(await received(request, file)))
      return refuse(413, `the file has more than ${MOST_BYTES} bytes`);
    if (running >= MOST_AT_ONCE)
      return refuse(503, `${MOST_AT_ONCE} plans are being made; wait for one`);
    isPlanning = true;
    running++;
    response.writeHead(200, { ...headers, 'content-type': 'application/x-ndjson' });
    await planAndReport(file, folder, question, response, served);
  } finally {
    if (isPlanning) running--;
    response.end();
    if (!kept.has(folder)) rmSync(folder, { recursive: true, force: true });
  }
}

function say(response: ServerResponse, line: object): void {
  response.write(`${JSON.stringify(line)}\n`);
}

/** Makes the plan and its report in the folder, and says each step, then both or the fault. */
async function planAndReport(
  file: string,
  folder: string,
  question: Question,
  response: ServerResponse,
  { kept, commandLine }: Served,
): Promise<void> {
  const out = join(folder, 'plan');
  const page = join(folder, 'report.html');
  const run = (...words: string[]): ReturnType<typeof runCommand> =>
    runCommand([...commandLine, ...words], response, (step) => say(response, { step }));
  const planned = await run('plan', file, ...flagsOf(question), '--no-recipes', '-o', out);
  if (planned.code !== 0 && planned.code !== 4) {
    const message = planned.err.trim().replaceAll(folder, '');
    say(response, { fault: { code: 'E_PLAN', message, hint: '' } });
    return;
  }
  say(response, { summary: planned.out.replaceAll(folder, '') });
  const reported = await run('report', out, '-o', page);
  if (reported.code !== 0) {
    say(response, { fault: { code: 'E_REPORT', message: reported.err.trim(), hint: '' } });
    return;
  }
  say(response, {
    plan: kept.keep(folder),
    html: readFileSync(page, 'utf8'),
    files: Object.fromEntries(
      readdirSync(out).map((name) => [name, readFileSync(join(out, name)).toString('base64')]),
    ),
  });
}

/** Each flag with its value in one word, so that no value is read as a flag. */
function flagsOf({
  name,
  mesh,
  cluster,
  memory,
  batch,
  sequence,
  layers,
  optimizer,
  schedule,
  microbatches,
  pins,
}: Question): string[] {
  const isConfig = /\.json(\.gz)?$/.test(name);
  const given = (flag: string, text: string): string[] =>
    text === '' ? [] : [`--${flag}=${text}`];
  return [
    ...given('mesh', mesh),
    ...given('cluster', cluster),
    ...given('memory', memory),
    ...given('optimizer', optimizer),
    ...given('schedule', schedule),
    ...given('microbatches', microbatches),
    ...(isConfig
      ? [
          '--training',
          ...given('batch', batch),
          ...given('seq', sequence),
          ...given('layers', layers),
        ]
      : []),
    ...pins.map((pin) => `--pin=${pin}`),
  ];
}

/** Tells whether the whole body was written; what is too large is given up at the limit. */
async function received(request: IncomingMessage, file: string): Promise<boolean> {
  let bytes = 0;
  const limit = new Transform({
    transform(chunk: Buffer, _, done) {
      bytes += chunk.length;
      if (bytes > MOST_BYTES) done(new Error('too large'));
      else done(null, chunk);
    },
  });
  try {
    await pipeline(request, limit, createWriteStream(file, { mode: 0o600 }), { end: true });
    return true;
  } catch (error) {
    if (bytes > MOST_BYTES) return false;
    throw error;
  }
}
