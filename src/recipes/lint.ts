/**
 * Checks a recipe on a mesh before it is planned: takes axis sizes, a model and a cluster, gives
 * findings (error, warning, info) in the order of their codes.
 */

import { checkKinds } from '../arguments.ts';
import { divisors } from '../divisors.ts';
import { ShardwrightError } from '../errors.ts';
import { bytesText } from '../units.ts';
import { expertGroups, fillSizes, type FoldedSizes, foldProblem } from './expert-mesh.ts';
import type { ModelFacts } from './inputs/model-facts.ts';
import type { NamedRecipe } from './registry.ts';

/**
 * A finding of the linter about a plan: an error stops it, a warning costs something, an info
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
  checkKinds('lint', { input: [input, ['sizes', 'facts', 'devicesPerHost']] });
  const out: Finding[] = [];
  const sayer =
    (code: string): Say =>
    (severity, message, values, nearest = []) =>
      void out.push({ code, severity, message, values, nearest });
  const plan = filled(input, sayer('ZL01'));
  if (plan === undefined) return out;
  for (const [code, rule] of RULES) rule(plan, sayer(code));
  return out;
}

type Say = (
  severity: Finding['severity'],
  message: string,
  values: Record<string, number>,
  nearest?: readonly number[],
) => void;

/** A plan whose sizes are all known. */
interface FilledPlan extends Omit<LintInput, 'sizes'> {
  /** Sizes as they were asked for. */
  readonly asked: LintInput['sizes'];
  readonly pp: number;
  readonly dpReplicate: number;
  readonly dpShard: number;
  readonly cp: number;
  readonly tp: number;
  readonly ulysses: number;
  readonly ep: number;
  readonly etp: number;
  readonly microbatch: number;
  readonly virtualStages: number;
}

/** A rule says what it finds in a plan under its own code. */
type Rule = (plan: FilledPlan, say: Say) => void;

const RULES: readonly (readonly [code: string, rule: Rule])[] = [
  ['ZL02', lintBatch],
  ['ZL03', lintWidths],
  ['ZL04', lintKeyHeads],
  ['ZL05', lintUlysses],
  ['ZL06', lintSequence],
  ['ZL07', lintVocabulary],
  ['ZL08', lintExperts],
  ['ZL09', lintStages],
  ['ZL10', lintBubble],
  ['ZL11', lintHosts],
  ['ZL13', lintIdleAxes],
  ['ZL14', lintTiedEmbedding],
  ['ZL15', lintBudget],
  ['ZL16', lintExpertHosts],
];

/** The plan without sizes of -1; undefined where they do not multiply to the devices. */
function filled(input: LintInput, say: Say): FilledPlan | undefined {
  const { sizes: asked, ...others } = input;
  const { ulysses = 1, ep = 1, etp = 1, microbatch = 1, virtualStages = 1 } = input;
  const given = LINT_AXES.map((axis) => asked[axis] ?? 1);
  const product = given.reduce((a, b) => (b === -1 ? a : a * b), ulysses);
  const devices = input.devices ?? product;
  let sizes: Map<string, number>;
  try {
    if (devices % ulysses !== 0)
      throw new ShardwrightError('E_MESH', `sp ${ulysses} does not divide ${devices} devices`);
    sizes = fillSizes(LINT_AXES, asked, devices / ulysses);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    say('error', error.message, { devices, product }, multiples(devices, product));
    return undefined;
  }
  const [pp, dpReplicate, dpShard, cp, tp] = LINT_AXES.map((axis) => sizes.get(axis) ?? 1);
  const axes = { pp, dpReplicate, dpShard, cp, tp };
  return { ...others, ...axes, asked, ulysses, ep, etp, microbatch, virtualStages };
}

/** The global batch divides into whole microbatches of all data ranks. */
function lintBatch(
  { facts: { batch }, dpReplicate, dpShard, microbatch }: FilledPlan,
  say: Say,
): void {
  const dataRanks = dpReplicate * dpShard;
  const step = dataRanks * microbatch;
  if (batch === undefined || (dataRanks <= batch && batch % step === 0)) return;
  const why =
    dataRanks > batch
      ? `${dataRanks} data ranks are more than the global batch of ${batch}`
      : `global batch ${batch} mod ${step} (data ranks x microbatch) is ${batch % step}`;
  say('error', why, { batch, dataRanks, microbatch }, multiples(batch, step));
}

/** Heads and columns of the MLP divide over tp. */
function lintWidths({ facts: { heads, mlpWidth }, tp }: FilledPlan, say: Say): void {
  for (const [name, value] of [
    ['heads', heads],
    ['MLP width', mlpWidth],
  ] as const)
    if (value !== undefined && value % tp !== 0)
      say(
        'error',
        `${name} ${value} mod tp ${tp} is ${value % tp}`,
        { [name]: value, tp },
        near(divisors(value), tp),
      );
}

/** KV heads divide over tp, or tp over them. */
function lintKeyHeads({ facts: { kvHeads }, tp }: FilledPlan, say: Say): void {
  sayCopies(kvHeads, tp, 'tp', say);
}

/** Heads divide over the ranks of sp and tp, between which Ulysses exchanges them. */
function lintUlysses({ facts: { heads, kvHeads }, ulysses, tp }: FilledPlan, say: Say): void {
  if (ulysses <= 1) return;
  const ways = ulysses * tp;
  if (heads !== undefined && heads % ways !== 0)
    say(
      'error',
      `heads ${heads} mod ${ways} (sp x tp) is ${heads % ways}`,
      { heads, sp: ulysses, tp },
      near(divisors(heads), ways),
    );
  else sayCopies(kvHeads, ways, 'sp x tp', say);
}

/** Says what becomes of KV heads that do not divide over so many ranks. */
function sayCopies(kvHeads: number | undefined, ways: number, name: string, say: Say): void {
  if (kvHeads === undefined || kvHeads % ways === 0) return;
  const copies = ways / kvHeads;
  if (ways % kvHeads === 0)
    say('warn', `${ways} ${name} ranks for ${kvHeads} KV heads: each is kept ${copies} times`, {
      kvHeads,
      [name]: ways,
      copies,
    });
  else
    say(
      'error',
      `KV heads ${kvHeads} mod ${name} ${ways} is ${kvHeads % ways}, and the other way ` +
        `${ways % kvHeads}`,
      { kvHeads, [name]: ways },
      near(divisors(kvHeads), ways),
    );
}

/** The sequence divides over all axes that cut it. */
function lintSequence(plan: FilledPlan, say: Say): void {
  const { sequence, decoderLayers } = plan.facts;
  const { cp, tp } = plan;
  if (decoderLayers !== undefined && cp * plan.ulysses > 1)
    say(
      'error',
      'a cut sequence has no price where a decoder reads that of an encoder',
      { cp, decoderLayers },
      [1],
    );
  if (sequence === undefined) return;
  const parts = cp * plan.ulysses * (plan.sequenceParallel === true ? tp : 1);
  const ways = parts * (plan.balancedContext === true && cp > 1 ? 2 : 1);
  if (ways > 1 && sequence % ways !== 0)
    say(
      'error',
      `sequence ${sequence} mod ${ways} is ${sequence % ways}`,
      { sequence, ways, cp, tp },
      multiples(sequence, ways),
    );
}

/** Rows of the embedding divide over tp, or some rank holds more than others. */
function lintVocabulary({ facts: { vocabulary }, tp }: FilledPlan, say: Say): void {
  if (vocabulary === undefined || vocabulary % tp === 0) return;
  const padded = Math.ceil(vocabulary / tp) * tp;
  say(
    'warn',
    `vocabulary ${vocabulary} mod tp ${tp} is ${vocabulary % tp}: the largest rank holds ` +
      `${padded / tp} rows, as if it were ${padded}`,
    { vocabulary, tp, padded },
    [padded],
  );
}

/** Experts and their columns divide, and their groups fold over the axes of the data. */
function lintExperts(plan: FilledPlan, say: Say): void {
  const { ep, etp } = plan;
  const { experts, expertWidth } = plan.facts;
  if (ep === 1 && etp === 1) return;
  for (const [name, value] of [
    ['ep', ep],
    ['etp', etp],
  ] as const) {
    if (Number.isSafeInteger(value) && value >= 1) continue;
    const why = `'${name}' has size ${value}, expected an integer of at least 1`;
    return say('error', why, { [name]: value }, [1]);
  }
  if (experts !== undefined && experts % ep !== 0)
    say(
      'error',
      `experts ${experts} mod ep ${ep} is ${experts % ep}`,
      { experts, ep },
      near(divisors(experts), ep),
    );
  if (expertWidth !== undefined && expertWidth % etp !== 0)
    say(
      'error',
      `expert width ${expertWidth} mod etp ${etp} is ${expertWidth % etp}`,
      { expertWidth, etp },
      near(divisors(expertWidth), etp),
    );
  lintExpertGroups(plan, say);
}

/** Groups of ep and etp fold over the axes of the data. */
function lintExpertGroups({ dpShard, ulysses, tp, ep, etp, ...plan }: FilledPlan, say: Say): void {
  // Ranks of Ulysses have tokens of their own, as those of cp have.
  const sizes: FoldedSizes = { shard: dpShard, cp: plan.cp * ulysses, tp };
  const { experts } = plan.facts;
  const found = foldProblem(sizes, ep, etp);
  if (found === undefined) return;
  const why = `expert groups of ep ${ep} with etp ${etp} do not fold: ${found}`;
  const values = { dp_shard: dpShard, cp: sizes.cp, tp, ep, etp };
  const valid = expertGroups(sizes, etp).filter((n) => experts === undefined || experts % n === 0);
  const etps = divisors(dpShard * sizes.cp * tp);
  if (valid.length > 0)
    say('error', `${why}; valid values of ep: ${valid.join(', ')}`, values, near(valid, ep));
  else
    say(
      'error',
      `${why}; no ep fits, valid values of etp: ${etps.join(', ')}`,
      values,
      near(etps, etp),
    );
}

/** Each stage has a layer, and an interleaved schedule whole rounds of microbatches. */
function lintStages(plan: FilledPlan, say: Say): void {
  const { pp, microbatches, virtualStages } = plan;
  const { layers, decoderLayers } = plan.facts;
  const stages = pp * virtualStages;
  if (decoderLayers !== undefined && stages > 1)
    say(
      'error',
      `${stages} stages of an encoder and a decoder have no price: each stage of the decoder ` +
        'would need what the encoder gives',
      { stages, decoderLayers },
      [1],
    );
  if (layers !== undefined && layers < stages)
    say(
      'error',
      `${layers} layers for ${stages} stages`,
      { layers, stages },
      near(divisors(layers), pp),
    );
  if (virtualStages > 1 && microbatches !== undefined && microbatches % pp !== 0)
    say(
      'error',
      `the interleaved schedule needs microbatches in multiples of pp: ${microbatches} mod ` +
        `${pp} is ${microbatches % pp}`,
      { microbatches, pp },
      multiples(microbatches, pp),
    );
}

/** A pipeline has a microbatch for each stage and equal stages, or its devices wait. */
function lintBubble(plan: FilledPlan, say: Say): void {
  const { pp, microbatches } = plan;
  const { layers } = plan.facts;
  const stages = pp * plan.virtualStages;
  if (microbatches !== undefined && microbatches < pp)
    say(
      'warn',
      `${microbatches} microbatches for ${pp} stages: about half of the step or more is bubble`,
      { microbatches, pp },
      [pp],
    );
  if (layers !== undefined && layers >= stages && layers % stages !== 0)
    say(
      'warn',
      `${layers} layers over ${stages} stages are uneven`,
      { layers, stages },
      near(divisors(layers), pp),
    );
}

/** Groups of tp and sp lie within a host. */
function lintHosts({ strides, tp, ulysses, devicesPerHost }: FilledPlan, say: Say): void {
  for (const [axis, ways, stride] of [
    ['tp', tp, strides?.tp ?? 1],
    ['sp', ulysses, strides?.sp ?? tp],
  ] as const)
    if (ways > 1 && (stride * ways > devicesPerHost || devicesPerHost % (stride * ways) !== 0))
      say(
        'warn',
        `${axis} groups of ${ways} span hosts of ${devicesPerHost} devices` +
          (stride === 1 ? '' : `: their ranks are ${stride} devices apart`),
        { [axis]: ways, devicesPerHost },
        near(
          divisors(devicesPerHost).filter((n) => devicesPerHost % (stride * n) === 0),
          ways,
        ),
      );
}

/** Every axis and part of the plan does something. */
function lintIdleAxes({ sequenceParallel, tp, asked }: FilledPlan, say: Say): void {
  if (sequenceParallel === true && tp === 1)
    say('info', 'sequence parallelism without tensor parallelism does nothing', { tp });
  for (const axis of LINT_AXES)
    if (asked[axis] === 1)
      say('info', `${axis} has size 1: the plan without it is the same`, { [axis]: 1 });
}

/** A tied embedding lies on two stages. */
function lintTiedEmbedding({ facts: { tied }, pp }: FilledPlan, say: Say): void {
  if (tied === true && pp > 1)
    say(
      'warn',
      'the tied embedding is on the first and the last stage, which all-reduce its gradient',
      { pp },
    );
}

/** The predicted peak is in the budget, and not close below it. */
function lintBudget({ peakBytes, budgetBytes }: FilledPlan, say: Say): void {
  if (peakBytes === undefined || budgetBytes === undefined) return;
  const values = { peakBytes, budgetBytes };
  if (peakBytes > budgetBytes)
    say('error', `${bytesText(peakBytes - budgetBytes)} over the budget`, values);
  else if (peakBytes > 0.9 * budgetBytes)
    say('warn', `${((100 * peakBytes) / budgetBytes).toFixed(1)} % of the budget`, values);
}

/** Groups of experts lie within a host; devices that cut an expert are next to each other. */
function lintExpertHosts({ ep, etp, devicesPerHost }: FilledPlan, say: Say): void {
  if (ep > 1 && ep * etp > devicesPerHost)
    say('info', `ep groups of ${ep} span hosts: tokens go over the scale-out network`, {
      ep,
      devicesPerHost,
    });
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
  checkKinds('lintPlan', {
    recipe: [recipe, ['name', 'axes', 'shards']],
    sizes: [sizes, 'integers'],
    facts: [facts, 'record'],
    devicesPerHost: [devicesPerHost, 'number'],
    more: [more, 'record', 'undefined'],
  });
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
  const strides = stridesOf(recipe.axes, sizes, order, more.devices);
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

/** By axis: the distance of neighbours along it, in devices. */
function stridesOf(
  axes: readonly string[],
  sizes: readonly number[],
  order: readonly string[],
  devices: number | undefined,
): Record<string, number> {
  const stated = sizes.reduce((n, size) => (size > 0 ? n * size : n), 1);
  // A size of -1 takes the devices that are left.
  const left = Math.max(1, Math.floor((devices ?? stated) / stated));
  const strides: Record<string, number> = {};
  order.reduceRight((inside, axis) => {
    const size = sizes[axes.indexOf(axis)];
    strides[axis] = inside;
    return inside * (size > 0 ? size : left);
  }, 1);
  return strides;
}

/** Multiples of a number beside a value: the one below, if it is positive, and the one above. */
function multiples(value: number, of: number): number[] {
  if (of < 1) return [];
  const below = Math.floor(value / of) * of;
  return below > 0 ? [below, below + of] : [of];
}

/** The largest candidate below the value and the smallest above. */
function near(candidates: readonly number[], value: number): number[] {
  const below = candidates.filter((c) => c < value).at(-1);
  const above = candidates.find((c) => c > value);
  return [below, above].flatMap((c) => (c === undefined ? [] : [c]));
}
