/**
 * Flags of commands that read a model: corrections of a file, and sizes of a model that is built
 * from its config.
 */

import { FP8_RECIPES } from '../../../cost/kernels/software.ts';
import { ShardwrightError } from '../../../errors.ts';
import { FORMAT_NAMES, isFormat } from '../../../import/formats.ts';
import type { JsonRecord } from '../../../models/read-config.ts';
import { type Given, list, on, text, value } from './flag.ts';
import { countFrom, oneOf, pairOf, parseCount } from './read.ts';
import { JSON_FLAG } from './shared-flags.ts';

/** Optimizers whose update can be added to a program. */
const STEP_OPTIMIZERS = ['sgd', 'adam', 'adamw'] as const;

/** Flags of every command that reads a model. */
export const MODEL_FLAGS = {
  format: value('--format <name>', 'format of the file, instead of detecting it', (name, flag) => {
    if (isFormat(name)) return name;
    throw new ShardwrightError('E_USAGE', `${flag} '${name}' is not a format`, {
      hint: `formats: ${FORMAT_NAMES.join(', ')}`,
    });
  }),
  role: list(
    '--role <NAME=role>',
    'correct the role of an input (parameter, buffer, input ...)',
    async (given, flag) => {
      const { GIVABLE_ROLES } = await import('../../../import/complete/roles.ts');
      const [name, role] = pairOf('NAME=parameter')(given, flag);
      const known = GIVABLE_ROLES.find((r) => r === role);
      if (known !== undefined) return [name, known] as const;
      throw new ShardwrightError('E_USAGE', `${flag} ${given}: '${role}' is not a role`, {
        hint: `roles: ${GIVABLE_ROLES.join(', ')}`,
      });
    },
  ),
  tie: list(
    '--tie <a=b>',
    'two parameters are one tensor, such as embed.weight=head.weight',
    pairOf('a=b'),
  ),
  trainStep: on(
    '--train-step',
    'the first outputs are the new values of the first inputs and take their placements',
  ),
  input: list(
    '--input <NAME=type>',
    'type of an input that the file does not state, such as x=f32[8,16]',
    pairOf('NAME=f32[8, 16]'),
  ),
  ops: list(
    '--ops <file>',
    'operators and rules of your own: a rules file (.json), or a program that exports `operators`',
    text,
  ),
  ignoreShardings: on(
    '--ignore-shardings',
    'ignore the shardings that the model file states (default: they are pins)',
    () => ({ shardings: 'ignore' }),
  ),
  select: value('--select <title>', 'which graph of a log to read, such as "Joint graph 0"', text),
  size: list(
    '--size <NAME=n>',
    'value of a size that the model leaves open, such as s77=64',
    (given, flag) => {
      const [name, size] = pairOf('NAME=VALUE')(given, flag);
      return [name, parseCount(size, flag)] as const;
    },
  ),
  ...JSON_FLAG,
};

/** `--pad-vocab`: 1 is not padding. */
export const parsePad = countFrom(1, Infinity, 'write --pad-vocab 128, or 1 for no padding.');

/** The adapters that a flag asks for, as PEFT keeps them. @throws E_USAGE, E_IO, E_SYNTAX */
async function readLoraFlag(given: string, flag: string): Promise<JsonRecord> {
  const [, rank, targets] = /^(\d{1,5})(?::([\w.,]+))?$/.exec(given) ?? [];
  if (rank !== undefined) {
    const { adapterConfig } = await import('../../../models/low-rank.ts');
    return adapterConfig(parseCount(rank, flag), targets?.split(','));
  }
  const hint = `write ${flag} 16, ${flag} 16:q_proj,v_proj, or a file adapter_config.json.`;
  if (!given.endsWith('.json'))
    throw new ShardwrightError('E_USAGE', `${flag} '${given}' is neither a rank nor a file`, {
      hint,
    });
  const [{ parseConfigText }, { readFileText }] = await Promise.all([
    import('../../../models/read-config.ts'),
    import('../../../platform/read-file.ts'),
  ]);
  return parseConfigText(readFileText(given, { what: 'adapters', hint }), given);
}

/** Sizes of what is built from a config; graph files have theirs in them. */
export const SIZE_FLAGS = {
  batch: value(
    '--batch <n>',
    'sequences at once, of a model name or config (default: one a device; without devices 8)',
    parseCount,
  ),
  seq: value(
    '--seq <n>',
    'tokens of a sequence, of a model name or config (default: 4096, or what the positions allow)',
    parseCount,
  ),
  dtype: value(
    '--dtype <name>',
    'element type, of a model name or config (default: what the config states, else bf16)',
    async (name, flag) => {
      if (/^(torch\.)?(fp|f|float|mxfp|nvfp)_?[48](?!\d)/i.test(name))
        throw new ShardwrightError(
          'E_USAGE',
          `${flag} '${name}' is not an element type of weights`,
          {
            hint:
              'weights that are trained have 16 bits or more; compare MODEL --fp8 RECIPE prices ' +
              `their products in fp8: ${FP8_RECIPES.join(', ')}.`,
          },
        );
      return (await import('../../../models/build.ts')).dtypeNamed(name);
    },
  ),
  layers: value(
    '--layers <n>',
    'layers, of a model name or config (default: what the config states)',
    parseCount,
  ),
  training: on(
    '--training',
    'a training step, loss and gradients: of a model name or config (the default), or of a ' +
      'program or file, whose backward pass is then derived',
  ),
  forward: on('--forward', 'the forward pass alone, of a model name or config'),
  lora: value(
    '--lora <rank>',
    'low-rank adapters beside the linear layers of a model name or config, which alone are ' +
      'trained: a rank, such as 16; with the names of layers, 16:q_proj,v_proj; or an ' +
      'adapter_config.json of PEFT',
    readLoraFlag,
  ),
  optimizerStep: value(
    '--optimizer-step <name>',
    'add the update of an optimizer to a program that returns gradients: sgd, adam or adamw. ' +
      'Its states, and gradients until the update, are then placed each on its own (ZeRO-1 and ' +
      'ZeRO-2 among the choices)',
    oneOf(STEP_OPTIMIZERS),
  ),
  padVocab: value(
    '--pad-vocab <n>',
    'pad the vocabulary of a model name or config, as Megatron-LM does: to a multiple of n ' +
      'times the size of tp, such as 128. Padding is counted apart (default: 1, none)',
    parsePad,
  ),
};

/** Sizes that flags choose. */
export type SizeOptions = Given<typeof SIZE_FLAGS>;
