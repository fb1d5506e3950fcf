/**
 * Prices one stated layout of a model: takes mesh, kind and tuning, gives the same figures that a
 * comparison ranks by. Programs of a data rank are priced once for all layouts that share them.
 */

import { ShardwrightError } from '../../errors.ts';
import { meshSize } from '../../mesh/devices/mesh.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { type Checkpoint, modulesOf, programPart } from '../../step/checkpoints.ts';
import type { RoutedCosts } from '../../step/read/moe.ts';
import type { SweepQuestion } from '../model/question.ts';
import type { LayerKinds } from '../model/representative-layers.ts';
import type { StatedLayout } from '../model/stated-layout.ts';
import { type CoreCost, coreKey, coreRequest, type CoreResult } from '../model/types.ts';
import { CoreSolver } from '../rank/rank-price.ts';
import { Composer } from '../step/compose.ts';
import type { Figures } from '../step/figures.ts';

interface Solved {
  readonly solver: CoreSolver;
  readonly cores: Map<string, Promise<readonly CoreResult[]>>;
  readonly routed: Map<string, RoutedCosts | undefined>;
}

/** The parts that a layout is composed from. */
export interface LayoutParts {
  /** The program of a data rank, once for each model of a step that was asked for. */
  readonly cores: readonly CoreCost[];
  readonly routed: RoutedCosts | undefined;
  readonly composer: Composer;
}

/**
 * Prices stated layouts; questions that differ in devices and batch alone share the programs of
 * their data ranks.
 */
export class LayoutPricer {
  private readonly solved = new Map<string, Solved>();

  /**
   * @param ways models of a step that programs are priced under; `price` takes the first.
   * @param solverOf who places and prices programs
   */
  constructor(
    table: OperatorTable,
    private readonly ways: Parameters<CoreSolver['priceUnder']>[1] = [{}],
    private readonly solverOf = (question: SweepQuestion): CoreSolver =>
      new CoreSolver(question, table),
    /** Programs that a sweep of the same question priced, by `coreKey`. */
    private readonly known: ReadonlyMap<string, CoreCost> = new Map(),
  ) {}

  /**
   * Seconds and bytes of one step as `compare` composes them.
   *
   * @throws E_UNSUPPORTED where a recipe, the batch or the schedule does not admit the layout
   */
  async price(question: SweepQuestion, layout: StatedLayout): Promise<Figures> {
    const { cores, routed, composer } = await this.parts(question, layout);
    const { sizes, kind, tuning } = layout;
    const figures = composer.compose({ core: cores[0], routed, sizes, kind, tuning });
    if (figures === undefined) throw refused('the schedule does not admit the stages');
    return figures;
  }

  /** @throws E_UNSUPPORTED where a recipe or the batch does not admit the layout */
  async parts(
    question: SweepQuestion,
    { sizes, kind, tuning }: StatedLayout,
  ): Promise<LayoutParts> {
    const { solver, cores, routed } = this.solvedFor(question);
    const request = {
      ...coreRequest(sizes, kind, tuning.microbatch),
      recompute: tuning.checkpoint,
    };
    const part = programPart(tuning.checkpoint);
    const price = async (key: string): Promise<CoreCost[]> => {
      let found = cores.get(key);
      if (found === undefined) {
        const core = this.known.get(key);
        found =
          core === undefined
            ? solver.priceUnder(request, this.ways)
            : Promise.resolve([{ status: 'priced', core }]);
        cores.set(key, found);
      }
      return (await found).map((core) => {
        if (core.status === 'refused') throw refused(core.reason);
        return core.core;
      });
    };
    const known = await price(coreKey(request));
    // Programs are priced with what a search tries and what was asked for first.
    const isPriced = known.every((core) => Object.hasOwn(core.units[0].keptBytes, part));
    checkModules(tuning.checkpoint, known[0], solver.config.architecture.routed !== undefined);
    const priced = isPriced ? known : await price(`${coreKey(request)} ${part}`);
    const ways = meshSize(request.axes);
    const { ep, etp = 1 } = sizes;
    const block = `${tuning.microbatch} ${ways} ${ep} ${etp}`;
    if (!routed.has(block))
      routed.set(block, solver.routed(tuning.microbatch, ways, [ep], etp === 1 ? [] : [etp]));
    const composer = new Composer(question, solver.kinds);
    if (composer.microbatches(sizes, tuning.microbatch) === 0)
      throw refused(
        `a batch of ${question.globalBatch} does not divide into microbatches of ` +
          `${tuning.microbatch}`,
      );
    return { cores: priced, routed: routed.get(block), composer };
  }

  /** Layers of a model of any depth: `LayerKinds`. */
  kinds(question: SweepQuestion): LayerKinds {
    return this.solvedFor(question).solver.kinds;
  }

  private solvedFor(question: SweepQuestion): Solved {
    const { devices: _, globalBatch: __, model: ___, ...rest } = question;
    const key = JSON.stringify(rest);
    let found = this.solved.get(key);
    if (found === undefined) {
      found = { solver: this.solverOf(question), cores: new Map(), routed: new Map() };
      this.solved.set(key, found);
    }
    return found;
  }
}

/** @throws E_UNSUPPORTED where a module that is to be recomputed saves nothing */
function checkModules(checkpoint: Checkpoint, { units }: CoreCost, hasExperts: boolean): void {
  for (const name of modulesOf(checkpoint)) {
    const saves =
      name === 'moe' || name === 'moe_act'
        ? hasExperts
        : units.some((u) => u.keptBytes[name] < u.keptBytes.none);
    if (!saves)
      throw refused(
        `recompute=${checkpoint}: the backward pass reads nothing that ${name} makes in this model`,
      );
  }
}

function refused(reason: string): ShardwrightError {
  return new ShardwrightError('E_UNSUPPORTED', reason);
}
