/**
 * Reads low-rank adapters from the keys of PEFT's `adapter_config.json`, puts them beside the
 * linear layers of an architecture, and says what is then trained: the adapters alone.
 */

import { ShardwrightError } from '../errors.ts';
import { roleName } from '../graph/nodes.ts';
import type { Graph } from '../graph/types.ts';
import type { Wanted } from '../passes/autodiff/joint.ts';
import { withLowRank } from '../trace/nn/low-rank.ts';
import type { Architecture } from './architecture.ts';
import type { ConfigReader, JsonRecord } from './read-config.ts';

/** Adapters of a model. */
export interface LoraConfig {
  readonly rank: number;
  readonly alpha: number;
  /** Names of the layers; `all-linear`: every linear layer inside of a numbered one. */
  readonly targets: 'all-linear' | readonly string[];
}

const ALL = 'all-linear';
/** Keys of PEFT that change no shape of a training step. */
const WITHOUT_SHAPE = [
  'base_model_name_or_path',
  'inference_mode',
  'init_lora_weights',
  'lora_dropout',
  'peft_version',
  'revision',
  'task_type',
  'use_rslora',
];
/** Keys of PEFT that make another program where they are set. */
const OTHERS = [
  'alpha_pattern',
  'layers_pattern',
  'layers_to_transform',
  'modules_to_save',
  'rank_pattern',
  'target_parameters',
  'trainable_token_indices',
  'use_dora',
];
/** A module inside of a numbered layer: heads and tables of the vocabulary are outside. */
const INSIDE = /(^|\.)\d+\./;
const ADAPTER = /(^|\.)lora_[AB]\.weight$/;

/** Adapters of a rank as PEFT keeps them, with its customary `lora_alpha` of twice the rank. */
export function adapterConfig(rank: number, targets: LoraConfig['targets'] = ALL): JsonRecord {
  return { peft_type: 'LORA', r: rank, lora_alpha: 2 * rank, target_modules: targets };
}

/**
 * The adapters of a config, as PEFT's `LoraConfig` states them.
 *
 * @throws E_SYNTAX for values of the wrong kind, E_UNSUPPORTED for adapters of another kind
 */
export function readLora(config: ConfigReader): LoraConfig {
  config.checkKnown('peft_type', config.text('peft_type') ?? 'LORA', ['LORA']);
  config.checkKnown('bias', config.text('bias') ?? 'none', ['none']);
  config.known(...WITHOUT_SHAPE);
  const other = OTHERS.find((name) => config.isSet(name));
  if (other !== undefined)
    throw config.inconsistent(
      other,
      'is set',
      'adapters of one rank on whole layers are built, nothing else.',
      'E_UNSUPPORTED',
    );
  const rank = config.size('r', 8);
  const alpha = config.positive('lora_alpha') ?? 8;
  return { rank, alpha, targets: targetsOf(config) };
}

function targetsOf(config: ConfigReader): LoraConfig['targets'] {
  if (!config.has('target_modules')) return ALL;
  if (!config.isText('target_modules'))
    return (config.list('target_modules', 'string') ?? []) as readonly string[];
  // Another text is a regular expression of Python, which matches otherwise than ours.
  config.checkKnown('target_modules', config.text('target_modules') ?? ALL, [ALL]);
  return ALL;
}

/** An architecture with adapters beside its linear layers. */
export function withLora(architecture: Architecture, lora: LoraConfig): Architecture {
  const { rank, alpha, targets } = lora;
  return {
    ...architecture,
    program: (options) => {
      const { inputs, run } = architecture.program(options);
      const seen = new Set<string>();
      let adapters = 0;
      const adapts = (path: string): boolean => {
        seen.add(path.slice(path.lastIndexOf('.') + 1));
        const isOne =
          targets === ALL
            ? INSIDE.test(path)
            : targets.some((name) => path === name || path.endsWith(`.${name}`));
        adapters += Number(isOne);
        return isOne;
      };
      return {
        inputs,
        run: (given) => {
          const made = withLowRank({ rank, scale: alpha / rank, adapts }, () => run(given));
          if (adapters === 0) throw noTarget(targets, seen);
          return made;
        },
      };
    },
  };
}

function noTarget(targets: LoraConfig['targets'], seen: ReadonlySet<string>): ShardwrightError {
  const names = [...seen].sort().join(', ');
  const asked = targets === ALL ? 'inside of a numbered layer' : `named ${targets.join(' or ')}`;
  return new ShardwrightError('E_INPUT', `LoRA: no linear layer is ${asked}`, {
    hint:
      names === ''
        ? 'the products of this family are no linear layers that adapters are put beside.'
        : `linear layers of this model: ${names}.`,
  });
}

/** Tells whether a parameter is that of an adapter. */
export function isAdapter(name: string): boolean {
  return ADAPTER.test(name);
}

/**
 * The parameters that the training step of a forward program takes gradients of: adapters alone, if
 * it has any.
 */
export function trainedOf(graph: Graph): Wanted {
  const names = graph.nodes.flatMap((node) =>
    node.kind === 'placeholder' && node.meta.role === 'parameter' && isAdapter(roleName(node))
      ? [roleName(node)]
      : [],
  );
  return names.length === 0 ? 'parameters' : names;
}

/** `LoRA of rank 16 on all-linear`. */
export function loraText({ rank, targets }: LoraConfig): string {
  return `LoRA of rank ${rank} on ${targets === ALL ? 'all linear layers' : targets.join(', ')}`;
}
