/**
 * The settings of Megatron-Core that state a layout: as arguments in a launch script, and in the
 * YAML of NeMo and Megatron-Bridge. Source: the argument parser of megatron-core 0.16.
 */
import { isPolicy, modulesOf } from '../../step/checkpoints.ts';
import type { Settings, SettingValue } from '../layout/edit-settings.ts';
import type { ConfigEdits, EditedLayout } from '../layout/edited-layout.ts';
import { stageText } from '../layout/stage-cuts.ts';

const CONTEXTS = { ring: 'p2p', cp: 'all_gather', ulysses: 'a2a' } as const;

/** By the name of the setting, with underscores; true is a switch that is on. */
export function megatronSettings(layout: EditedLayout): Settings {
  const { sizes, kind, tuning, globalBatch } = layout;
  const { pp, cp, tp, ep, etp = 1, dp_replicate: replicas } = sizes;
  const { mode } = kind;
  const isSharded = mode === 'zero2' || mode === 'fsdp' || mode === 'hsdp';
  return {
    tensor_model_parallel_size: tp,
    pipeline_model_parallel_size: pp,
    context_parallel_size: cp,
    cp_comm_type: cp > 1 ? CONTEXTS[kind.context] : undefined,
    expert_model_parallel_size: ep,
    expert_tensor_parallel_size: ep > 1 || etp > 1 ? etp : undefined,
    sequence_parallel: tp > 1 && kind.sequenceParallel ? true : undefined,
    ...stageSettings(layout),
    micro_batch_size: tuning.microbatch,
    global_batch_size: globalBatch,
    use_distributed_optimizer: mode === 'dp' ? undefined : true,
    use_megatron_fsdp: isSharded ? true : undefined,
    data_parallel_sharding_strategy: isSharded
      ? mode === 'zero2'
        ? 'optim_grads'
        : 'optim_grads_params'
      : undefined,
    num_distributed_optimizer_instances: mode === 'hsdp' ? replicas : undefined,
    ...recomputation(layout),
    overlap_moe_expert_parallel_comm: tuning.paired === true ? true : undefined,
  };
}

function stageSettings({ sizes: { pp }, tuning, layers }: EditedLayout): Settings {
  if (pp === 1) return {};
  const { chunks, stageLayers } = tuning;
  const isEven = layers % (pp * chunks) === 0 && new Set(stageLayers ?? []).size <= 1;
  return {
    num_layers_per_virtual_pipeline_stage:
      isEven && chunks > 1 ? layers / (pp * chunks) : undefined,
    pipeline_model_parallel_layout: isEven ? undefined : stageText(stageLayers ?? []),
  };
}

function recomputation({ tuning: { checkpoint } }: EditedLayout): Settings {
  const modules = modulesOf(checkpoint);
  const isFull = checkpoint === 'full';
  return {
    // The short form of selective recomputation goes with every change of it.
    recompute_activations: checkpoint,
    recompute_granularity: isFull ? 'full' : isPolicy(checkpoint) ? undefined : 'selective',
    recompute_modules: modules.length > 0 ? modules.join(' ') : undefined,
    recompute_method: isFull ? 'uniform' : undefined,
    recompute_num_layers: isFull ? 1 : undefined,
  };
}

export const MEGATRON_EDITS: ConfigEdits = {
  settings: megatronSettings,
  edit: (text, changed) =>
    Object.entries(changed).reduce(
      (edited, [name, value]) =>
        setArgument(edited, name, name === 'recompute_activations' ? undefined : value),
      text,
    ),
};

const NAME = /(?<![\w$-])--[a-z][\w-]*/;

/** An argument in a script or a file of arguments. */
function setArgument(text: string, name: string, value: SettingValue): string {
  const flag = `--${name.replaceAll('_', '-')}`;
  const found = new RegExp(`(?<![\\w-])${flag}(?![\\w-])`).exec(text);
  if (found === null) return value === undefined ? text : addArgument(text, flag, value);
  const [start, end] = [found.index, found.index + flag.length];
  // Its values: words up to the next argument, or to the end of the line.
  const [old = ''] =
    /^(?:=\S+|(?:[ \t]+(?!--|#|\\\s|\\$|[")'])[^\s")'\\]+)*)/.exec(text.slice(end)) ?? [];
  if (value === undefined) return withoutWord(text, start, end + old.length);
  if (value === true) return text;
  const variable = /^[ =]\s*"?\$\{?(\w+)\}?"?$/.exec(old)?.[1];
  if (variable !== undefined) {
    const set = new RegExp(`^(\\s*(?:export\\s+)?${variable}=(?:\\$\\{\\w+:-)?)(\\w+)`, 'm');
    return set.test(text) ? text.replace(set, `$1${value}`) : text;
  }
  const separator = old.startsWith('=') ? '=' : ' ';
  return `${text.slice(0, end)}${separator}${value}${text.slice(end + old.length)}`;
}

/** Behind the last argument of the layout's own, in the form of its line. */
function addArgument(text: string, flag: string, value: SettingValue): string {
  const words = value === true ? flag : `${flag} ${value}`;
  const lines = text.split('\n');
  const anchors =
    /--(tensor-model-parallel-size|pipeline-model-parallel-size|micro-batch-size|global-batch-size)\b/;
  const at = lines.findIndex((line) => anchors.test(line) && !line.trim().startsWith('#'));
  if (at < 0) return text;
  const line = lines[at];
  const isAlone = line.trim().startsWith('--');
  if (isAlone) {
    const indent = line.slice(0, line.length - line.trimStart().length);
    const goesOn = /\\\s*$/.test(line);
    if (goesOn || !/\\\s*$/.test(lines[at - 1] ?? ''))
      lines.splice(at, 0, `${indent}${words}${goesOn ? ' \\' : ''}`);
    else lines[at] = line.replace(NAME, (name) => `${words} ${name}`);
  } else lines[at] = line.replace(NAME, (name) => `${words} ${name}`);
  return lines.join('\n');
}

/** A text without a word, and without the line that it had to itself. */
function withoutWord(text: string, start: number, end: number): string {
  const lineStart = text.lastIndexOf('\n', start) + 1;
  const next = text.indexOf('\n', end);
  const lineEnd = next < 0 ? text.length : next;
  const before = text.slice(lineStart, start).trim();
  const behind = text.slice(end, lineEnd).trim();
  if (before === '' && (behind === '' || behind === '\\'))
    return `${text.slice(0, lineStart)}${text.slice(Math.min(text.length, lineEnd + 1))}`;
  return `${text.slice(0, start).trimEnd()} ${text.slice(end).trimStart()}`;
}
