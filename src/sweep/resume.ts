/**
 * A pool that keeps its answers in a file, one a line, so that a sweep which was stopped goes on
 * where it was. The first line says what was asked, and of which version: a file of another
 * question or version is refused. Every other line carries a hash over the first one and itself, so
 * that what was edited, or belongs to another file, is refused too.
 */
import { messageOf, ShardwrightError } from '../errors.ts';
import { appendToFile, readUserFile, sha256, truncateFile } from '../platform/platform.ts';
import { VERSION } from '../version.ts';
import type { SweepQuestion } from './model/question.ts';
import type { SweepAnswer, SweepJob, SweepPool } from './threads/pool.ts';

/**
 * @throws E_IO for a file that cannot be read or written, E_USAGE for one of another question or
 *   version, E_INPUT with the line for an answer that this question has not had
 */
export function resumedPool(pool: SweepPool, question: SweepQuestion, path: string): SweepPool {
  const head = JSON.stringify({ sweep: 2, version: VERSION, question });
  const known = new Map<string, SweepAnswer>();
  const write = (line: string): void => writing(path, () => appendToFile(path, `${line}\n`));
  const text = readUserFile(path, 'file of the sweep') ?? '';
  // The last line may have been cut off when the sweep was stopped; what it held is priced again.
  const whole = text.slice(0, text.lastIndexOf('\n') + 1);
  if (whole === '' && head.startsWith(text)) {
    if (text !== '') writing(path, () => truncateFile(path, 0));
    write(head);
  } else {
    const [first, ...lines] = whole.split('\n').slice(0, -1);
    if (first !== head) throw otherFile(first, path);
    lines.forEach((line, i) => {
      const entry = readEntry(head, line);
      if (entry === undefined)
        throw new ShardwrightError(
          'E_INPUT',
          'the line answers another question: its hash differs',
          {
            file: path,
            position: { line: i + 2, column: 1 },
            hint: 'delete the line, or give another file to --resume',
          },
        );
      known.set(entry.key, entry.answer);
    });
    if (whole !== text)
      writing(path, () => truncateFile(path, new TextEncoder().encode(whole).length));
  }
  return {
    run: async (jobs) => {
      const open = jobs.filter((job) => !known.has(keyOf(job)));
      const answers = await pool.run(open);
      open.forEach((job, i) => {
        const answer = answers[i];
        if (answer === undefined) return;
        const entry = { key: keyOf(job), answer };
        known.set(entry.key, entry.answer);
        write(JSON.stringify({ ...entry, hash: hashOf(head, entry) }));
      });
      return jobs.map((job) => known.get(keyOf(job)));
    },
    close: () => pool.close(),
  };
}

interface Entry {
  readonly key: string;
  readonly answer: SweepAnswer;
}

/** The answer of a line, undefined where it is not one that was written under this head. */
function readEntry(head: string, line: string): Entry | undefined {
  let entry: { readonly key?: unknown; readonly answer?: unknown; readonly hash?: unknown } | null;
  try {
    entry = JSON.parse(line) as typeof entry;
  } catch {
    return undefined;
  }
  const { key, answer, hash } = entry ?? {};
  if (typeof key !== 'string' || typeof answer !== 'object' || answer === null) return undefined;
  const found = { key, answer: answer as SweepAnswer };
  return hash === hashOf(head, found) ? found : undefined;
}

function hashOf(head: string, { key, answer }: Entry): string {
  return sha256(`${head}\n${JSON.stringify({ key, answer })}`);
}

function keyOf(job: SweepJob): string {
  return JSON.stringify(job);
}

function otherFile(first: string | undefined, path: string): ShardwrightError {
  const version = /^\{"sweep":\d+,"version":"([^"]*)"/.exec(first ?? '')?.[1];
  const what =
    version === undefined || version === VERSION
      ? 'the file holds answers to another question'
      : `the file was written by version ${version}, whose prices may differ; this is ${VERSION}`;
  return new ShardwrightError('E_USAGE', what, {
    file: path,
    hint: 'give another file to --resume, or delete this one',
  });
}

function writing<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    const why = messageOf(error);
    throw new ShardwrightError('E_IO', `cannot read or write the file of the sweep: ${why}`, {
      file: path,
    });
  }
}
