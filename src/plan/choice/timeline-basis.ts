/**
 * Shared by the memory timelines of all plans of one model: the uses in program order, the effect
 * of each node on storage, and memos of bytes and of redistribution steps by type and placement.
 */
import { isFree } from '../../cost/redistribution/plan.ts';
import { movedType } from '../../cost/redistribution/pricing.ts';
import { ownersOfOutputs } from '../../graph/carried.ts';
import { DTYPE_BYTES } from '../../graph/types.ts';
import { push } from '../../list-map.ts';
import { elements } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Model, Use } from '../model/model.ts';
import { type RegionLives, regionLives } from '../model/region-lives.ts';

/** A step of a redistribution that writes storage of its own. */
interface WritingStep {
  /** Bytes on a device. */
  readonly bytes: number;
  /** The placement that it makes, for names. */
  readonly text: string;
}

const BY_MODEL = new WeakMap<Model, TimelineBasis>();

/** The basis of a model: many plans of one model are looked at. */
export function timelineBasis(model: Model, table: OperatorTable): TimelineBasis {
  let basis = BY_MODEL.get(model);
  if (basis?.table !== table) BY_MODEL.set(model, (basis = new TimelineBasis(model, table)));
  return basis;
}

export class TimelineBasis {
  /**
   * Inputs by nodes in their order, then what the program returns and carries: the order in which
   * shared copies are made.
   */
  readonly uses: readonly Use[];
  /** The inputs of node n are those of `uses` from `firstUse[n]` up to `firstUse[n + 1]`. */
  readonly firstUse: Int32Array;
  /** By value: positions in `uses` of what the program returns or carries of it. */
  readonly returned = new Map<number, number[]>();
  /** By output: node of the input that it replaces, -1 where it replaces none. */
  readonly replaced: Int32Array;
  readonly lives: RegionLives;
  /** 1 for each node that looks at the storage of its one operand. */
  readonly isView: Uint8Array;
  /** By tensor type, then by placement. */
  private readonly bytes: Map<number, number>[];
  /** By tensor type, then by the pair of placements. */
  private readonly steps: Map<number, readonly WritingStep[]>[];

  constructor(
    private readonly model: Model,
    readonly table: OperatorTable,
  ) {
    const { graph, flow } = model;
    const { nodes } = graph;
    const at = (use: Use): number => (use.at.kind === 'input' ? use.at.node : nodes.length);
    // Equal ones keep their order.
    this.uses = [...model.uses].sort((a, b) => at(a) - at(b));
    this.firstUse = new Int32Array(nodes.length + 1);
    this.uses.forEach((use, k) => {
      if (use.at.kind === 'input') this.firstUse[use.at.node + 1]++;
      else push(this.returned, use.value, k);
    });
    for (let n = 0; n < nodes.length; n++) this.firstUse[n + 1] += this.firstUse[n];
    const ownerOf = ownersOfOutputs(graph);
    this.replaced = Int32Array.from(flow.outputs, ({ output }) =>
      output.role === 'grad' ? -1 : (ownerOf(output) ?? -1),
    );
    this.bytes = flow.types.map(() => new Map<number, number>());
    const ofType = new Map<string, Map<number, readonly WritingStep[]>>();
    this.steps = flow.values.map(({ type, order }) => {
      const key = `${type}@${order?.join() ?? ''}`;
      const steps = ofType.get(key) ?? new Map<number, readonly WritingStep[]>();
      ofType.set(key, steps);
      return steps;
    });
    this.lives = regionLives(graph, model.opened?.regions);
    this.isView = Uint8Array.from(nodes, ({ target }, n) =>
      this.firstUse[n + 1] - this.firstUse[n] === 1 &&
      table.get(target)?.cls === 'view' &&
      this.lives.stackedFrom(n) < 0
        ? 1
        : 0,
    );
  }

  /** Bytes of the largest shard of a value. */
  bytesOf(value: number, sharding: number): number {
    const { meta, type } = this.model.flow.values[value];
    let bytes = this.bytes[type].get(sharding);
    if (bytes === undefined) {
      bytes = elements(this.model.space.localShape(sharding, meta.shape)) * DTYPE_BYTES[meta.dtype];
      this.bytes[type].set(sharding, bytes);
    }
    return bytes;
  }

  /**
   * The steps that bring a value from one placement to another, without those that write nothing.
   */
  stepsOf(value: number, from: number, to: number): readonly WritingStep[] {
    const { redistributor, flow, space } = this.model;
    const pair = from * 2 ** 24 + to;
    let steps = this.steps[value].get(pair);
    if (steps === undefined) {
      steps = (redistributor.plan(movedType(flow.values[value]), from, to)?.steps ?? [])
        .filter((step) => !isFree(step))
        .flatMap(({ to: next, pieceBytes }) => {
          const text = space.text(next);
          const result = { bytes: this.bytesOf(value, next), text };
          // What is laid in place before or after, beside what it is a copy of.
          return pieceBytes === undefined
            ? [result]
            : [{ bytes: pieceBytes, text: `${text}, in pieces` }, result];
        });
      this.steps[value].set(pair, steps);
    }
    return steps;
  }
}
