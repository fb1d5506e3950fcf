/**
 * Tunes the configuration of a trainer. In: its text, devices and a cluster. Out: what `tune`
 * prints, and the file with the changes made.
 */
import {
  Deadline,
  DEFAULT_RISK,
  layoutOfText,
  modelEntries,
  modelEntry,
  modelOfFile,
  parseBytes,
  parseCount,
  ShardwrightError,
  tunedConfig,
  tuneText,
} from '../../src/entries/page.ts';
import type { Answers, Question } from '../protocol.ts';
import { count, table } from './model.ts';
import type { StopSignal } from './stop-signal.ts';

export async function tune(
  question: Question,
  signal: StopSignal,
  step: (text: string) => void,
): Promise<Answers['tune']> {
  const { config: text, cluster } = question;
  if (text.trim() === '')
    throw new ShardwrightError('E_USAGE', 'no configuration is given', {
      hint: 'paste that of torchtitan, Megatron-LM, DeepSpeed, Accelerate, NeMo or MaxText.',
    });
  const file = 'config';
  const { model: asked, isNamed } = modelAsked(file, question);
  const { name, config } = modelEntry(asked);
  const model = { name, text: JSON.stringify(config) };
  const devices = parseCount(question.devices, 'devices');
  const { tuned, text: edited } = await tunedConfig(
    {
      file,
      text,
      layout: layoutOfText(text, { file, devices }, model.text),
      model,
      sizes: {
        devices,
        cluster,
        sequence: count('sequence', question.sequence),
        globalBatch: count('batch', question.batch),
      },
      settings: {
        risk: DEFAULT_RISK,
        ...(question.memory === '' ? {} : { memory: parseBytes(question.memory, 'budget') }),
      },
    },
    {
      table: table(),
      risk: DEFAULT_RISK,
      deadline: new Deadline(undefined, { signal }),
      onProgress: step,
    },
  );
  const printed = tuneText(tuned);
  const [headline = '', ...rest] = printed.split('\n\n');
  return {
    headline: headline.replaceAll(/\s+/g, ' '),
    text: rest.join('\n\n'),
    edited,
    isEdited: tuned.diff !== '',
    ...(isNamed ? {} : { model: name }),
  };
}

/** The model of the configuration; where it names none, that of the form. */
function modelAsked(
  file: string,
  { config, model }: Question,
): { readonly model: string; readonly isNamed: boolean } {
  try {
    return { model: modelOfFile(file, config), isNamed: true };
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    if (modelEntries().some(({ name }) => name === model)) return { model, isNamed: false };
    throw new ShardwrightError(error.code, error.message, { hint: 'choose it under Model.' });
  }
}
