/**
 * `tune --run`: starts processes of PyTorch on this machine that run the best few plans of a model,
 * and passes on what they print. The processes are those of `python -m shardwright.tune`.
 */
import { spawn } from 'node:child_process';

import { ShardwrightError } from '../../../errors.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import type { TuneOptions } from './flags.ts';

/** The words after the program: torchrun, a process for each device, and the module. */
export function wordsOfRun(model: string, options: TuneOptions): string[] {
  const { devices, cluster, plans, memory, output, timeLimit, json, quiet } = options;
  const given = (flag: string, value: string | number | undefined): string[] =>
    value === undefined ? [] : [flag, String(value)];
  return [
    ...['-m', 'torch.distributed.run', '--nproc-per-node', String(devices)],
    ...['-m', 'shardwright.tune', model, '--cluster', cluster],
    ...given('--plans', plans),
    ...given('--memory', memory === undefined ? undefined : `${memory}B`),
    ...given('--seconds', timeLimit),
    ...given('--out', output),
    ...(json === true ? ['--json'] : []),
    ...(quiet === true ? ['--quiet'] : []),
  ];
}

/** Flags that a run does not read. */
const OF_CONFIG: Readonly<Record<string, string>> = {
  model: '--model',
  for: '--for',
  seq: '--seq',
  globalBatch: '--global-batch',
  risk: '--risk',
  compiled: '--compiled',
  headroom: '--headroom',
  verbose: '--verbose',
};
/** Flags that say nothing without a run. */
const OF_RUN: Readonly<Record<string, string>> = { plans: '--plans', python: '--python' };

/**
 * Refuses flags of `--run` without it, and those of configurations beside it.
 *
 * @param given names of the options on the command line; the others have their defaults
 * @throws E_USAGE
 */
export function refuseFlagsOfOther({ run }: TuneOptions, given: readonly string[]): void {
  const others = run === true ? OF_CONFIG : OF_RUN;
  const flag = given.map((name) => others[name]).find((found) => found !== undefined);
  if (flag === undefined) return;
  if (run === true)
    throw new ShardwrightError('E_USAGE', `--run does not take ${flag}`, {
      hint: `leave out ${flag}: the model runs as the file has it.`,
    });
  throw new ShardwrightError('E_USAGE', `${flag} is for --run`, {
    hint: 'add --run, which takes a model instead of a configuration.',
  });
}

/** Runs the plans. @throws E_RUN where there is no such Python, or a process failed */
export async function tuneRun(model: string, options: TuneOptions, io: CliIo): Promise<number> {
  const python = options.python ?? 'python3';
  const code = await passed(python, wordsOfRun(model, options), io);
  if (code === 0) return EXIT.ok;
  throw new ShardwrightError('E_RUN', `${python} ended with exit code ${code}`, {
    hint:
      'it needs PyTorch and the package shardwright (pip install ./python), and prints above ' +
      'what went wrong; --python names another one.',
  });
}

/** Starts a program, prints what it prints, and gives its exit code. */
function passed(program: string, words: readonly string[], io: CliIo): Promise<number> {
  const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'pipe'] });
  child.stdout.setEncoding('utf8').on('data', (text: string) => io.stdout(text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => io.stderr(text));
  return new Promise((resolve, reject) => {
    child.once('error', (error) =>
      reject(
        new ShardwrightError('E_RUN', `${program} cannot be started: ${error.message}`, {
          hint: '--python names the Python that has PyTorch and the package shardwright.',
        }),
      ),
    );
    child.once('close', (code) => resolve(code ?? 1));
  });
}
