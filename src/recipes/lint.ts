/**
 * Checks a recipe on a mesh before it is planned: takes axis sizes, a model and a cluster, gives
 * findings (error, warning, info) in the order of their codes.
 */

import { ShardwrightError } from '../errors.ts';
import { bytesText } from '../units.ts';
import { expertGroups, fillSizes, type FoldedSizes, foldProblem } from './expert-mesh.ts';
import type { ModelFacts } from './inputs/model-facts.ts';
import type { NamedRecipe } from './registry.ts';

/**
 * What the linter has to say about a plan: an error stops it, a warning costs something, an info
 * names a simpler plan.
 */
export interface Finding {
  readonly code: string;
  readonly severity: 'error' | 'warn' | 'info';
  readonly message: string;
  /** The numbers that the rule looked at. */
  readonly values: Readonly<Record<string, number>>;
  /** Valid values nearest to the wrong one. */
  readonly nearest: readonly number[];
}

const LINT_AXES = ['pp', 'dp_replicate', 'dp_shard', 'cp', 'tp'] as const;

/** A plan as the linter sees it; sizes that are absent are 1, and one of the axes may be -1. */
export interface LintInput {
  readonly devices?: number;
  readonly sizes: Readonly<Partial<Record<(typeof LINT_AXES)[number], number>>>;
  /** Devices of Ulysses' sequence axis. */
  readonly ulysses?: number;
  readonly ep?: number;
  readonly etp?: number;
  readonly sequenceParallel?: boolean;
  /** Head and tail of the sequence on one device, so that causal work is even. */
  readonly balancedContext?: boolean;
  readonly microbatch?: number;
  readonly microbatches?: number;
  readonly virtualStages?: number;
  readonly facts: ModelFacts;
  readonly devicesPerHost: number;
  /**
   * Devices from one rank of an axis to the next, as the mesh lies over the hosts. Absent: tp is
   * the innermost axis, and sp lies around it.
   */
  readonly strides?: { readonly tp?: number; readonly sp?: number };
  /** Bytes per device that were predicted, and that there are. */
  readonly peakBytes?: number;
  readonly budgetBytes?: number;
}

/** Every finding, in the order of the codes. */
export function lint(input: LintInput): Finding[] {
  const out: Finding[] = [];
  const say = (
    code: string,
    severity: Finding['severity'],
    message: string,
    values: Record<string, number>,
    nearest: readonly number[] = [],
  ): void => void out.push({ code, severity, message, values, nearest });
  const sizes = filled(input, say);
  if (sizes === undefined) return out;
  const size = (axis: (typeof LINT_AXES)[number]): number => sizes.get(axis) ?? 1;
  const [pp, replicas, shards, cp, tp] = LINT_AXES.map(size);
  const {
    facts,
    ulysses = 1,
    microbatch = 1,
    ep = 1,
    etp = 1,
    virtualStages = 1,
    microbatches,
    devicesPerHost,
  } = input;
  const { batch, sequence, heads, kvHeads, mlpWidth, vocabulary, layers, tied } = facts;

  const data = replicas * shards;
  if (batch !== undefined && (data > batch || batch % (data * microbatch) !== 0)) {
    const step = data * microbatch;
    const why =
      data > batch
        ? `${data} data ranks are more than the global batch of ${batch}`
        : `global batch ${batch} mod ${step} (data ranks x microbatch) is ${batch % step}`;
    say('ZL02', 'error', why, { batch, dataRanks: data, microbatch }, multiples(batch, step));
  }
  for (const [name, value] of [
    ['heads', heads],
    ['MLP width', mlpWidth],
  ] as const)
    if (value !== undefined && value % tp !== 0)
      say(
        'ZL03',
        'error',
        `${name} ${value} mod tp ${tp} is ${value % tp}`,
        { [name]: value, tp },
        near(divisors(value), tp),
      );
  const keyHeads = (code: string, ways: number, name: string): void => {
    if (kvHeads === undefined || kvHeads % ways === 0) return;
    if (ways % kvHeads === 0)
      say(
        code,
        'warn',
        `${ways} ${name} ranks for ${kvHeads} KV heads: each is kept ${ways / kvHeads} times`,
        {
          kvHeads,
          [name]: ways,
          copies: ways / kvHeads,
        },
      );
    else
      say(
        code,
        'error',
        `KV heads ${kvHeads} mod ${name} ${ways} is ${kvHeads % ways}, and the other way ` +
          `${ways % kvHeads}`,
        { kvHeads, [name]: ways },
        near(divisors(kvHeads), ways),
      );
  };
  keyHeads('ZL04', tp, 'tp');
  if (ulysses > 1) {
    const ways = ulysses * tp;
    if (heads !== undefined && heads % ways !== 0)
      say(
        'ZL05',
        'error',
        `heads ${heads} mod ${ways} (sp x tp) is ${heads % ways}`,
        { heads, sp: ulysses, tp },
        near(divisors(heads), ways),
      );
    else keyHeads('ZL05', ways, 'sp x tp');
  }
  if (sequence !== undefined) {
    const parts = cp * ulysses * (input.sequenceParallel === true ? tp : 1);
    const ways = parts * (input.balancedContext === true && cp > 1 ? 2 : 1);
    if (ways > 1 && sequence % ways !== 0)
      say(
        'ZL06',
        'error',
        `sequence ${sequence} mod ${ways} is ${sequence % ways}`,
        { sequence, ways, cp, tp },
        multiples(sequence, ways),
      );
  }
  if (vocabulary !== undefined && vocabulary % tp !== 0) {
    const padded = Math.ceil(vocabulary / tp) * tp;
    say(
      'ZL07',
      'warn',
      `vocabulary ${vocabulary} mod tp ${tp} is ${vocabulary % tp}: the largest rank holds ` +
        `${padded / tp} rows, as if it were ${padded}`,
      { vocabulary, tp, padded },
      [padded],
    );
  }
  // Ranks of Ulysses have tokens of their own, as those of cp have.
  lintExperts({ shard: shards, cp: cp * ulysses, tp }, facts, ep, etp, say);
  if (layers !== undefined && layers < pp * virtualStages)
    say(
      'ZL09',
      'error',
      `${layers} layers for ${pp * virtualStages} stages`,
      { layers, stages: pp * virtualStages },
      near(divisors(layers), pp),
    );
  if (virtualStages > 1 && microbatches !== undefined && microbatches % pp !== 0)
    say(
      'ZL09',
      'error',
      `the interleaved schedule needs microbatches in multiples of pp: ${microbatches} mod ` +
        `${pp} is ${microbatches % pp}`,
      { microbatches, pp },
      multiples(microbatches, pp),
    );
  if (microbatches !== undefined && microbatches < pp)
    say(
      'ZL10',
      'warn',
      `${microbatches} microbatches for ${pp} stages: about half of the step or more is bubble`,
      { microbatches, pp },
      [pp],
    );
  if (layers !== undefined && layers >= pp * virtualStages && layers % (pp * virtualStages) !== 0)
    say(
      'ZL10',
      'warn',
      `${layers} layers over ${pp * virtualStages} stages are uneven`,
      { layers, stages: pp * virtualStages },
      near(divisors(layers), pp),
    );
  const { strides } = input;
  for (const [axis, ways, stride] of [
    ['tp', tp, strides?.tp ?? 1],
    ['sp', ulysses, strides?.sp ?? tp],
  ] as const)
    if (ways > 1 && (stride * ways > devicesPerHost || devicesPerHost % (stride * ways) !== 0))
      say(
        'ZL11',
        'warn',
        `${axis} groups of ${ways} span hosts of ${devicesPerHost} devices` +
          (stride === 1 ? '' : `: their ranks are ${stride} devices apart`),
        { [axis]: ways, devicesPerHost },
        near(
          divisors(devicesPerHost).filter((n) => devicesPerHost % (stride * n) === 0),
          ways,
        ),
      );
  if (input.sequenceParallel === true && tp === 1)
    say('ZL13', 'info', 'sequence parallelism without tensor parallelism does nothing', { tp });
  for (const axis of LINT_AXES)
    if (input.sizes[axis] === 1)
      say('ZL13', 'info', `${axis} has size 1: the plan without it is the same`, { [axis]: 1 });
  if (tied === true && pp > 1)
    say(
      'ZL14',
      'warn',
      'the tied embedding is on the first and the last stage, which all-reduce its gradient',
      { pp },
    );
  const { peakBytes, budgetBytes } = input;
  if (peakBytes !== undefined && budgetBytes !== undefined) {
    if (peakBytes > budgetBytes)
      say('ZL15', 'error', `${bytesText(peakBytes - budgetBytes)} over the budget`, {
        peakBytes,
        budgetBytes,
      });
    else if (peakBytes > 0.9 * budgetBytes)
      say('ZL15', 'warn', `${((100 * peakBytes) / budgetBytes).toFixed(1)} % of the budget`, {
        peakBytes,
        budgetBytes,
      });
  }
  // Devices that cut an expert are next to each other, inside a group.
  if (ep > 1 && ep * etp > devicesPerHost)
    say('ZL16', 'info', `ep groups of ${ep} span hosts: tokens go over the scale-out network`, {
      ep,
      devicesPerHost,
    });
  return out.sort((a, b) => (a.code < b.code ? -1 : a.code > b.code ? 1 : 0));
}

type Say = (
  code: string,
  severity: Finding['severity'],
  message: string,
  values: Record<string, number>,
  nearest?: readonly number[],
) => void;

/** The sizes without -1, or a ZL01. */
function filled(input: LintInput, say: Say): Map<string, number> | undefined {
  const { ulysses = 1 } = input;
  const given = LINT_AXES.map((axis) => input.sizes[axis] ?? 1);
  const product = given.reduce((a, b) => (b === -1 ? a : a * b), ulysses);
  const devices = input.devices ?? product;
  try {
    if (devices % ulysses !== 0)
      throw new ShardwrightError('E_MESH', `sp ${ulysses} does not divide ${devices} devices`);
    return fillSizes(LINT_AXES, input.sizes, devices / ulysses);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    say('ZL01', 'error', error.message, { devices, product }, multiples(devices, product));
    return undefined;
  }
}

function lintExperts(
  sizes: FoldedSizes,
  { experts, expertWidth }: ModelFacts,
  ep: number,
  etp: number,
  say: Say,
): void {
  if (ep === 1 && etp === 1) return;
  for (const [name, value] of [
    ['ep', ep],
    ['etp', etp],
  ] as const) {
    if (Number.isSafeInteger(value) && value >= 1) continue;
    say(
      'ZL08',
      'error',
      `'${name}' has size ${value}, expected an integer of at least 1`,
      { [name]: value },
      [1],
    );
    return;
  }
  if (experts !== undefined && experts % ep !== 0)
    say(
      'ZL08',
      'error',
      `experts ${experts} mod ep ${ep} is ${experts % ep}`,
      { experts, ep },
      near(divisors(experts), ep),
    );
  if (expertWidth !== undefined && expertWidth % etp !== 0)
    say(
      'ZL08',
      'error',
      `expert width ${expertWidth} mod etp ${etp} is ${expertWidth % etp}`,
      { expertWidth, etp },
      near(divisors(expertWidth), etp),
    );
  const { shard, cp, tp } = sizes;
  const found = foldProblem(sizes, ep, etp);
  if (found === undefined) return;
  const why = `expert groups of ep ${ep} with etp ${etp} do not fold: ${found}`;
  const values = { dp_shard: shard, cp, tp, ep, etp };
  const valid = expertGroups(sizes, etp).filter((n) => experts === undefined || experts % n === 0);
  const etps = divisors(shard * cp * tp);
  if (valid.length > 0)
    say(
      'ZL08',
      'error',
      `${why}; valid values of ep: ${valid.join(', ')}`,
      values,
      near(valid, ep),
    );
  else
    say(
      'ZL08',
      'error',
      `${why}; no ep fits, valid values of etp: ${etps.join(', ')}`,
      values,
      near(etps, etp),
    );
}

/** A recipe on a mesh: `sizes` of its axes, outermost first. */
export function lintPlan(
  recipe: NamedRecipe,
  sizes: readonly number[],
  facts: ModelFacts,
  devicesPerHost: number,
  more: Partial<
    Pick<
      LintInput,
      | 'microbatch'
      | 'microbatches'
      | 'virtualStages'
      | 'balancedContext'
      | 'peakBytes'
      | 'budgetBytes'
      | 'devices'
    >
  > & {
    /** Axes of the recipe in the order of the mesh, outermost first; absent: in its own. */
    readonly order?: readonly string[];
  } = {},
): Finding[] {
  const own: Partial<Record<(typeof LINT_AXES)[number], number>> = {};
  let ulysses = 1;
  let ep = 1;
  recipe.axes.forEach((axis, d) => {
    const size = sizes[d];
    if (axis === 'sp') ulysses = size;
    // Experts lie over devices that hold other samples, so their axis is also one of data.
    else if (axis === 'ep') [ep, own.dp_shard] = [size, size];
    else if (axis === 'dp') own[recipe.axes.includes('ep') ? 'dp_replicate' : 'dp_shard'] = size;
    else own[axis as (typeof LINT_AXES)[number]] = size;
  });
  const sequenceParallel = recipe.parts?.includes('tensor-sequence') === true;
  const etp = recipe.parts?.includes('tensor-expert') === true ? (own.tp ?? 1) : 1;
  const { order = recipe.axes, ...others } = more;
  const stated = sizes.reduce((n, size) => (size > 0 ? n * size : n), 1);
  // A size of -1 takes the devices that are left.
  const left = Math.max(1, Math.floor((more.devices ?? stated) / stated));
  const strides: Record<string, number> = {};
  order.reduceRight((inside, axis) => {
    const size = sizes[recipe.axes.indexOf(axis)];
    strides[axis] = inside;
    return inside * (size > 0 ? size : left);
  }, 1);
  return lint({
    sizes: own,
    ulysses,
    ep,
    etp,
    sequenceParallel,
    facts,
    devicesPerHost,
    strides,
    ...others,
  });
}

/** Multiples of a number beside a value: the one below, if it is positive, and the one above. */
function multiples(value: number, of: number): number[] {
  if (of < 1) return [];
  const below = Math.floor(value / of) * of;
  return below > 0 ? [below, below + of] : [of];
}

function divisors(n: number): number[] {
  const small: number[] = [];
  for (let d = 1; d * d <= n; d++) if (n % d === 0) small.push(d);
  const large = small.map((d) => n / d).reverse();
  return [...new Set([...small, ...large])];
}

/** The largest candidate below the value and the smallest above. */
function near(candidates: readonly number[], value: number): number[] {
  const below = candidates.filter((c) => c < value).at(-1);
  const above = candidates.find((c) => c > value);
  return [below, above].flatMap((c) => (c === undefined ? [] : [c]));
}
