/**
 * Reads a layout as people write it, `tp=8,pp=4,dp=8,mbs=1,zero=1,recompute=full`, into a complete
 * layout. An error names the key, the text that was found and the texts that fit.
 */

import { FP8_RECIPES } from '../../cost/kernels/software.ts';
import { GRADIENTS, STATES, type States } from '../../cost/memory/state-bytes.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { parsePipelineSchedule } from '../../simulate/pipeline/schedules.ts';
import { type Checkpoint, moduleSet, POLICIES, RECOMPUTE_MODULES } from '../../step/checkpoints.ts';
import type { StateMode } from '../../step/zero-mode.ts';
import { LAYOUT_KEYS, LAYOUT_SIZES, type LayoutSize } from '../../trainers/layout/layout-keys.ts';
import type { StatedLayout } from '../model/stated-layout.ts';

const CONTEXTS = ['ring', 'cp', 'ulysses'] as const;
const STATE_NAMES = Object.keys(STATES) as States[];
const FP8_RECIPE_NAMES = FP8_RECIPES.map((name) => `fp8:${name}` as const);
const DTYPES = ['bf16', 'f16', 'f32', 'fp8', ...FP8_RECIPE_NAMES, 'fp4'] as const;

/**
 * @param devices that the product of pp, dp_replicate, dp, cp and tp must be
 * @throws E_USAGE naming the key
 */
export function parseLayout(text: string, devices: number): StatedLayout {
  const given = settings(text);
  const sizes = LAYOUT_SIZES.map((key) => sizeOf(given, key));
  const [pp, replicas, dp, cp, tp, ep, etp, chunks, microbatch] = sizes;
  const product = pp * replicas * dp * cp * tp;
  if (product !== devices)
    throw fault(
      `pp x dp_replicate x dp x cp x tp is ${product}, and --devices is ${devices}`,
      devices % (product / dp) === 0
        ? `dp=${devices / (product / dp)} would fit.`
        : 'ep and etp fold into dp, cp and tp and do not count.',
    );
  const zero = given.get('zero') ?? '0';
  // Pipelines keep gathered weights: another gather for every microbatch of every stage would not
  // pay.
  const once = word(given, 'reshard', ['0', '1'], pp > 1 ? '0' : '1') === '0';
  if (given.has('reshard') && zero !== '3')
    throw fault(
      `reshard=${given.get('reshard')} with zero=${zero}`,
      'only zero=3 gathers parameters.',
    );
  const pairs = isPaired(given, { ep, pp, chunks });
  const stageLayers = given.has('stages')
    ? stagesGiven(given.get('stages') ?? '', pp * chunks)
    : undefined;
  return {
    sizes: { pp, dp_replicate: replicas, dp_shard: dp, cp, tp, ep, ...(etp === 1 ? {} : { etp }) },
    kind: {
      mode: modeOf(zero, replicas, dp * cp),
      context: word(given, 'context', CONTEXTS, 'ring'),
      sequenceParallel: word(given, 'sp', ['0', '1'], tp > 1 ? '1' : '0') === '1',
    },
    tuning: {
      microbatch,
      chunks,
      schedule: parsePipelineSchedule(
        given.get('schedule') ?? (chunks > 1 ? 'interleaved' : '1f1b'),
      ),
      checkpoint: recomputed(given.get('recompute') ?? 'none'),
      once,
      ...(word(given, 'offload', ['0', '1'], '0') === '1' ? { offload: true } : {}),
      ...(pairs ? { paired: true } : {}),
      asStated: true,
      ...defined({ stageLayers }),
    },
    ...(given.has('gradients') ? { gradients: word(given, 'gradients', GRADIENTS, 'fp32') } : {}),
    ...(given.has('states') ? { states: word(given, 'states', STATE_NAMES, 'fp32') } : {}),
    ...(given.has('dtype') ? { dtype: word(given, 'dtype', DTYPES, 'bf16') } : {}),
  };
}

type Settings = ReadonlyMap<string, string>;

/** The values by key. @throws E_USAGE for what is not a KEY=VALUE, and for keys given twice */
function settings(text: string): Settings {
  const given = new Map<string, string>();
  for (const part of text.split(',')) {
    const [key, value, ...rest] = part.split('=').map((word) => word.trim());
    if (value === undefined || value === '' || rest.length > 0)
      throw fault(
        `'${part.trim()}' is not KEY=VALUE`,
        'write for example tp=8,pp=4,dp=8,mbs=1,zero=1.',
      );
    if (!LAYOUT_KEYS.some((known) => known === key))
      throw fault(`no key '${key}'`, suggestion(key, [...LAYOUT_KEYS], 'keys'));
    if (given.has(key)) throw fault(`'${key}' is given twice`, 'leave one of them out.');
    given.set(key, value);
  }
  return given;
}

function sizeOf(given: Settings, key: LayoutSize): number {
  const value = given.get(key) ?? '1';
  if (!/^[1-9]\d{0,8}$/.test(value))
    throw fault(
      `${key}=${value} is not a whole number from 1 on`,
      `write ${key}=1 or leave it out.`,
    );
  return Number(value);
}

/** Tells whether microbatches run in pairs. @throws E_USAGE where nothing hides beside another */
function isPaired(
  given: Settings,
  { ep, pp, chunks }: { readonly ep: number; readonly pp: number; readonly chunks: number },
): boolean {
  const pairs = word(given, 'pair', ['0', '1'], '0') === '1';
  if (pairs && ep === 1)
    throw fault('pair=1 without ep', 'only exchanges with experts hide behind another microbatch.');
  if (pairs && pp > 1 && chunks === 1)
    throw fault('pair=1 with stages of one chunk', 'write vp=2 or more, or leave pair out.');
  return pairs;
}

/**
 * `4+2x13+5`: layers of each chunk, `NxK` for K chunks of N layers; 0 is embedding or head alone.
 */
function stagesGiven(text: string, chunks: number): number[] {
  const list = text.split('+').flatMap((part) => {
    const [, n, times = '1'] = /^(\d{1,4})(?:x([1-9]\d{0,3}))?$/.exec(part) ?? [];
    if (n === undefined)
      throw fault(
        `stages=${text}`,
        'write the layers of each part, such as stages=4+2x13+5 (2x13: thirteen parts of 2).',
      );
    return Array.from({ length: Number(times) }, () => Number(n));
  });
  if (list.length !== chunks)
    throw fault(
      `stages has ${list.length} parts, and pp x vp is ${chunks}`,
      'each chunk of each stage is a part, in the order of the model.',
    );
  if (chunks === 1)
    throw fault(`stages=${text} without pp`, 'write pp=2 or more, or leave stages out.');
  if (list.some((n, k) => n === 0 && k > 0 && k < chunks - 1))
    throw fault(
      `stages=${text}: a part without layers`,
      'only the first and the last part hold something else.',
    );
  return list;
}

/** ZeRO's stage as the mode of the data ranks. */
function modeOf(stage: string, replicas: number, ranks: number): StateMode {
  const modes = ['dp', 'zero1', 'zero2', 'fsdp'] as const;
  if (!/^[0-3]$/.test(stage))
    throw fault(`zero=${stage} is not a stage`, 'ZeRO has stages 0, 1, 2 and 3.');
  if (replicas > 1) {
    if (stage !== '3')
      throw fault(
        `dp_replicate=${replicas} with zero=${stage}`,
        'replicas of shards (HSDP) need zero=3.',
      );
    return 'hsdp';
  }
  return ranks === 1 ? 'dp' : modes[Number(stage)];
}

/**
 * A policy, or modules joined by `+`; `core` is Megatron's selective recomputation, of attention
 * alone.
 */
function recomputed(text: string): Checkpoint {
  const policy = POLICIES.find((name) => name === text);
  if (policy !== undefined) return policy;
  if (text === 'core') return 'core_attn';
  const modules = text.split('+').map((name) => {
    const found = RECOMPUTE_MODULES.find((known) => known === name);
    if (found === undefined)
      throw fault(
        `recompute=${text}`,
        suggestion(name, [...POLICIES, ...RECOMPUTE_MODULES], 'values'),
      );
    return found;
  });
  return moduleSet(modules);
}

function word<T extends string>(
  given: Settings,
  key: string,
  known: readonly T[],
  otherwise: T,
): T {
  const value = given.get(key) ?? otherwise;
  const found = known.find((name) => name === value);
  if (found === undefined) throw fault(`${key}=${value}`, suggestion(value, [...known], 'values'));
  return found;
}

function fault(what: string, hint: string): ShardwrightError {
  return new ShardwrightError('E_USAGE', `--layout: ${what}`, { hint });
}
