/**
 * Answers how a model is served: the latency, the throughput and the memory of every layout of some
 * devices, for prompts and answers of given lengths. Requests come as fast as they are answered:
 * all that are asked for, or that fit, run at once, and a new prompt takes the place of a request
 * that ends (continuous batching, Orca, OSDI 2022).
 */

import { type Cluster, usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import type { Price } from '../../cost/hardware/operation.ts';
import { collectiveModel } from '../../cost/presets/presets.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { parseModelConfig } from '../../models/families.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { meshOf, servingLayouts } from './layouts.ts';
import { type PassPrice, PassPricer } from './pass-price.ts';
import type { InferenceQuestion, ServingSizes } from './question.ts';

/** One layout with what it serves; seconds and bytes are those of the slowest and fullest stage. */
export interface ServedLayout extends ServingSizes {
  readonly name: string;
  readonly mesh: string;
  /** Requests at once on all devices, and on one data rank. */
  readonly requests: number;
  readonly requestsPerReplica: number;
  /** The most requests that fit on all devices. */
  readonly mostRequests: number;
  /** From a prompt that does not wait to its first token. */
  readonly firstTokenSeconds: number;
  /** Between two tokens of a request, the prompts that others begin with among them. */
  readonly outputTokenSeconds: number;
  /** The same without prompts. */
  readonly decodeSeconds: number;
  /** The same of a request that has its devices for itself. */
  readonly aloneSeconds: number;
  /** Share of `decodeSeconds` that is communication. */
  readonly communicationShare: number;
  /** Generated tokens in a second, on all devices. */
  readonly tokensPerSecond: number;
  readonly tokensPerSecondPerDevice: number;
  readonly peakBytes: number;
  readonly weightBytes: number;
  readonly cacheBytes: number;
  readonly workspaceBytes: number;
  /** Cache of one request at its end, on one device. */
  readonly requestCacheBytes: number;
  readonly fits: boolean;
  /** True if the limits of the question are kept. */
  readonly keepsLimits: boolean;
  /** Money for a million generated tokens. */
  readonly pricePerMillionTokens?: Price;
}

/**
 * The answer: `best` generates the most tokens in a second, `fastest` a token of one request in the
 * least time.
 */
export interface InferenceAnswer {
  readonly model: string;
  readonly cluster: string;
  readonly accelerator: string;
  readonly devices: number;
  readonly prompt: number;
  readonly generated: number;
  readonly weights: InferenceQuestion['weights'];
  readonly cache: InferenceQuestion['cache'];
  /** True if the model routes tokens to experts. */
  readonly experts: boolean;
  readonly limits: {
    readonly requests: number | null;
    readonly firstTokenSeconds: number | null;
    readonly outputTokenSeconds: number | null;
  };
  readonly budgetBytes: number;
  readonly cost: string;
  readonly plans: readonly ServedLayout[];
  readonly refused: readonly { readonly mesh: string; readonly reason: string }[];
  readonly best: string | null;
  readonly fastest: string | null;
  /** Names of the plans that no other beats in tokens a second and in seconds a token. */
  readonly pareto: readonly string[];
  /** Measured runs back no range. */
  readonly stepBand: null;
}

/** @throws E_USAGE, E_UNSUPPORTED, E_CLUSTER for a question that has no answer */
export async function inference(
  question: InferenceQuestion,
  table: OperatorTable,
  onProgress?: (line: string) => void,
): Promise<InferenceAnswer> {
  const config = parseModelConfig(question.config);
  const cluster = loadCluster(question.cluster);
  const { positions } = config.architecture.shape;
  const longest = question.prompt + question.generated;
  if (positions !== undefined && longest > positions)
    throw new ShardwrightError(
      'E_USAGE',
      `${longest} tokens of prompt and answer, and the model has ${positions} positions`,
      { hint: 'ask for a shorter --prompt or less to --generate.' },
    );
  const layouts = servingLayouts(config.architecture, question.devices, question.layout);
  if (layouts.length === 0)
    throw new ShardwrightError('E_USAGE', 'no layout of these devices is left', {
      hint: 'dp * pp * tp are the devices, tp divides the heads, ep is tp times a divisor of dp.',
    });
  const serving = new Serving(question, new PassPricer(question, config, cluster, table), cluster);
  const plans: ServedLayout[] = [];
  const refused: { mesh: string; reason: string }[] = [];
  for (const sizes of layouts) {
    onProgress?.(`pricing ${meshOf(sizes)}`);
    const found = await serving.layout(sizes);
    if ('refused' in found) refused.push({ mesh: meshOf(sizes), reason: found.refused });
    else plans.push(found);
  }
  const experts = config.architecture.routed !== undefined;
  return concluded(question, cluster, serving, { plans, refused, experts });
}

function concluded(
  question: InferenceQuestion,
  cluster: Cluster,
  { budgetBytes, preset }: Serving,
  found: Pick<InferenceAnswer, 'plans' | 'refused' | 'experts'>,
): InferenceAnswer {
  const rank = (p: ServedLayout): number => Number(p.fits) + Number(p.fits && p.keepsLimits);
  const plans = [...found.plans].sort(
    (a, b) => rank(b) - rank(a) || b.tokensPerSecond - a.tokensPerSecond,
  );
  const served = plans.filter((p) => p.fits && p.keepsLimits);
  const fastest = [...served].sort((a, b) => a.aloneSeconds - b.aloneSeconds);
  const { requests, firstTokenSeconds, outputTokenSeconds } = question;
  return {
    model: question.model,
    cluster: cluster.id,
    accelerator: cluster.accelerator,
    devices: question.devices,
    prompt: question.prompt,
    generated: question.generated,
    weights: question.weights,
    cache: question.cache,
    experts: found.experts,
    limits: {
      requests: requests ?? null,
      firstTokenSeconds: firstTokenSeconds ?? null,
      outputTokenSeconds: outputTokenSeconds ?? null,
    },
    budgetBytes,
    cost: preset,
    plans,
    refused: found.refused,
    best: served[0]?.name ?? null,
    fastest: fastest[0]?.name ?? null,
    pareto: served
      .filter(
        (p) =>
          !served.some(
            (other) =>
              other !== p &&
              other.tokensPerSecond >= p.tokensPerSecond &&
              other.outputTokenSeconds <= p.outputTokenSeconds,
          ),
      )
      .map((p) => p.name),
    stepBand: null,
  };
}

/** A pass by the stages of a pipeline. */
interface StagedPass {
  /** Seconds of each stage, with the message to the next. */
  readonly seconds: readonly number[];
  readonly communicationSeconds: number;
  readonly weightBytes: readonly number[];
  readonly cacheBytes: readonly number[];
  readonly workspaceBytes: number;
}

/** Prices layouts at numbers of requests. */
class Serving {
  readonly budgetBytes: number;
  readonly preset: string;

  constructor(
    private readonly question: InferenceQuestion,
    private readonly pricer: PassPricer,
    private readonly cluster: Cluster,
  ) {
    this.budgetBytes = usableMemoryBytes(cluster, question);
    this.preset = pricer.preset;
  }

  async layout(sizes: ServingSizes): Promise<ServedLayout | { readonly refused: string }> {
    const { prompt, generated } = this.question;
    const read = await this.pass(sizes, { batch: 1, tokens: prompt, held: 0 });
    if ('refused' in read) return read;
    const last = await this.pass(sizes, { batch: 1, tokens: 1, held: prompt + generated - 1 });
    if ('refused' in last) return last;
    const alone = await this.decode(sizes, 1);
    if ('refused' in alone) return alone;
    const fixed = { read, last, alone };
    const most = await this.mostRequests(sizes, fixed);
    const asked = this.question.requests;
    const first = asked === undefined ? Math.max(1, most) : Math.ceil(asked / sizes.dp);
    let found = await this.served(sizes, fixed, { requests: first, most });
    // Fewer requests wait less for each other: powers of two are tried downwards.
    for (
      let fewer = 2 ** Math.ceil(Math.log2(first) - 1);
      asked === undefined && !found.keepsLimits && found.fits && fewer >= 1;
      fewer /= 2
    )
      found = await this.served(sizes, fixed, { requests: Math.floor(fewer), most });
    return found;
  }

  /** The most requests whose caches fit beside weights and workspace, on one data rank. */
  private async mostRequests(sizes: ServingSizes, { last }: FixedPasses): Promise<number> {
    const read = await this.prompts(sizes, Infinity);
    if ('refused' in read) return 0;
    const fit = (workspaceBytes: number): number =>
      Math.min(
        ...last.weightBytes.map((weights, s) =>
          Math.floor(
            (this.budgetBytes - weights - Math.max(workspaceBytes, read.workspaceBytes)) /
              last.cacheBytes[s],
          ),
        ),
      );
    const most = Math.min(fit(0), MOST_REQUESTS);
    if (most < 1) return 0;
    const step = await this.decode(sizes, most);
    return 'refused' in step ? 0 : Math.max(0, Math.min(most, fit(step.workspaceBytes)));
  }

  private async served(
    sizes: ServingSizes,
    { read, last, alone }: FixedPasses,
    { requests, most }: { readonly requests: number; readonly most: number },
  ): Promise<ServedLayout> {
    const { dp, pp } = sizes;
    const { generated, devices, price } = this.question;
    const step = await this.decode(sizes, requests);
    if ('refused' in step) throw new ShardwrightError('E_UNSUPPORTED', step.refused);
    // Stages work on one part of the requests each; a token takes as long as all parts.
    const decodeSeconds = Math.max(sum(step.seconds), pp * Math.max(...step.seconds));
    // A stage is busy with every prompt once, and with every token of the requests at once.
    const prompts = await this.prompts(sizes, requests);
    if ('refused' in prompts) throw new ShardwrightError('E_UNSUPPORTED', prompts.refused);
    const perRequest = prompts.seconds + ((generated - 1) * decodeSeconds) / Math.max(1, requests);
    // Of replicas that are as full as the fullest: what was asked for may leave some of them less.
    const atOnce = Math.min(dp * requests, this.question.requests ?? Infinity);
    const tokensPerSecond = ((atOnce / requests) * generated) / perRequest;
    const outputTokenSeconds = atOnce / tokensPerSecond;
    const firstTokenSeconds = sum(read.seconds);
    const workspaceBytes = Math.max(prompts.workspaceBytes, step.workspaceBytes);
    const stages = last.weightBytes.map((weights, s) => weights + requests * last.cacheBytes[s]);
    const fullest = stages.indexOf(Math.max(...stages));
    const peakBytes = stages[fullest] + workspaceBytes;
    const { firstTokenSeconds: firstLimit, outputTokenSeconds: tokenLimit } = this.question;
    return {
      name: meshOf(sizes),
      mesh: meshOf(sizes),
      ...sizes,
      requests: atOnce,
      requestsPerReplica: requests,
      mostRequests: dp * most,
      firstTokenSeconds,
      outputTokenSeconds,
      decodeSeconds,
      aloneSeconds: sum(alone.seconds),
      communicationShare: step.communicationSeconds / sum(step.seconds),
      tokensPerSecond,
      tokensPerSecondPerDevice: tokensPerSecond / devices,
      peakBytes,
      weightBytes: last.weightBytes[fullest],
      cacheBytes: requests * last.cacheBytes[fullest],
      workspaceBytes,
      requestCacheBytes: last.cacheBytes[fullest],
      fits: requests <= most,
      keepsLimits:
        firstTokenSeconds <= (firstLimit ?? Infinity) &&
        outputTokenSeconds <= (tokenLimit ?? Infinity),
      ...defined({ pricePerMillionTokens: perMillion(price, devices, tokensPerSecond) }),
    };
  }

  /** Seconds of a prompt on the slowest stage: several short ones are read at once. */
  private async prompts(
    sizes: ServingSizes,
    requests: number,
  ): Promise<
    { readonly seconds: number; readonly workspaceBytes: number } | { readonly refused: string }
  > {
    const { prompt } = this.question;
    const batch = Math.max(1, Math.min(requests, Math.floor(PASS_TOKENS / prompt)));
    const pass = await this.pass(sizes, { batch, tokens: prompt, held: 0 });
    if ('refused' in pass) return pass;
    return { seconds: Math.max(...pass.seconds) / batch, workspaceBytes: pass.workspaceBytes };
  }

  /** A token of each of so many requests of a data rank, in the middle of their answers. */
  private decode(
    sizes: ServingSizes,
    requests: number,
  ): Promise<StagedPass | { readonly refused: string }> {
    const { prompt, generated } = this.question;
    const batch = Math.ceil(requests / sizes.pp);
    return this.pass(sizes, { batch, tokens: 1, held: prompt + Math.floor(generated / 2) });
  }

  private async pass(
    sizes: ServingSizes,
    pass: Parameters<PassPricer['price']>[1],
  ): Promise<StagedPass | { readonly refused: string }> {
    const found = await this.pricer.price(sizes, pass);
    return 'refused' in found ? found : this.staged(found, sizes);
  }

  /** Layers in stages of equal number, with what comes before and after them. */
  private staged(price: PassPrice, { pp, tp }: ServingSizes): StagedPass {
    const layers = price.seconds.length - 2;
    const start = (s: number): number => (s === 0 ? 0 : 1 + Math.floor((s * layers) / pp));
    const end = (s: number): number => (s === pp - 1 ? layers + 2 : start(s + 1));
    const stages = Array.from({ length: pp }, (_, s) => [start(s), end(s)] as const);
    const by = (list: readonly number[]): number[] =>
      stages.map(([from, to]) => sum(list.slice(from, to)));
    const mesh = new DeviceMesh([
      { name: 'pp', size: pp },
      { name: 'tp', size: tp },
    ]);
    const collectives = collectiveModel(this.preset, this.cluster, mesh);
    const hops = stages.map(([, to], s) =>
      s === pp - 1
        ? 0
        : collectives.seconds('collective_permute', price.boundaryBytes[to - 1], [0]),
    );
    return {
      seconds: by(price.seconds).map((seconds, s) => seconds + hops[s]),
      communicationSeconds: sum(price.communicationSeconds) + sum(hops),
      weightBytes: by(price.weightBytes),
      cacheBytes: by(price.cacheBytes),
      workspaceBytes: price.workspaceBytes,
    };
  }
}

/** Passes that do not depend on the number of requests. */
interface FixedPasses {
  /** A prompt. */
  readonly read: StagedPass;
  /** The last token of one request. */
  readonly last: StagedPass;
  /** A token in the middle of the answer of one request. */
  readonly alone: StagedPass;
}

/** Tokens of prompts in one pass: the default `max_num_tokens` of TensorRT-LLM 1.0. */
const PASS_TOKENS = 8192;

/** More requests at once are a slip of the keyboard, or a cache of nearly nothing. */
const MOST_REQUESTS = 2 ** 16;

function sum(list: readonly number[]): number {
  return list.reduce((total, one) => total + one, 0);
}

function perMillion(
  price: Price | undefined,
  devices: number,
  tokensPerSecond: number,
): Price | undefined {
  if (price === undefined) return undefined;
  const amount = (price.amount * devices * 1e6) / (3600 * tokensPerSecond);
  return { amount, currency: price.currency };
}
