/** Keeps the names of global values during the lowering, with their local values and placements. */
import type { Graph, Node } from '../../graph/types.ts';
import { type Emitter, emptySection, type Section } from './emitter.ts';

/** A local value and the placement that it has. */
export interface Placed {
  readonly name: string;
  readonly sharding: number;
}

/**
 * The program or one body of it while it is written. A body is a graph of its own: a value that it
 * uses from the code around it comes in as an input, at any depth.
 */
export class Frame {
  readonly section: Section = emptySection();
  /** By value id: what its producer leaves here. */
  readonly owned = new Map<number, Placed>();
  /** Copies that several uses here share. */
  readonly copies = new Map<string, Placed>();
  /** The bodies in it, by name. */
  readonly bodies = new Map<string, Graph>();
  /** Inputs that the call hands over in each run, in order. */
  readonly inputs: Node[] = [];
  /** Values of the code around it, by their names there. */
  private readonly captured = new Map<string, Node>();

  /** @param scope of the opened graph; 0 for the program */
  constructor(
    private readonly emit: Pick<Emitter, 'bodyInput' | 'type'>,
    readonly scope: number,
    readonly parent: Frame | undefined,
  ) {}

  /** Finds a value from here: in this body, or in those around it. */
  find(value: number): Placed | undefined {
    const own = this.owned.get(value);
    if (own !== undefined || this.parent === undefined) return own;
    const outer = this.parent.find(value);
    return outer === undefined ? undefined : { ...outer, name: this.capture(outer.name) };
  }

  /** Name here of a value of the frame around this one. */
  capture(outer: string): string {
    let node = this.captured.get(outer);
    if (node === undefined)
      this.captured.set(outer, (node = this.emit.bodyInput(outer, this.emit.type(outer))));
    return node.name;
  }

  /** The value of another frame that holds this one, brought in. */
  bring(name: string, from: Frame): string {
    if (from === this) return name;
    return this.parent === undefined ? name : this.capture(this.parent.bring(name, from));
  }

  get captures(): readonly string[] {
    return [...this.captured.keys()];
  }

  /** Adds an input that a call hands over in each run. */
  input(base: string, type: Parameters<Emitter['bodyInput']>[1]): string {
    const node = this.emit.bodyInput(base, type);
    this.inputs.push(node);
    return node.name;
  }

  /**
   * The finished body. `captured`: names around it that the call hands over, in order; this frame
   * may use fewer.
   */
  graph(name: string, captured: readonly string[], returns: readonly string[]): Graph {
    for (const outer of captured) this.capture(outer);
    const placeholders = [
      ...this.inputs,
      ...captured.map((outer) => this.captured.get(outer)!),
    ].map((node, roleIndex): Node => ({ ...node, meta: { role: 'arg', roleIndex } }));
    return {
      name,
      nodes: [...placeholders, ...this.section.nodes],
      outputs: returns.map((value, index) => ({ value, role: 'output', index })),
      subgraphs: Object.fromEntries(this.bodies),
    };
  }
}
