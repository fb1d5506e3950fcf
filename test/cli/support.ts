import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { runCli } from '../../src/cli/program.ts';

export interface CliRun {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs the command line in this process and keeps what it prints. */
export async function cli(...argv: readonly string[]): Promise<CliRun> {
  let out = '';
  let err = '';
  const code = await runCli(argv, {
    stdout: (text) => void (out += text),
    stderr: (text) => void (err += text),
    isTerminal: false,
  });
  return { code, out, err };
}

/** Path of a graph text among the fixtures. */
export function fixture(model: string, text = 'joint.expanded'): string {
  return fileURLToPath(new URL(`../fixtures/torch/${model}/${text}.txt.gz`, import.meta.url));
}

/** Answer key that PyTorch gave for a graph. */
export function answerKey<T>(model: string, graph = 'joint'): T {
  const path = fileURLToPath(
    new URL(`../fixtures/torch/${model}/${graph}.key.json.gz`, import.meta.url),
  );
  return JSON.parse(gunzipSync(readFileSync(path)).toString('utf8')) as T;
}

export const JOINT_MODELS = [
  'mlp',
  'mlp-loss',
  'llama-tiny',
  'llama3-8b-2l',
  'llama3-8b-32l',
  'llama3-8b-2l-b16',
  'llama3-8b-4l-b64',
  'llama3-8b-32l-b16',
  'gpt2-2l',
  'gpt2-12l',
  'bert-base',
] as const;
