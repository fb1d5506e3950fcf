import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { ShardwrightError } from '../../errors.ts';
import type { SweepAnswer, SweepJob, SweepPool } from './pool.ts';
import type { SweepQuestion } from './question.ts';

/**
 * A pool that keeps its answers in a file, one a line, so that a sweep which was stopped goes on where it was. The first line
 * says what was asked: a file of another question is refused.
 *
 * @throws E_IO for a file that cannot be read or written, E_USAGE for one of another question
 */
export function resumedPool(pool: SweepPool, question: SweepQuestion, path: string): SweepPool {
  const head = JSON.stringify({ sweep: 1, question });
  const known = new Map<string, SweepAnswer>();
  const write = (line: string): void => {
    try {
      appendFileSync(path, `${line}\n`);
    } catch (error) {
      throw new ShardwrightError('E_IO', `cannot write the file of the sweep: ${messageOf(error)}`, { file: path });
    }
  };
  if (existsSync(path)) {
    const [first, ...lines] = readFileSync(path, 'utf8').split('\n');
    if (first !== head)
      throw new ShardwrightError('E_USAGE', 'the file holds answers to another question', {
        file: path,
        hint: 'give another file to --resume, or delete this one',
      });
    for (const line of lines) {
      // The last line may have been cut off when the sweep was stopped; what it held is priced again.
      const entry = parsed(line);
      if (entry !== undefined) known.set(entry.key, entry.answer);
    }
    write('');
  } else write(head);
  return {
    run: async (jobs, onDone) => {
      const open = jobs.filter((job) => !known.has(keyOf(job)));
      const answers = await pool.run(open, onDone);
      open.forEach((job, i) => {
        known.set(keyOf(job), answers[i]);
        write(JSON.stringify({ key: keyOf(job), answer: answers[i] }));
      });
      return jobs.map((job) => known.get(keyOf(job))).filter((a) => a !== undefined);
    },
    close: () => pool.close(),
  };
}

function keyOf(job: SweepJob): string {
  return JSON.stringify(job);
}

function parsed(line: string): { readonly key: string; readonly answer: SweepAnswer } | undefined {
  if (!line.endsWith('}')) return undefined;
  try {
    return JSON.parse(line) as { key: string; answer: SweepAnswer };
  } catch {
    return undefined;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
