/**
 * Prices one pass of a model that serves, on the devices of one pipeline in a layout: seconds and
 * bytes of every unit of the model, from programs of representative layers.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { defaultCostPreset } from '../../cost/presets/presets.ts';
import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import { shardCode } from '../../mesh/sharding/space.ts';
import type { ModelConfig } from '../../models/families.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Model } from '../../plan/model/model.ts';
import { prepare } from '../../plan/prepare/prepare.ts';
import { DEFAULT_REQUEST } from '../../plan/request/request.ts';
import type { Restriction } from '../../plan/restrict/restriction.ts';
import { priceRestriction } from '../../recipes/compare/price.ts';
import { applyRecipe } from '../../recipes/recipes.ts';
import { tokenExchange } from '../../step/costs/token-exchange.ts';
import { GroupMaker } from '../../step/data-groups.ts';
import {
  type RoutedCosts,
  routedCosts,
  type RoutedUnit,
  routedUnits,
  withoutRouted,
} from '../../step/read/moe.ts';
import { PlanReader } from '../../step/read/plan-reader.ts';
import type { CoreParameter, CoreUnit } from '../../step/units.ts';
import { withFusedAttention } from '../model/fused-attention.ts';
import { kindsOfProgram, type LayerKinds, ofModel } from '../model/representative-layers.ts';
import { passProgram, type PassSizes } from './program.ts';
import {
  cacheShare,
  type InferenceQuestion,
  type ServingSizes,
  servingSystem,
} from './question.ts';

/**
 * A pass on the devices of one pipeline. Lists have an item for what comes before the layers, one
 * for each layer, and one for what comes after them.
 */
export interface PassPrice {
  readonly seconds: readonly number[];
  /** The part of them that is communication. */
  readonly communicationSeconds: readonly number[];
  /** Bytes that a unit hands to the next. */
  readonly boundaryBytes: readonly number[];
  readonly weightBytes: readonly number[];
  /** Caches of all sequences of the pass. */
  readonly cacheBytes: readonly number[];
  /** The most bytes alive besides weights and caches. */
  readonly workspaceBytes: number;
}

/**
 * Keeps caches cut by their heads where devices cut those evenly. Whole ones cost no more seconds,
 * since a device reads its own heads alone, but as many times the bytes.
 */
function cutCaches(
  { graph, flow, space, strategies, nodeVariable }: Model,
  kept: Restriction,
): void {
  graph.nodes.forEach((node, n) => {
    const entry = strategies.nodes[n];
    if (node.kind !== 'placeholder' || entry === null || !CACHE.test(roleName(node))) return;
    const heads = flow.values[flow.results[n][0]].meta.shape[1];
    if (space.mesh.size === 1 || heads % space.mesh.size !== 0) return;
    kept.keep(
      nodeVariable[n],
      'caches are cut by their heads',
      (a) => space.kindAt(entry.set.specs[a], 0) === shardCode(1),
    );
  });
}

/** The program of a pass without its routed blocks, placed and read. */
interface PlacedPass {
  readonly units: readonly CoreUnit[];
  readonly parameters: readonly CoreParameter[];
}

const CACHE = /\.past_(key|value|latent)$/;

export class PassPricer {
  readonly kinds: LayerKinds;
  readonly preset: string;
  private readonly groups: GroupMaker;
  private readonly placed = new Map<string, Promise<PlacedPass | { readonly refused: string }>>();
  private readonly blocks = new Map<string, RoutedCosts>();

  constructor(
    private readonly question: InferenceQuestion,
    private readonly config: ModelConfig,
    private readonly cluster: Cluster,
    private readonly table: OperatorTable,
  ) {
    this.preset = defaultCostPreset(cluster);
    this.groups = new GroupMaker(this.preset, cluster);
    const one = { batch: 1, tokens: 1, held: question.prompt };
    const deepest = config.architecture.shape.layers;
    this.kinds = kindsOfProgram(config, passProgram(config, one, deepest, table), table);
  }

  /** The pass under a layout, or why there is none. */
  async price(
    sizes: ServingSizes,
    pass: PassSizes,
  ): Promise<PassPrice | { readonly refused: string }> {
    const { tp } = sizes;
    const key = `${tp} ${pass.batch} ${pass.tokens} ${pass.held}`;
    let own = this.placed.get(key);
    if (own === undefined) this.placed.set(key, (own = this.place(tp, pass)));
    const placed = await own;
    if ('refused' in placed) return placed;
    const routed = this.routed(sizes, pass);
    const { units, parameters } = placed;
    const blocks = units.map((_, u) => routed?.block(u));
    const all = <T>(of: (u: number) => T): T[] =>
      ofModel(
        units.map((_, u) => of(u)),
        this.kinds,
      );
    const moved = (u: number): number =>
      units[u].forward.communication + (blocks[u]?.exchangeSeconds ?? 0);
    const weights = [...parameters, ...(routed?.parameters ?? [])];
    return {
      seconds: all(
        (u) => units[u].forward.compute + (blocks[u]?.unit.forwardSeconds ?? 0) + moved(u),
      ),
      communicationSeconds: all(moved),
      boundaryBytes: all((u) => units[u].boundaryBytes),
      weightBytes: all((u) => this.bytesOf(weights, u, sizes)),
      cacheBytes: all((u) => this.shareOf(tp) * this.cacheBytes(parameters, u)),
      workspaceBytes: Math.max(
        ...units.map((unit, u) => unit.temporaryBytes + (blocks[u]?.unit.temporaryBytes ?? 0)),
      ),
    };
  }

  private async place(
    tp: number,
    pass: PassSizes,
  ): Promise<PlacedPass | { readonly refused: string }> {
    const { table, cluster, kinds, question } = this;
    const program = withoutRouted(passProgram(this.config, pass, kinds.depth, table));
    const prepared = prepare(
      withFusedAttention(program, table),
      {
        ...DEFAULT_REQUEST,
        cluster: question.cluster,
        cost: this.preset,
        mesh: `tp=${tp}`,
        optimizer: 'none',
        activations: 'off',
      },
      table,
    );
    const part = tp === 1 ? 'replicate' : 'tensor-whole';
    const applied = applyRecipe(prepared.model, { name: 'tp', parts: [part] });
    if ('refused' in applied) return applied;
    cutCaches(prepared.model, applied.restriction);
    const priced = await priceRestriction(prepared, applied.restriction, undefined, Infinity);
    if ('refused' in priced) return priced;
    const system = servingSystem(cluster, question, {
      isDecode: pass.held > 0,
      cacheShare: this.shareOf(tp),
    });
    const reader = new PlanReader(prepared.model, priced.choice, kinds.shallow, table, { system });
    return { units: reader.units(), parameters: reader.parameters() };
  }

  /**
   * The routed blocks of a pass, with their exchanges: the tokens of a rank are shared out among
   * the devices that cut it, each of which sends its own to the experts; then all gather all.
   */
  private routed(
    sizes: ServingSizes,
    pass: PassSizes,
  ):
    | {
        readonly parameters: readonly CoreParameter[];
        readonly block: (
          unit: number,
        ) => { readonly unit: RoutedUnit; readonly exchangeSeconds: number } | undefined;
      }
    | undefined {
    const { routed } = this.config.architecture;
    if (routed === undefined) return undefined;
    const { tp, ep, pp, dp } = sizes;
    const groups = this.groups.groups({ pp, dp_replicate: 1, dp_shard: dp, cp: 1, tp, ep }, 'cp');
    const costs = this.blockCosts(sizes, pass);
    const found = routedUnits(costs, { ep });
    if (found === undefined) throw internalError(`no price of experts on ${ep} devices`);
    const gathered = groups.dense.mesh.resolve(['tp']);
    return {
      parameters: costs.parameters,
      block: (u) => {
        const unit = found[u];
        if (unit.dispatchBytes === 0) return undefined;
        const way = tokenExchange(groups, unit.dispatchBytes, costs, true);
        const tokens = (tp * unit.dispatchBytes) / costs.active;
        const all = tp === 1 ? 0 : groups.dense.collectives.seconds('all_gather', tokens, gathered);
        return { unit, exchangeSeconds: 2 * way.seconds + all };
      },
    };
  }

  private blockCosts({ tp, ep }: ServingSizes, pass: PassSizes): RoutedCosts {
    const { table, config, cluster, kinds, question, preset } = this;
    const isDecode = pass.held > 0;
    const own = isDecode
      ? { ...pass, batch: Math.ceil(pass.batch / tp) }
      : { ...pass, tokens: Math.ceil(pass.tokens / tp) };
    const key = `${own.batch} ${own.tokens} ${own.held} ${ep}`;
    let found = this.blocks.get(key);
    if (found !== undefined) return found;
    const { routed } = config.architecture;
    if (routed === undefined) throw internalError('a dense model has no experts');
    const graph = passProgram(config, own, kinds.depth, table);
    // Each token meets `active` of the experts, all alike: so many of them are met at all.
    const tokens = own.batch * own.tokens * ep;
    const metShare = 1 - (1 - routed.active / routed.experts) ** tokens;
    found = routedCosts({
      graph,
      phases: graph.nodes.map(() => 'forward'),
      layers: kinds.shallow,
      table,
      cluster,
      preset,
      system: servingSystem(cluster, question, { isDecode }),
      optimizer: 'none',
      experts: routed.experts,
      active: routed.active,
      ...defined({ limit: routed.groups }),
      folds: [{ ep, etp: 1 }],
      metShare,
    });
    this.blocks.set(key, found);
    return found;
  }

  /** Bytes of the weights of a unit on a device. */
  private bytesOf(
    parameters: readonly CoreParameter[],
    unit: number,
    { ep }: ServingSizes,
  ): number {
    const { weightBytes } = servingSystem(this.cluster, this.question, {
      isDecode: true,
    }).software;
    return parameters.reduce((sum, p) => {
      if ((p.unit !== unit && p.alsoUnit !== unit) || CACHE.test(p.name)) return sum;
      const item = p.isNarrow === true ? (weightBytes ?? p.itemBytes) : p.itemBytes;
      return sum + (item * p.localElements) / (p.kind === 'expert' ? ep : 1);
    }, 0);
  }

  /** Latent attention has one narrow vector for all heads, which every device holds. */
  private shareOf(tp: number): number {
    const { keyHeads, latentCache = false } = this.config.architecture.shape;
    return latentCache ? 1 : cacheShare(keyHeads, tp);
  }

  private cacheBytes(parameters: readonly CoreParameter[], unit: number): number {
    return parameters.reduce(
      (sum, p) =>
        p.unit === unit && CACHE.test(p.name)
          ? sum + p.localElements * (this.question.cache === 'fp8' ? 1 : p.itemBytes)
          : sum,
      0,
    );
  }
}
