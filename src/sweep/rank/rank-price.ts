/**
 * Prices the program of one data rank: takes its request, solves its placement and gives the costs
 * by unit; shares work between requests.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import type { StepSystem } from '../../cost/kernels/call.ts';
import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { type ModelConfig, parseModelConfig } from '../../models/families.ts';
import { vocabularyPadding } from '../../models/vocabulary.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { plannable } from '../../passes/plannable/plannable.ts';
import { backwardStart } from '../../passes/plannable/weight-views.ts';
import type { ProblemInUnits } from '../../plan/model/tables.ts';
import { prepare } from '../../plan/prepare/prepare.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import { DEFAULT_REQUEST } from '../../plan/request/request.ts';
import { priceRestriction } from '../../recipes/compare/price.ts';
import { applyRecipe } from '../../recipes/recipes.ts';
import { evaluate } from '../../solver/check/verify.ts';
import { type RoutedCosts, routedCosts, withoutRouted } from '../../step/read/moe.ts';
import { PlanReader } from '../../step/read/plan-reader.ts';
import type { DataExtra } from '../../step/units.ts';
import { stepSystem, type SweepQuestion } from '../model/question.ts';
import {
  type LayerKinds,
  layerKinds,
  lossProgram,
  withBackward,
} from '../model/representative-layers.ts';
import type { CoreCost, CoreRequest, CoreResult } from '../model/types.ts';
import { withDataRanks } from './data-costs.ts';
import { solveFree } from './unconstrained.ts';

/** A program whose placement is chosen. */
interface Placed {
  readonly prepared: Prepared;
  readonly choice: Int32Array;
  readonly seconds: number;
  readonly proof?: NonNullable<CoreCost['proof']>;
}

/** Prices the programs of one data rank; what several of them need is made once. */
export class CoreSolver {
  readonly config: ModelConfig;
  readonly kinds: LayerKinds;
  private readonly cluster: Cluster;
  private readonly graphs = new Map<string, Graph>();
  private extras: readonly DataExtra[] | undefined;
  /** The program that was asked for last: recipes of one mesh are asked for one after another. */
  private latest: { readonly key: string; readonly prepared: Prepared } | undefined;

  constructor(
    readonly question: SweepQuestion,
    private readonly table: OperatorTable,
    kinds?: LayerKinds,
  ) {
    this.config = parseModelConfig(question.config);
    this.cluster = loadCluster(question.cluster);
    this.kinds = kinds ?? layerKinds(this.config, this.sizes(1), table);
  }

  private get system(): StepSystem | undefined {
    return stepSystem(this.question, this.cluster);
  }

  private sizes(
    batch: number,
    sequence = this.question.sequence,
  ): Parameters<typeof lossProgram>[1] {
    const { dtype } = this.question;
    return { batch, sequence, ...defined({ dtype }) };
  }

  /**
   * The built layers without routed blocks, with the backward pass; the vocabulary padded for so
   * many tensor ranks.
   */
  private graph(batch: number, tensor: number): Graph {
    const padding = vocabularyPadding(this.config, {
      multiple: this.question.padVocabulary ?? 1,
      tensor,
    });
    const key = `${batch} ${padding?.rows ?? ''}`;
    let found = this.graphs.get(key);
    if (found === undefined) {
      const sizes = {
        ...this.sizes(batch),
        ...defined({ vocabulary: padding?.rows }),
      };
      const forward = lossProgram(this.config, sizes, this.kinds.depth, this.table);
      // The program that planning opens is opened once, and every reader of the program gets the
      // same.
      this.graphs.set(
        key,
        (found = plannable(withBackward(withoutRouted(forward), this.table), this.table)),
      );
    }
    return found;
  }

  private prepared(batch: number, mesh: string, tensor = 1): Prepared {
    const key = `${batch} ${mesh} ${tensor}`;
    if (this.latest?.key === key) return this.latest.prepared;
    const prepared = this.made(batch, mesh, tensor);
    this.latest = { key, prepared };
    return prepared;
  }

  private made(batch: number, mesh: string, tensor = 1): Prepared {
    const { cluster, cost, optimizer, memoryBytes, headroom } = this.question;
    return prepare(
      this.graph(batch, tensor),
      {
        ...DEFAULT_REQUEST,
        cluster,
        cost,
        mesh,
        activations: 'off',
        joinedBodies: true,
        ...defined({ optimizer, memoryBytes, headroom }),
      },
      this.table,
    );
  }

  /**
   * @throws E_PIN and the like never: what a recipe or the model does not admit is a refusal with
   *   its reason
   */
  async price(request: CoreRequest, deadline?: Deadline): Promise<CoreResult> {
    const [result] = await this.priceUnder(request, [{}], deadline);
    return result;
  }

  /** The program, placed once, and priced under several models of a step. */
  async priceUnder(
    request: CoreRequest,
    ways: readonly Pick<SweepQuestion, 'constants' | 'priced'>[],
    deadline?: Deadline,
  ): Promise<CoreResult[]> {
    const placed = await this.place(request, deadline);
    const results: CoreResult[] = [];
    for (const own of ways) {
      if ('refused' in placed) {
        results.push({ status: 'refused', request, reason: placed.refused });
        continue;
      }
      const { prepared, choice, seconds, proof } = placed;
      const system = stepSystem({ ...this.question, ...own }, this.cluster);
      const core = await this.read(prepared, request, choice, seconds, system);
      results.push({ status: 'priced', core: proof === undefined ? core : { ...core, proof } });
    }
    return results;
  }

  private async place(
    request: CoreRequest,
    deadline?: Deadline,
  ): Promise<Placed | { readonly refused: string }> {
    const { axes, microbatch } = request;
    const mesh = axes.length === 0 ? 'one=1' : axes.map((a) => `${a.name}=${a.size}`).join(',');
    const prepared = this.prepared(microbatch, mesh, axes.find((a) => a.name === 'tp')?.size);
    const problem = this.problemFor(prepared, request);
    if (axes.some((a) => a.part === undefined)) {
      const free = await solveFree(prepared, problem, deadline);
      if ('refused' in free) return free;
      return { prepared, choice: free.choice, seconds: free.seconds, proof: free.proof };
    }
    const parts =
      axes.length === 0 ? (['replicate'] as const) : axes.map((a) => a.part ?? 'replicate');
    const applied = applyRecipe(prepared.model, { name: axes.map((a) => a.part).join('+'), parts });
    if ('refused' in applied) return applied;
    const priced = await priceRestriction(prepared, applied.restriction, deadline, Infinity);
    if ('refused' in priced) return priced;
    const seconds =
      request.data === undefined ? priced.seconds : this.secondsOf(problem, priced.choice);
    return { prepared, choice: priced.choice, seconds };
  }

  /** Seconds of a choice in a problem that has other costs than the one that it was found in. */
  private secondsOf({ problem, unitsPerSecond }: ProblemInUnits, choice: Int32Array): number {
    const { cost, violations } = evaluate({ ...problem, rows: [] }, choice);
    if (violations.length > 0) throw internalError('a recipe is not a choice of the free problem');
    return Number(cost) / unitsPerSecond;
  }

  /** The problem of a program, with the costs of its data ranks where they are asked for. */
  private problemFor(
    prepared: Pick<Prepared, 'model' | 'left'>,
    { data }: CoreRequest,
  ): ProblemInUnits {
    const { unitsPerSecond } = prepared.model;
    if (data === undefined) return { problem: prepared.left.compact.problem, unitsPerSecond };
    return withDataRanks(prepared, data, {
      layers: this.kinds.shallow,
      preset: this.question.cost,
      cluster: this.cluster,
      table: this.table,
    });
  }

  private async read(
    prepared: Pick<Prepared, 'model'>,
    request: CoreRequest,
    choice: Int32Array,
    shallowSeconds: number,
    system: StepSystem | undefined,
  ): Promise<CoreCost> {
    this.extras ??= await this.dataExtras();
    const reader = new PlanReader(prepared.model, choice, this.kinds.shallow, this.table, {
      system,
    });
    return {
      request,
      units: reader.units(request.recompute),
      parameters: reader.parameters(),
      extras: this.extras,
      traffic: reader.traffic(),
      shallowSeconds,
    };
  }

  /**
   * The costs that a data dim adds in addition to gathers of parameters and sums of gradients, read
   * from a plan for two data ranks: the sums of the loss. Their bytes depend neither on the batch
   * nor on the number of ranks.
   */
  private async dataExtras(): Promise<readonly DataExtra[]> {
    // The program that is priced meanwhile stays the latest.
    const prepared = this.made(2, 'dp=2');
    const applied = applyRecipe(prepared.model, { name: 'dp', parts: ['data'] });
    if ('refused' in applied) throw internalError(`two data ranks: ${applied.refused}`);
    const priced = await priceRestriction(prepared, applied.restriction, undefined, Infinity);
    if ('refused' in priced) throw internalError(`two data ranks: ${priced.refused}`);
    return new PlanReader(prepared.model, priced.choice, this.kinds.shallow, this.table, {
      system: this.system,
    }).extras();
  }

  /**
   * Routed blocks of one device's tokens where the model dims cut each sequence `ways` ways;
   * undefined for dense models.
   */
  routed(
    microbatch: number,
    ways: number,
    groups: readonly number[],
    tensor: readonly number[] = [],
  ): RoutedCosts | undefined {
    const { routed } = this.config.architecture;
    if (routed === undefined) return undefined;
    const { sequence, cost, optimizer } = this.question;
    const sizes = this.sizes(microbatch, sequence / ways);
    const graph = withBackward(
      lossProgram(this.config, sizes, this.kinds.depth, this.table),
      this.table,
    );
    const start = backwardStart(graph);
    return routedCosts({
      graph,
      phases: graph.nodes.map((node, i) =>
        node.kind === 'call' && i >= start ? 'backward' : 'forward',
      ),
      layers: this.kinds.shallow,
      table: this.table,
      cluster: this.cluster,
      preset: cost,
      system: this.system,
      optimizer,
      experts: routed.experts,
      active: routed.active,
      ...defined({ limit: routed.groups }),
      folds: [1, ...tensor].flatMap((etp) => groups.map((ep) => ({ ep, etp }))),
    });
  }
}
