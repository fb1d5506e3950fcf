/** The prices that a sweep has so far: programs of a data rank, and blocks of routed experts. */

import { nonEmpty } from '../defined.ts';
import { divisors } from '../divisors.ts';
import { meshSize } from '../mesh/devices/mesh.ts';
import type { ModelConfig } from '../models/families.ts';
import type { RoutedCosts } from '../step/read/moe.ts';
import type { SweepQuestion } from './model/question.ts';
import { type CoreCost, coreKey, type CoreRequest, routedKey } from './model/types.ts';
import type { SweepJob, SweepPool } from './threads/pool.ts';

interface ProgramsAsked {
  readonly question: SweepQuestion;
  readonly config: ModelConfig;
  readonly pool: SweepPool;
  /** Devices over which experts are cut, in any row. */
  readonly tensorFolds: readonly number[];
}

export class PricedPrograms {
  private readonly cores = new Map<string, CoreCost | { readonly refused: string }>();
  private readonly blocks = new Map<string, RoutedCosts>();

  constructor(private readonly asked: ProgramsAsked) {}

  /** Prices what is not priced yet. What the pool has no time for stays without a price. */
  async ask(requests: readonly CoreRequest[]): Promise<void> {
    const jobs: SweepJob[] = [];
    const keys: string[] = [];
    for (const request of requests) {
      const own = coreKey(request);
      if (!this.cores.has(own)) {
        jobs.push({ kind: 'core', request });
        keys.push(own);
      }
      const key = routedKey(request);
      if (this.asked.config.architecture.routed === undefined) continue;
      if (this.blocks.has(key) || keys.includes(key)) continue;
      jobs.push(this.blockJob(request));
      keys.push(key);
    }
    const answers = await this.asked.pool.run(jobs);
    answers.forEach((answer, i) => {
      if (answer === undefined) return;
      if (answer.kind === 'routed') {
        if (answer.costs !== null) this.blocks.set(keys[i], answer.costs);
      } else if (answer.result.status === 'priced') this.cores.set(keys[i], answer.result.core);
      else this.cores.set(keys[i], { refused: answer.result.reason });
    });
  }

  private blockJob({ microbatch, axes }: CoreRequest): SweepJob {
    const { question, config, tensorFolds } = this.asked;
    const ways = meshSize(axes);
    const experts = config.architecture.routed?.experts ?? 1;
    const groups = divisors(experts).filter((ep) => question.devices % ep === 0);
    // Numbers that divide tp divide the devices that cut a data rank's program.
    const tensor = tensorFolds.filter((etp) => ways % etp === 0);
    return { kind: 'routed', microbatch, ways, groups, ...nonEmpty({ tensor }) };
  }

  /** The price of a program, or why it has none; undefined where it was not asked for. */
  outcome(request: CoreRequest): CoreCost | { readonly refused: string } | undefined {
    return this.cores.get(coreKey(request));
  }

  core(request: CoreRequest): CoreCost | undefined {
    const known = this.outcome(request);
    return known === undefined || 'refused' in known ? undefined : known;
  }

  /** Costs of the routed blocks of a program; undefined where it has none. */
  routed(request: CoreRequest): RoutedCosts | undefined {
    return this.blocks.get(routedKey(request));
  }

  all(): {
    readonly cores: ReadonlyMap<string, CoreCost>;
    readonly routed: ReadonlyMap<string, RoutedCosts>;
  } {
    const cores = [...this.cores].flatMap(([key, core]) =>
      'refused' in core ? [] : [[key, core] as const],
    );
    return { cores: new Map(cores), routed: this.blocks };
  }
}
