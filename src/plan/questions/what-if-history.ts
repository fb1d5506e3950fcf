/**
 * Asks what-if questions on a plan, one on top of another: each pins the result of a node to a
 * placement and solves again. A question changes the request by patches of immer, so it is taken
 * back by the inverse patches, and taken up again without solving.
 */
import { applyPatches, type Patch } from 'immer';

import { checkKinds } from '../../arguments.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Infeasible } from '../choice/result.ts';
import { type LeastCostOptions, leastCostPlanOf } from '../least-cost-plan.ts';
import { withPins } from '../prepare/prepare.ts';
import type { Plan } from '../record/types.ts';
import type { Pin } from '../request/request.ts';
import { attribute, type Term } from './attribution.ts';
import { nodeIndex, type Reopened } from './explain.ts';
import { changeRequest, changesOf } from './what-if.ts';

type ForceOptions = Omit<LeastCostOptions, 'table' | 'starts'>;

/** How one plan differs from another of the same program. */
export interface PlanChange {
  /** The changes of the request. */
  readonly changes: readonly string[];
  readonly plan: Plan;
  /** Seconds more than the plan that was asked about. */
  readonly globalSeconds: number;
  /**
   * Terms that changed, largest first; their deltas sum to `globalSeconds` up to the rounding of a
   * double.
   */
  readonly attribution: readonly Term[];
  /** Other nodes whose placements changed. */
  readonly changedNodes: readonly string[];
}

/** The answer to "what if this node were placed so": the plan solved again with the pin. */
export interface Forced extends PlanChange {
  readonly spec: string;
}

/** A question with its answer. */
export interface WhatIf {
  readonly pin: Pin;
  readonly forced: Forced;
}

interface Step extends WhatIf {
  readonly patches: readonly Patch[];
  readonly undo: readonly Patch[];
  readonly choice: Int32Array;
}

/**
 * The what-if questions on a plan and their answers, with undo and redo.
 *
 * @example
 * ```ts
 * import { input, parameter, shard, trace } from 'shardwright';
 * import { WhatIfHistory } from 'shardwright/plan';
 *
 * const graph = trace(({ x, w }) => x.matmul(w), {
 *   x: input([4096, 4096]),
 *   w: parameter([4096, 4096]),
 * });
 * const result = await shard(graph, { mesh: 'tp=4', cluster: 'dgx-h100' });
 * if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
 * const questions = new WhatIfHistory(result);
 * await questions.ask('w', 'S(0)');
 * await questions.ask('x', 'S(1)');
 * questions.undo();
 * console.log(questions.asked.map(({ pin }) => `${pin.node}=${pin.spec}`)); // [ 'w=S(0)' ]
 * console.log(questions.together.changes); // [ 'pins: + w=S(0)' ]
 * ```
 */
export class WhatIfHistory {
  private readonly steps: Step[] = [];
  /** Questions that are not taken back: the first of `steps`. */
  private done = 0;
  private request: Reopened['prepared']['question']['request'];

  constructor(private readonly opened: Reopened) {
    checkKinds('WhatIfHistory', { opened: [opened, 'planned'] });
    this.request = opened.prepared.question.request;
  }

  /** The questions that were not taken back, in the order in which they were asked. */
  get asked(): readonly WhatIf[] {
    return this.steps.slice(0, this.done);
  }

  get canUndo(): boolean {
    return this.done > 0;
  }

  get canRedo(): boolean {
    return this.done < this.steps.length;
  }

  /** How the plan with all of these questions differs from the one that was asked about. */
  get together(): PlanChange {
    const asked = this.steps.slice(0, this.done);
    const patches = asked.flatMap((step) => step.patches);
    const nodes = asked.map(({ pin }) => nodeIndex(this.opened.prepared.model, pin.node));
    return {
      changes: changesOf(this.opened.prepared.question.request, this.request, patches),
      ...this.change(this.opened, this.current, new Set(nodes)),
    };
  }

  /**
   * Solves the plan again with a node forced to a placement of its result, on top of the questions
   * before. Questions that were taken back are forgotten. An infeasible one changes nothing.
   *
   * @throws E_REF, E_PIN for a node or a placement that the graph does not admit
   */
  async ask(node: string, spec: string, options: ForceOptions = {}): Promise<Forced | Infeasible> {
    const { model } = this.opened.prepared;
    const n = nodeIndex(model, node);
    const at = this.done;
    const before = this.current;
    const { request, changes, patches, undo } = changeRequest(this.request, (draft) => {
      draft.pins = draft.pins.filter((pin) => nodeIndex(model, pin.node) !== n);
      draft.pins.push({ node, spec });
    });
    const result = await leastCostPlanOf(withPins(this.opened.prepared, request), {
      ...options,
      starts: [before.choice],
    });
    if (result.status === 'infeasible') return result;
    const forced = { spec, changes, ...this.change(before, result, new Set([n])) };
    this.steps.splice(at, Infinity, {
      pin: { node, spec },
      forced,
      patches,
      undo,
      choice: result.choice,
    });
    this.done = at + 1;
    this.request = request;
    return forced;
  }

  /** Takes the last question back; nothing where there is none. */
  undo(): void {
    if (!this.canUndo) return;
    this.request = applyPatches(this.request, this.steps[--this.done].undo);
  }

  /** Takes up the question that was taken back last; nothing where there is none. */
  redo(): void {
    if (!this.canRedo) return;
    this.request = applyPatches(this.request, this.steps[this.done++].patches);
  }

  private get current(): Pick<Reopened, 'plan' | 'choice'> {
    if (this.done === 0) return this.opened;
    const { forced, choice } = this.steps[this.done - 1];
    return { plan: forced.plan, choice };
  }

  /** @param asked nodes that questions are about, which are not listed as changed */
  private change(
    before: Pick<Reopened, 'plan' | 'choice'>,
    after: Pick<Reopened, 'plan' | 'choice'>,
    asked: ReadonlySet<number>,
  ): Omit<PlanChange, 'changes'> {
    const { model } = this.opened.prepared;
    const changedNodes = model.graph.nodes.flatMap((node, k) => {
      const v = model.nodeVariable[k];
      const same = v < 0 || before.choice[v] === after.choice[v];
      return same || asked.has(k) ? [] : [roleName(node)];
    });
    return {
      plan: after.plan,
      globalSeconds: after.plan.objective.seconds - before.plan.objective.seconds,
      attribution: attribute(model, before.choice, after.choice),
      changedNodes,
    };
  }
}

/**
 * Solves a plan again with a node forced to a placement of its result.
 *
 * @throws E_REF, E_PIN for a node or a placement that the graph does not admit
 */
export async function forceNode(
  result: Reopened,
  name: string,
  spec: string,
  options: ForceOptions = {},
): Promise<Forced | Infeasible> {
  checkKinds('forceNode', {
    result: [result, ['plan', 'prepared', 'choice']],
    name: [name, 'string'],
    spec: [spec, 'string'],
    options: [options, 'record', 'undefined'],
  });
  return new WhatIfHistory(result).ask(name, spec, options);
}
