/**
 * Decodes a choice of a model into the placements of every node and the redistributions between
 * them.
 */
import { movedType } from '../../cost/redistribution/pricing.ts';
import { defined } from '../../defined.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Node } from '../../graph/types.ts';
import { COLLECTIVE_KINDS } from '../../mesh/collective-kinds.ts';
import { drawsNumbers } from '../../ops/record/record.ts';
import type { NodeStrategies } from '../../strategy/nodes.ts';
import type { Model, Use } from '../model/model.ts';
import { collectivesInside } from '../model/node-costs.ts';
import type {
  Plan,
  PlanMemory,
  PlannedInside,
  PlannedNode,
  PlannedOutput,
  PlannedRedistribution,
} from '../record/types.ts';
import { Routes } from './routes.ts';
import { plannedSteps } from './steps.ts';

/** The meaning of a choice: the placements of every node and the redistributions between them. */
export interface Decoded {
  readonly computeSeconds: number;
  readonly communicationSeconds: number;
  /**
   * The same with the seconds of the steps that run, where the preset charges redistributions by a
   * formula.
   */
  readonly executedCommunicationSeconds?: number;
  readonly parameters: Plan['parameters'];
  readonly nodes: readonly PlannedNode[];
  readonly outputs: readonly PlannedOutput[];
  readonly memory: Omit<PlanMemory, 'budgetBytes'>;
}

/** Turns the solver's choice into placements, redistributions with their collectives, and bytes. */
export function decode(model: Model, choice: Int32Array): Decoded {
  const decoder = new Decoder(model, choice);
  const { byNode, others } = usesByConsumer(model);
  const nodes = model.graph.nodes.map((_, n) => decoder.node(n, byNode.get(n) ?? []));
  const outputs = others.map((use) => decoder.output(use));
  return {
    computeSeconds: decoder.computeSeconds,
    communicationSeconds: decoder.communicationSeconds,
    ...(model.charges.byFormula ? { executedCommunicationSeconds: decoder.executedSeconds } : {}),
    parameters: parameterPlacements(model, choice),
    nodes,
    outputs,
    memory: stateMemory(model, choice),
  };
}

/** Uses by the node that reads, and those of outputs and carries. */
function usesByConsumer({ uses }: Model): {
  readonly byNode: ReadonlyMap<number, readonly Use[]>;
  readonly others: readonly Use[];
} {
  const byNode = new Map<number, Use[]>();
  const others: Use[] = [];
  for (const use of uses) {
    if (use.at.kind !== 'input') others.push(use);
    else {
      const list = byNode.get(use.at.node);
      if (list === undefined) byNode.set(use.at.node, [use]);
      else list.push(use);
    }
  }
  return { byNode, others };
}

/** Decodes node after node, and adds up seconds. */
class Decoder {
  computeSeconds = 0;
  communicationSeconds = 0;
  executedSeconds = 0;
  private readonly movements: Movements;

  constructor(
    private readonly model: Model,
    private readonly choice: Int32Array,
  ) {
    this.movements = new Movements(model, choice);
  }

  node(n: number, uses: readonly Use[]): PlannedNode {
    const { model } = this;
    const entry = model.strategies.nodes[n];
    if (entry === null) return this.view(n);
    const node = model.graph.nodes[n];
    const { set, content } = entry;
    const s = this.choice[model.nodeVariable[n]];
    const width = set.inputCount + set.outputCount;
    const specs = set.specs.subarray(s * width, (s + 1) * width);
    const texts = Array.from(specs, (id) => (id < 0 ? '-' : model.space.text(id)));
    const costs = model.nodeSeconds.get(content)!;
    const [seconds, internalSeconds] = [costs.compute[s], costs.internal[s]];
    const times = model.opened?.loops.runsOf(node.name) ?? 1;
    this.computeSeconds += seconds * times;
    this.communicationSeconds += internalSeconds * times;
    this.executedSeconds += internalSeconds * times;
    return {
      name: node.name,
      target: targetOf(node),
      inputs: texts.slice(0, set.inputCount),
      outputs: texts.slice(set.inputCount),
      ...runtimeFacts(model, n, entry, specs.subarray(set.inputCount)),
      seconds,
      ...(times !== 1 ? { times } : {}),
      ...(internalSeconds > 0 ? { internalSeconds, inside: insideOf(model, entry, s) } : {}),
      redistributions: uses.flatMap((use) => this.moves(use)),
    };
  }

  output(use: Use): PlannedOutput {
    const { graph, flow, space } = this.model;
    const redistributions = this.moves(use);
    const placement = space.text(this.movements.demanded(use));
    if (use.at.kind !== 'output')
      return {
        value: nameOfValue(this.model, use.value),
        role: 'carry',
        of: use.at.kind === 'carry' ? graph.nodes[use.at.node].name : '',
        placement,
        redistributions,
      };
    const { output } = flow.outputs[use.at.output];
    return {
      value: output.value ?? '',
      role: output.role,
      ...defined({ of: output.of }),
      placement,
      redistributions,
    };
  }

  /** A node that only names a result of another. */
  private view(n: number): PlannedNode {
    const { graph, flow } = this.model;
    const node = graph.nodes[n];
    const value = flow.valueOf(node.name);
    return {
      name: node.name,
      target: targetOf(node),
      inputs: [],
      outputs: [this.movements.ownedText(value)],
      phase: flow.phases[n],
      aliasOf: nameOfValue(this.model, value),
      ...defined({ repeats: node.meta.repeats }),
      seconds: 0,
      redistributions: [],
    };
  }

  /** The redistributions of a use, with their seconds added. */
  private moves(use: Use): PlannedRedistribution[] {
    const moves = this.movements.of(use);
    for (const { seconds, executedSeconds = seconds, times = 1 } of moves) {
      this.communicationSeconds += seconds * times;
      this.executedSeconds += executedSeconds * times;
    }
    return moves;
  }
}

function targetOf(node: Node): string {
  return node.kind === 'call' ? node.target : node.kind;
}

/** Facts about a node that a runtime needs in addition to its placements. */
function runtimeFacts(
  model: Model,
  n: number,
  { record, call }: NodeStrategies,
  outputs: Int32Array,
): Pick<PlannedNode, 'phase' | 'operands' | 'local' | 'repeats' | 'random'> {
  const { graph, flow, space, opened } = model;
  const { name, target, meta } = graph.nodes[n];
  const shapes = Array.from(flow.results[n], (id) => (id < 0 ? null : flow.values[id].meta.shape));
  const [drawn] = shapes;
  // The backward pass of attention takes up the numbers of the forward call.
  const draws =
    record !== undefined &&
    call !== undefined &&
    drawsNumbers(record, call) &&
    !target.includes('_backward.');
  return {
    phase: flow.phases[n],
    ...(flow.inputs[n].length === 0
      ? {}
      : { operands: Array.from(flow.inputs[n], (value) => nameOfValue(model, value)) }),
    local: shapes.map((shape, k) =>
      shape === null || outputs[k] < 0 ? null : space.localShape(outputs[k], shape),
    ),
    ...defined({ repeats: meta.repeats }),
    ...(draws && drawn
      ? { random: { stream: opened?.origins.get(name) ?? name, shape: drawn } }
      : {}),
  };
}

/** The collectives inside a call, priced one by one. */
export function insideOf(
  { space, collectives }: Model,
  entry: NodeStrategies,
  s: number,
): PlannedInside[] {
  const { mesh } = space;
  return collectivesInside(entry, s, space)
    .filter(({ meshDim }) => mesh.sizes[meshDim] > 1)
    .map(({ kind, meshDim, bytes, site }) => ({
      kind,
      meshDims: [mesh.names[meshDim]],
      bytes,
      seconds: collectives.seconds(kind, bytes, [meshDim]),
      ...site,
    }));
}

/** The redistributions of each use as the plan lists them. */
class Movements {
  private readonly routes: Routes;

  constructor(
    private readonly model: Model,
    choice: Int32Array,
  ) {
    this.routes = new Routes(model, choice);
  }

  ownedText(value: number): string {
    return this.model.space.text(this.routes.owned(value));
  }

  demanded(use: Use): number {
    return this.routes.demanded(use);
  }

  of(use: Use): PlannedRedistribution[] {
    const { space } = this.model;
    return this.routes.of(use).map(({ from, to, copy, copyId }): PlannedRedistribution => {
      const shared = copy === undefined || copyId === undefined ? {} : { copy, copyId };
      if (copy !== 'reused') return { ...this.move(use, from, to), ...shared };
      const value = nameOfValue(this.model, use.value);
      return {
        input: inputOf(use),
        value,
        from: space.text(from),
        to: space.text(to),
        collectives: [],
        seconds: 0,
        ...shared,
      };
    });
  }

  private move(use: Use, from: number, to: number): PlannedRedistribution {
    const { model } = this;
    const value = model.flow.values[use.value];
    const plan = model.redistributor.plan(movedType(value), from, to);
    if (plan === undefined)
      throw new Error(
        `internal: chosen redistribution ${model.space.text(from)} -> ` +
          `${model.space.text(to)} is refused`,
      );
    return {
      input: inputOf(use),
      value: nameOfValue(model, use.value),
      from: model.space.text(from),
      to: model.space.text(to),
      ...(use.times !== 1 ? { times: use.times } : {}),
      collectives: plan.steps
        .filter((step) => COLLECTIVES.has(step.kind))
        .map((step) => ({
          kind: step.kind,
          meshDims: step.meshDims.map((d) => model.space.mesh.dims[d].name),
          bytes: step.bytes,
          seconds: step.seconds,
        })),
      steps: plannedSteps(plan, model.space),
      ...(model.charges.byFormula
        ? {
            seconds: model.charges.seconds(model.charges.typeOf(value), from, to),
            executedSeconds: plan.seconds,
          }
        : { seconds: plan.seconds }),
    };
  }
}

const COLLECTIVES: ReadonlySet<string> = new Set<string>(COLLECTIVE_KINDS);

/** Name of the node that makes a value, with the position of the result where it has several. */
export function nameOfValue(model: Model, value: number): string {
  const { node, result } = model.flow.values[value];
  const { name } = model.graph.nodes[node];
  return model.flow.results[node].length > 1 ? `${name}[${result}]` : name;
}

function inputOf(use: Use): number {
  return use.at.kind === 'input' ? use.at.input : 0;
}

function parameterPlacements(model: Model, choice: Int32Array): Decoded['parameters'] {
  const { graph, flow, strategies, space, nodeVariable } = model;
  const owners = new Map(
    (graph.ties ?? []).flatMap(([owner, ...others]) => others.map((name) => [name, owner])),
  );
  return graph.nodes.flatMap((node, n) => {
    if (node.kind !== 'placeholder' || node.meta.role !== 'parameter') return [];
    const { set } = strategies.nodes[n]!;
    const { meta } = flow.values[flow.results[n][0]];
    const placement = space.text(set.specs[choice[nodeVariable[n]]]);
    const name = roleName(node);
    const tiedTo = owners.get(name);
    return [{ name, shape: meta.shape, placement, ...defined({ tiedTo }) }];
  });
}

export function stateMemory(model: Model, choice: Int32Array): Omit<PlanMemory, 'budgetBytes'> {
  let parameterBytes = 0;
  let gradientBytes = 0;
  let optimizerBytes = 0;
  for (const [n, state] of model.stateBytes) {
    const local = state.localElements[choice[model.nodeVariable[n]]];
    parameterBytes += local * state.parameter;
    gradientBytes += local * state.gradient;
    optimizerBytes += local * state.optimizer;
  }
  return {
    peakBytes: parameterBytes + gradientBytes + optimizerBytes,
    parameterBytes,
    gradientBytes,
    optimizerBytes,
    activationBytes: null,
  };
}
